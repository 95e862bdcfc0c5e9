package grpclimit

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/sluicehq/sluice/policy"
)

// clock measures the latency of a call, for automatic limits of requests in flight.
type clock struct {
	ctx       context.Context
	server    *Server
	decision  *policy.Decision
	started   time.Time
	last      atomic.Int64 // nanoseconds from started until the last message of the client
	receiving atomic.Bool
	once      sync.Once
}

func newClock(ctx context.Context, s *Server, d *policy.Decision) *clock {
	return &clock{ctx: ctx, server: s, decision: d, started: time.Now()}
}

// errPanicked stands for the error of a handler that has panicked.
var errPanicked = errors.New("panicked")

// answered reports the end of a call, unless a message was reported before.
func (c *clock) answered(err error) {
	code := 0
	if err != errPanicked {
		code = httpStatus(status.Code(err))
	}
	c.report(code)
}

// report reports the latency of the response, only once. It reports nothing if the handler is waiting for the
// client at that moment.
func (c *clock) report(code int) {
	c.once.Do(func() {
		if c.ctx.Err() != nil {
			code = 0
		}
		if !c.receiving.Load() {
			c.server.engine.Answered(*c.decision, c.started.Add(time.Duration(c.last.Load())), code)
		}
	})
}

// timed measures the latency of a stream until its first message.
type timed struct {
	grpc.ServerStream
	clock *clock
}

func (t *timed) SendMsg(message any) error {
	t.clock.report(httpStatus(0))
	return t.ServerStream.SendMsg(message)
}

// RecvMsg records when the client has sent a message, so that a slow client is not mistaken for a slow server.
func (t *timed) RecvMsg(message any) error {
	t.clock.receiving.Store(true)
	err := t.ServerStream.RecvMsg(message)
	t.clock.last.Store(int64(time.Since(t.clock.started)))
	t.clock.receiving.Store(false)
	return err
}
