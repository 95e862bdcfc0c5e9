package synced_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/synced"
)

// Two processes have requests, for an hour, that turn out to cost four times what was estimated. What they owe
// is told to each other and passes once: in the long run no more than the limit does.
func TestOwed(t *testing.T) {
	for _, a := range []sluice.Algorithm{sluice.TokenBucket, sluice.FixedWindow, sluice.SlidingWindowCounter} {
		t.Run(a.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const limit, estimate, real, callers = 5000, 1000, 4000, 2
				p, err := plan(t, "5000/minute", a).WithMost(limit + 64*real)
				if err != nil {
					t.Fatal(err)
				}
				sv := newServer(4*time.Millisecond, rand.New(rand.NewPCG(1, 2)))
				f := newFleet(callers, sv)
				var mu sync.Mutex
				passed, began := int64(0), time.Now()
				var all sync.WaitGroup
				for i := range callers {
					all.Go(func() {
						for time.Since(began) < time.Hour {
							r, err := f.take(i, "k", p, estimate)
							if err != nil {
								t.Error(err)
								return
							}
							if !r.Fits {
								time.Sleep(max(time.Millisecond, p.Decide(estimate, r).RetryAfter))
								continue
							}
							time.Sleep(30 * time.Millisecond)
							owe := [1]sluice.Charge{{Key: "k", Plan: p, Cost: real - estimate, Owe: true, Shadow: true, Consistency: sluice.Synced}}
							var o [1]sluice.Receipt
							if err := f.stores[i].TakeWithin(context.Background(), time.Second, owe[:], o[:]); err != nil || o[0].Cut > 0 {
								t.Errorf("%+v, %v", o[0], err)
							}
							mu.Lock()
							passed += real
							mu.Unlock()
						}
					})
				}
				all.Wait()
				f.close()
				// A window forgets at its end: the limit, an overrun of each caller, and what the other one has not heard of.
				most := 60 * (limit + callers*(real-estimate) + synced.Excess(p, callers))
				if a == sluice.TokenBucket {
					most = 60*limit + limit + callers*(real-estimate) + synced.Excess(p, callers)
				}
				t.Logf("%.3f of the limit", float64(passed)/(60*limit))
				if passed > most || passed < 60*limit*3/4 {
					t.Errorf("%d passed in an hour, want %d at most", passed, most)
				}
				if a == sluice.TokenBucket && sv.counted() != passed {
					t.Errorf("%d passed, and %d were told", passed, sv.counted())
				}
			})
		})
	}
}
