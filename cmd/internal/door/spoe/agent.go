// Package spoe is an agent for HAProxy's SPOE: HAProxy sends the parts of a request that a policy needs, and gets
// variables, with which its configuration denies the request or adds fields to the response.
//
// A message has the arguments
//
//	method=method path=pathq host=req.fhdr(host) src=src headers=req.hdrs_bin
//	id=unique-id body=req.body wait=int(400)
//
// The arguments host, id, body and wait are optional. wait is the longest time, in milliseconds, that HAProxy waits for
// the turn of a request that a leaky bucket queues. All other arguments are attributes of the request.
//
// The variables, in the scope txn, are allowed, status, body, and one for each header field of the answer, such as
// retry_after and ratelimit_policy.
package spoe

import (
	"net"
	"sync"
	"time"

	"github.com/sluicehq/sluice/cmd/internal/door"
	"github.com/sluicehq/sluice/cmd/internal/door/sockets"
	"github.com/sluicehq/sluice/internal/seldom"
)

// Agent answers HAProxy.
type Agent struct {
	*sockets.Server
	*door.Base
	batches    sync.Pool // of *batch
	complaints seldom.Gate
}

// New returns an agent. It does not call Authorize, because HAProxy has no tokens.
func New(c door.Config) *Agent {
	a := &Agent{Base: door.New(c)}
	a.Server = sockets.New(c.Logger, func(socket net.Conn) sockets.Conn { return newConn(a, socket) })
	a.batches.New = func() any { return new(batch) }
	return a
}

// complain logs at most once a minute, because peers can cause it at any rate.
func (a *Agent) complain(text string, about ...any) {
	if a.complaints.Opens(time.Minute) {
		a.Logger.Warn(text, about...)
	}
}
