// Package spoe is an agent for HAProxy's SPOE: HAProxy sends what a policy needs of a request, and gets
// variables, with which its configuration denies the request or adds fields to the response. Package server
// is above it, package policy is below.
//
// A message has the arguments
//
//	method=method path=pathq host=req.fhdr(host) src=src headers=req.hdrs_bin
//	id=unique-id body=req.body wait=int(400)
//
// of which host, id, body and wait may be missing: the longest that HAProxy waits, in milliseconds,
// for the turn of a request that a leaky bucket queues. Others are attributes of the request.
//
// The variables, in the scope txn, are allowed, status, body, and for each header field of the
// answer one of its name: retry_after, ratelimit_policy.
package spoe

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluicehq/sluice/answer"
	"github.com/sluicehq/sluice/policy"
)

// Config is what an agent decides by.
type Config struct {
	Engine        *policy.Engine
	DegradedField bool // see answer.Encoder
	Logger        *slog.Logger
}

// Agent answers HAProxy.
type Agent struct {
	config  Config
	encoder answer.Encoder
	outage  answer.Outage
	batches sync.Pool // of *batch

	complained atomic.Int64 // when, in nanoseconds since 1970

	mu       sync.Mutex
	listener net.Listener
	open     map[*conn]struct{}
	ending   bool
	running  sync.WaitGroup // a connection each
	ctx      context.Context
	cancel   context.CancelFunc
}

// New returns an agent that has yet to serve.
func New(c Config) *Agent {
	a := &Agent{config: c, open: make(map[*conn]struct{})}
	a.encoder.DegradedField, a.outage.Logger = c.DegradedField, c.Logger
	a.batches.New = func() any { return new(batch) }
	a.ctx, a.cancel = context.WithCancel(context.Background())
	return a
}

// Serve answers the connections of l until Shutdown or Close, and returns nil then. It is called once.
func (a *Agent) Serve(l net.Listener) error {
	a.mu.Lock()
	a.listener = l
	ending := a.ending
	a.mu.Unlock()
	if ending {
		return l.Close()
	}
	for {
		c, err := l.Accept()
		switch {
		case err == nil:
			a.begin(c)
		case a.ends():
			return nil
		case temporary(err):
			time.Sleep(10 * time.Millisecond) // no files are left: some will be
		default:
			return err
		}
	}
}

// temporary reports whether the next Accept may succeed.
func temporary(err error) bool {
	var t interface{ Temporary() bool }
	return errors.As(err, &t) && t.Temporary()
}

func (a *Agent) ends() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.ending
}

func (a *Agent) begin(socket net.Conn) {
	c := newConn(a, socket)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ending {
		socket.Close()
		return
	}
	a.open[c] = struct{}{}
	a.running.Go(func() {
		c.serve()
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.open, c)
	})
}

// Shutdown takes no more connections, answers what has come, tells HAProxy that it leaves, and
// returns when all are closed, or when ctx ends.
func (a *Agent) Shutdown(ctx context.Context) error {
	a.end((*conn).drain)
	closed := make(chan struct{})
	go func() {
		a.running.Wait()
		close(closed)
	}()
	select {
	case <-closed:
		return nil
	case <-ctx.Done():
		_ = a.Close()
		<-closed
		return ctx.Err()
	}
}

// Close closes all connections. Who waits for a turn gives it back.
func (a *Agent) Close() error {
	a.cancel()
	a.end(func(c *conn) { c.socket.Close() })
	a.running.Wait()
	return nil
}

// end closes the listener, and does to each connection what how says.
func (a *Agent) end(how func(*conn)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ending = true
	if a.listener != nil {
		a.listener.Close()
	}
	for c := range a.open {
		how(c)
	}
}

// complain logs at most once a minute: whoever causes it can do so all the time.
func (a *Agent) complain(text string, about ...any) {
	now, last := time.Now().UnixNano(), a.complained.Load()
	if now-last >= int64(time.Minute) && a.complained.CompareAndSwap(last, now) {
		a.config.Logger.Warn(text, about...)
	}
}
