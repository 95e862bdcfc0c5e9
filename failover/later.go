package failover

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluicehq/sluice"
)

// Pending is a shared store that may not be there yet: see [Later].
type Pending struct {
	open    func(context.Context) (Shared, error)
	store   atomic.Pointer[Shared] // nil until open has succeeded
	last    atomic.Pointer[pendingError]
	cancel  context.CancelFunc
	running sync.WaitGroup
}

const openEvery = time.Second

// Later returns a shared store for [New] that is opened in the background, so that
// a service can start without it. Until open has succeeded, and it is tried once a
// second, every Take fails at once with what open has said. Then everything is passed on
// to the store that it returned.
func Later(open func(context.Context) (Shared, error)) *Pending {
	ctx, cancel := context.WithCancel(context.Background())
	p := &Pending{open: open, cancel: cancel}
	p.last.Store(&pendingError{errors.New("it is being opened")})
	p.running.Go(func() { p.try(ctx) })
	return p
}

func (p *Pending) try(ctx context.Context) {
	for ctx.Err() == nil {
		store, err := p.open(ctx)
		if err == nil {
			p.store.Store(&store)
			return
		}
		p.last.Store(&pendingError{err})
		pause(ctx, jittered(openEvery))
	}
}

// Close ends the attempts, and closes what was opened if it can be closed.
func (p *Pending) Close() error {
	p.cancel()
	p.running.Wait()
	if s := p.store.Load(); s != nil {
		if c, ok := (*s).(io.Closer); ok {
			return c.Close()
		}
	}
	return nil
}

// Ready reports whether the store has been opened.
func (p *Pending) Ready() bool { return p.store.Load() != nil }

// TakeWithin implements [Shared].
func (p *Pending) TakeWithin(ctx context.Context, wait time.Duration, charges []sluice.Charge, receipts []sluice.Receipt) error {
	if s := p.store.Load(); s != nil {
		return (*s).TakeWithin(ctx, wait, charges, receipts)
	}
	return p.last.Load()
}

// Shard implements [Shared].
func (p *Pending) Shard(key string) int {
	if s := p.store.Load(); s != nil {
		return (*s).Shard(key)
	}
	return 0
}

// Heartbeat implements [Shared].
func (p *Pending) Heartbeat(ctx context.Context, id string) (instances int, err error) {
	if s := p.store.Load(); s != nil {
		return (*s).Heartbeat(ctx, id)
	}
	return 0, p.last.Load()
}

// pendingError is why a store is not there yet.
type pendingError struct{ err error }

func (e *pendingError) Error() string {
	return fmt.Sprintf("failover: the shared store is not open: %v", e.err)
}
func (e *pendingError) Unwrap() error    { return e.err }
func (e *pendingError) NotCharged() bool { return true }
