package lease

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/sluicehq/sluice"
)

// settable is a shared store of one state, whose clock can be set.
type settable struct {
	far
	mu     sync.Mutex
	behind int64 // µs
	state  sluice.State
	used   int64
}

func (f *settable) Take(ctx context.Context, charges []sluice.Charge, receipts []sluice.Receipt) error {
	return f.TakeWithin(ctx, time.Hour, charges, receipts)
}

func (f *settable) TakeWithin(_ context.Context, wait time.Duration, charges []sluice.Charge, receipts []sluice.Receipt) error {
	if wait == 0 {
		return late{}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now().UnixMicro() - f.behind
	f.state = charges[0].Plan.Step(f.state, now, charges[0].CostAt(now), &receipts[0])
	f.used = receipts[0].Used
	return nil
}

// While the server's clock, which was set back, is in the window before the one that is counted, nothing
// can be leased: the store decides, and is charged what is asked for and no more.
func TestServerSetBack(t *testing.T) {
	for _, a := range []sluice.Algorithm{sluice.FixedWindow, sluice.SlidingWindowCounter} {
		p := plan(t, sluice.Limit{Algorithm: a, Count: 1_000_000, Period: 10 * time.Minute})
		shared := &settable{}
		s := New(shared)
		charge := []sluice.Charge{{Key: "k", Plan: p, Cost: 1, Consistency: sluice.Leased}}
		var r [1]sluice.Receipt
		take := func() {
			t.Helper()
			if err := s.Take(t.Context(), charge, r[:]); err != nil || !r[0].Fits {
				t.Fatalf("%v: %v, %+v", a, err, r)
			}
		}
		take()
		shared.mu.Lock()
		number, _, _ := p.WindowAt(r[0].Now)
		began := number * p.Limit.Period.Microseconds()
		shared.behind = time.Now().UnixMicro() - began + time.Minute.Microseconds()
		shared.mu.Unlock()
		for range 300 {
			if take(); r[0].Origin != sluice.ByStore {
				t.Fatalf("%v: %+v", a, r)
			}
		}
		s.Close()
		if shared.used != 301 {
			t.Errorf("%v: %d units are counted, of 301 that were admitted", a, shared.used)
		}
	}
}
