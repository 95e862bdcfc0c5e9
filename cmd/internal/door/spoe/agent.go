// Package spoe has an agent for HAProxy's SPOE. HAProxy sends the parts of a request that a policy needs. The agent
// answers with variables, by which HAProxy's configuration denies the request or adds fields to the response.
//
// A message has the arguments
//
//	method=method path=pathq host=req.fhdr(host) src=src headers=req.hdrs_bin
//	id=unique-id body=req.body wait=int(400)
//
// The arguments host, id, body and wait are optional. wait is the maximum time, in milliseconds, that HAProxy waits
// for a request in the queue of a leaky bucket. Other arguments become attributes of the request.
//
// The variables have the scope txn. They are allowed, status, body, and one for each header field of the answer,
// such as retry_after and ratelimit_policy. If the request exceeds rules with "over: mark", over has their names.
package spoe

import (
	"net"
	"sync"
	"time"

	"github.com/sluicehq/sluice/cmd/internal/door"
	"github.com/sluicehq/sluice/cmd/internal/door/sockets"
	"github.com/sluicehq/sluice/internal/seldom"
)

// Agent serves connections from HAProxy.
type Agent struct {
	*sockets.Server
	*door.Base
	batches    sync.Pool // of *batch
	complaints seldom.Gate
}

// New returns an agent. The agent ignores c.Authorize, because HAProxy cannot send tokens.
func New(c door.Config) *Agent {
	a := &Agent{Base: door.New(c)}
	a.Server = sockets.New(c.Logger, func(socket net.Conn) sockets.Conn { return newConn(a, socket) })
	a.batches.New = func() any { return new(batch) }
	return a
}

// complain logs a warning at most once a minute, because peers can cause warnings at any rate.
func (a *Agent) complain(text string, about ...any) {
	if a.complaints.Opens(time.Minute) {
		a.Logger.Warn(text, about...)
	}
}
