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

// Lazy is a shared store that may not be open yet: see [OpenLater].
type Lazy struct {
	open     func(context.Context) (Shared, error)
	store    atomic.Pointer[Shared] // nil until open has succeeded
	reason   atomic.Pointer[uncharged]
	listener atomic.Pointer[func(*sluice.Charge, *sluice.Receipt)] // see ObserveCalls
	cancel   context.CancelFunc
	running  sync.WaitGroup
}

const retryOpenEvery = time.Second

// OpenLater returns a shared store for [New] that is opened in the background, so that a service can start without
// it. open is called once a second until it succeeds. Until then, every Take fails at once with the last error of
// open. Afterwards, all calls go to the store that open returned.
func OpenLater(open func(context.Context) (Shared, error)) *Lazy {
	ctx, cancel := context.WithCancel(context.Background())
	p := &Lazy{open: open, cancel: cancel}
	p.reason.Store(notOpen(errors.New("opening it has not finished yet")))
	p.running.Go(func() { p.try(ctx) })
	return p
}

func (p *Lazy) try(ctx context.Context) {
	for ctx.Err() == nil {
		store, err := p.open(ctx)
		if err == nil {
			p.store.Store(&store)
			p.passOn()
			return
		}
		p.reason.Store(notOpen(err))
		pause(ctx, jittered(retryOpenEvery))
	}
}

// Close stops the attempts to open the store. If the store has been opened and is an io.Closer, Close closes it.
func (p *Lazy) Close() error {
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
func (p *Lazy) Ready() bool { return p.store.Load() != nil }

// TakeWithin implements [Shared].
func (p *Lazy) TakeWithin(ctx context.Context, wait time.Duration, charges []sluice.Charge, receipts []sluice.Receipt) error {
	if s := p.store.Load(); s != nil {
		return (*s).TakeWithin(ctx, wait, charges, receipts)
	}
	return p.reason.Load()
}

// TakeEachWithin implements [SharedEach].
func (p *Lazy) TakeEachWithin(ctx context.Context, wait time.Duration, calls []sluice.TakeCall) {
	if s := p.store.Load(); s != nil {
		takeEachWithin(ctx, *s, wait, calls)
		return
	}
	for i := range calls {
		calls[i].Err = p.reason.Load()
	}
}

// ObserveCalls implements [Observable].
func (p *Lazy) ObserveCalls(listener func(c *sluice.Charge, r *sluice.Receipt)) {
	p.listener.Store(&listener)
	p.passOn()
}

// passOn passes the listener to the store, if the store is open.
func (p *Lazy) passOn() {
	s, listener := p.store.Load(), p.listener.Load()
	if s != nil && listener != nil {
		observeCalls(*s, *listener)
	}
}

// Shard implements [Shared].
func (p *Lazy) Shard(key string) int {
	if s := p.store.Load(); s != nil {
		return (*s).Shard(key)
	}
	return 0
}

// Heartbeat implements [Shared].
func (p *Lazy) Heartbeat(ctx context.Context, id string) (instances int, err error) {
	if s := p.store.Load(); s != nil {
		return (*s).Heartbeat(ctx, id)
	}
	return 0, p.reason.Load()
}

// notOpen returns the error of calls while the store cannot be opened.
func notOpen(err error) *uncharged {
	return &uncharged{fmt.Errorf("failover: the shared store is not open: %w", err)}
}
