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

// clock measures the latency of a call, for automatic limits of requests under way.
type clock struct {
	ctx       context.Context
	server    *Server
	decision  *policy.Decision
	started   time.Time
	last      atomic.Int64 // nanoseconds from started to the last message of the client
	receiving atomic.Bool
	once      sync.Once
}

func newClock(ctx context.Context, s *Server, d *policy.Decision) *clock {
	return &clock{ctx: ctx, server: s, decision: d, started: time.Now()}
}

// errPanicked is in place of the error of a handler that has panicked.
var errPanicked = errors.New("panicked")

// answered reports the end of a call without a message, unless a message was reported.
func (c *clock) answered(err error) {
	code := 0
	if err != errPanicked {
		code = httpStatus(status.Code(err))
	}
	c.report(code)
}

// report reports the head of the response once. Nothing is learnt from one while the handler waits for the client.
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

// timed is a stream with its first message as the head of the response.
type timed struct {
	grpc.ServerStream
	clock *clock
}

func (t *timed) SendMsg(message any) error {
	t.clock.report(httpStatus(0))
	return t.ServerStream.SendMsg(message)
}

// RecvMsg notes when the client has sent, so that a slow client is not taken for a slow server.
func (t *timed) RecvMsg(message any) error {
	t.clock.receiving.Store(true)
	err := t.ServerStream.RecvMsg(message)
	t.clock.last.Store(int64(time.Since(t.clock.started)))
	t.clock.receiving.Store(false)
	return err
}
