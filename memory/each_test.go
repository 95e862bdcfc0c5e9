package memory

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/plantest"
)

// Concurrent lists with the same keys get all available units, and no more.
func TestEachAtOnce(t *testing.T) {
	const keys, size, callers = 5, 1000, 8
	p := plantest.Of(t, sluice.Limit{Count: 1, Period: 100 * time.Hour, Burst: size})
	for name, s := range map[string]*Store{"few keys": New(), "many": NewFilled(t)} {
		var admitted [keys]atomic.Int64
		var all sync.WaitGroup
		for caller := range callers {
			all.Go(func() {
				for range 10 {
					calls := make([]sluice.TakeCall, 3*atOnce+1)
					for i := range calls {
						calls[i].Charges = []sluice.Charge{{Key: fmt.Sprint("key ", (caller+i)%keys), Plan: p, Cost: 1 + int64(i%2)}}
						calls[i].Receipts = make([]sluice.Receipt, 1)
					}
					s.TakeEach(t.Context(), calls)
					for i, c := range calls {
						if c.Err != nil {
							t.Error(c.Err)
						}
						if c.Receipts[0].Fits {
							admitted[(caller+i)%keys].Add(c.Charges[0].Cost)
						}
					}
				}
			})
		}
		all.Wait()
		for i := range admitted {
			if n := admitted[i].Load(); n != size {
				t.Errorf("%s: key %d: %d units were admitted, want %d", name, i, n, size)
			}
		}
	}
}

// In a list, times never go back from one receipt to the next, even after denied charges.
func TestEachTime(t *testing.T) {
	narrow := plantest.Of(t, sluice.Limit{Count: 1, Period: time.Hour})
	wide := plantest.Of(t, sluice.Limit{Count: 1_000_000, Period: time.Hour})
	s := New()
	calls := make([]sluice.TakeCall, 4*atOnce)
	for i := range calls {
		c := sluice.Charge{Key: "narrow", Plan: narrow, Cost: 1}
		if i%4 == 0 {
			c = sluice.Charge{Key: fmt.Sprint("wide ", i), Plan: wide, Cost: int64(i % 3)}
		}
		calls[i] = sluice.TakeCall{Charges: []sluice.Charge{c}, Receipts: make([]sluice.Receipt, 1)}
	}
	for range 100 {
		last := s.now()
		s.TakeEach(t.Context(), calls)
		for i, c := range calls {
			now := c.Receipts[0].Now
			if c.Err != nil || now < last {
				t.Fatalf("Take %d, of %d units: %d after %d, %v", i, c.Charges[0].Cost, now, last, c.Err)
			}
			last = now
		}
		if now := s.now(); last > now {
			t.Fatalf("a receipt has the time %d, and the store has %d", last, now)
		}
	}
}
