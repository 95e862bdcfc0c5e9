package lease

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/memory"
)

// Two processes lease a key whose requests turn out to cost four times what was estimated. What is owed goes to
// the store: in the long run no more passes than the limit allows, and what is leased when a debt begins.
func TestOwed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const perSecond, real, callers = 400, 4, 2
		p, err := plan(t, sluice.Limit{Algorithm: sluice.TokenBucket, Count: perSecond, Period: time.Second, Burst: perSecond}).WithMost(perSecond + 64*perSecond)
		if err != nil {
			t.Fatal(err)
		}
		shared := &far{store: memory.New(), dice: newDice(t)}
		began := time.Now()
		var mu sync.Mutex
		passed, leased := 0, 0
		var all sync.WaitGroup
		var stores []*Store
		for range callers {
			s := New(shared)
			stores = append(stores, s)
			all.Go(func() {
				owed := int64(0)
				for n := 0; time.Since(began) < time.Minute; n++ {
					charge := [1]sluice.Charge{{Key: "k", Plan: p, Cost: 1, Consistency: sluice.Leased}}
					var r [1]sluice.Receipt
					if err := s.Take(t.Context(), charge[:], r[:]); err != nil {
						t.Error(err)
						return
					}
					if !r[0].Fits {
						time.Sleep(max(time.Millisecond, p.Decide(1, r[0]).RetryAfter))
						continue
					}
					mu.Lock()
					passed++
					if r[0].Origin == sluice.ByLease {
						leased++
					}
					mu.Unlock()
					// Settled by the hundred, so that there is a lease in between.
					if owed += real - 1; n%100 == 0 {
						charge[0].Cost, charge[0].Owe, charge[0].Shadow = owed, true, true
						if err := s.Take(t.Context(), charge[:], r[:]); err != nil || r[0].Cut > 0 || r[0].Origin != sluice.ByStore {
							t.Errorf("%+v, %v", r[0], err)
						}
						if owed = 0; r[0].Used > p.Size && s.find(s.hash(&charge[0]), &charge[0]) != nil {
							t.Error("the key owes, and this process has units of it")
						}
					}
					time.Sleep(500 * time.Microsecond)
				}
			})
		}
		all.Wait()
		for _, s := range stores {
			s.Close()
		}
		// The last hundred of each are not settled, a hundred of each pass before they are, and what is leased.
		most := perSecond*60 + perSecond + callers*2*100*real + callers*perSecond/4*real
		t.Logf("%d passed, %d of them leased: %.3f of the limit", passed, leased, float64(passed*real)/(perSecond*60))
		if passed*real > most || passed*real < perSecond*60*9/10 || leased < passed/10 {
			t.Errorf("%d units passed, %d leased, want %d at most", passed*real, leased, most)
		}
	})
}
