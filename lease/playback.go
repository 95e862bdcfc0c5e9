package lease

import (
	"context"
	"hash/fnv"
	"io"
	"math"
	"time"

	"github.com/sluicehq/sluice"
)

// Clocked is a shared store at times of its caller's, in microseconds since the Unix epoch: a memory.Store is
// one.
type Clocked interface {
	TakeAt(ctx context.Context, now int64, charges []sluice.Charge, receipts []sluice.Receipt) error
}

// Playback is a [Store] for what has happened before: its clock is the caller's, the shared store answers in no
// time, and there are no goroutines and no timers. The same calls have the same outcome every time. It is for
// one goroutine, and for times that do not go back.
type Playback struct {
	store *Store
	clock playback
}

// playback is what stands in for time.
type playback struct {
	shared Clocked
	origin int64    // what is 0 by the clock of the Store
	now    int64    // by that clock
	due    int64    // when it looks at its pools, or 0
	begun  []func() // reservations that are under way
}

// NewPlayback returns a store that leases from shared.
func NewPlayback(shared Clocked) *Playback {
	p := &Playback{clock: playback{shared: shared}}
	p.store = New(&p.clock)
	p.store.played = &p.clock
	return p
}

// TakeAt is [Store.Take] at a time in microseconds since the Unix epoch.
func (p *Playback) TakeAt(ctx context.Context, now int64, charges []sluice.Charge, receipts []sluice.Receipt) error {
	p.Advance(now)
	err := p.store.Take(ctx, charges, receipts)
	p.clock.finish()
	return err
}

// Due returns the time up to which the store does nothing by itself.
func (p *Playback) Due() int64 {
	if p.clock.due == 0 {
		return math.MaxInt64
	}
	return p.clock.origin + p.clock.due
}

// Advance does what is due by a time: units that nobody asks for are given back.
func (p *Playback) Advance(now int64) {
	c := &p.clock
	if c.now == 0 {
		c.origin = now - 1000 // the clock of a Store is never 0
	}
	for p.Due() <= now {
		c.now, c.due = c.due, 0
		p.store.sweep()
	}
	c.now = now - c.origin
}

// finish has what was begun come to its end.
func (p *playback) finish() {
	for len(p.begun) > 0 {
		fetch := p.begun[0]
		p.begun = p.begun[1:]
		fetch()
	}
}

// What follows is [Shared].

func (p *playback) Take(ctx context.Context, charges []sluice.Charge, receipts []sluice.Receipt) error {
	return p.shared.TakeAt(ctx, p.origin+p.now, charges, receipts)
}

func (p *playback) TakeWithin(ctx context.Context, _ time.Duration, charges []sluice.Charge, receipts []sluice.Receipt) error {
	return p.Take(ctx, charges, receipts)
}

func (p *playback) TakeEach(ctx context.Context, calls []sluice.TakeCall) {
	for i := range calls {
		calls[i].Err = p.Take(ctx, calls[i].Charges, calls[i].Receipts)
	}
}

func (p *playback) TakeEachWithin(ctx context.Context, _ time.Duration, calls []sluice.TakeCall) {
	p.TakeEach(ctx, calls)
}

func (*playback) Shard(string) int { return 0 }

func (*playback) Heartbeat(context.Context, string) (int, error) { return 1, nil }

// hashed is a hash of a key that is the same in every run.
func hashed(key string) uint64 {
	fnv := fnv.New64a()
	_, _ = io.WriteString(fnv, key)
	// The end of a key changes few bits of FNV.
	h := fnv.Sum64()
	h ^= h >> 32
	h *= 0xd6e8feb86659fd93
	return h ^ h>>32
}
