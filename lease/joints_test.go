package lease

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/seed"
	"github.com/sluicehq/sluice/memory"
)

// Takes of several leased keys, shadows, large costs and peeks among them, one by one and in lists: what
// passes is within each of the limits, and no refusal says that it would fit.
func TestJointsWithinLimits(t *testing.T) {
	for turn := range uint64(3) {
		synctest.Test(t, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed.Of(t), turn))
			ps := []*sluice.Plan{
				plan(t, sluice.Limit{Count: 2_000, Period: time.Second, Burst: 400}),
				plan(t, sluice.Limit{Algorithm: sluice.FixedWindow, Count: 1_200, Period: time.Second}),
				plan(t, sluice.Limit{Algorithm: sluice.SlidingWindowCounter, Count: 1_500, Period: time.Second}),
			}
			shared := &far{store: memory.New(), way: 300 * time.Microsecond, dice: newDice(t)}
			nodes := []*Store{New(shared), New(shared), New(shared)}
			events := make([][]event, 3)
			for range 12000 {
				s := nodes[rnd.IntN(3)]
				var calls []sluice.TakeCall
				for range 1 + rnd.IntN(2) {
					var c []sluice.Charge
					for i, p := range ps {
						if rnd.IntN(3) > 0 {
							x := sluice.Charge{Key: fmt.Sprint("k", i), Plan: p, Cost: int64(rnd.IntN(4)), Shadow: rnd.IntN(8) == 0, Consistency: sluice.Leased}
							if rnd.IntN(10) == 0 {
								x.Cost = int64(20 + rnd.IntN(100))
							}
							c = append(c, x)
						}
					}
					if len(c) > 0 {
						calls = append(calls, sluice.TakeCall{Charges: c, Receipts: make([]sluice.Receipt, len(c))})
					}
				}
				if len(calls) == 1 && rnd.IntN(2) == 0 {
					calls[0].Err = s.Take(t.Context(), calls[0].Charges, calls[0].Receipts)
				} else {
					s.TakeEach(t.Context(), calls)
				}
				for _, c := range calls {
					if c.Err != nil {
						t.Fatal(c.Err)
					}
					ok := sluice.Admitted(c.Charges, c.Receipts)
					for i, ch := range c.Charges {
						d := ch.Plan.Decide(ch.Cost, c.Receipts[i])
						if !d.Allowed && (d.RetryAfter <= 0 || d.Remaining >= ch.Cost) {
							t.Errorf("a refusal of %d says %+v", ch.Cost, d)
						}
						if ok && c.Receipts[i].Fits && ch.Cost > 0 {
							for n := range ps {
								if ps[n] == ch.Plan {
									events[n] = append(events[n], event{c.Receipts[i].Now, ch.Cost})
								}
							}
						}
					}
				}
				time.Sleep(time.Duration(rnd.IntN(1500)) * time.Microsecond)
			}
			for i, p := range ps {
				if over := replay(p, events[i]); over > 0 || len(events[i]) < 500 {
					t.Errorf("%v: over the limit by %d in %d charges", p.Limit, over, len(events[i]))
				}
			}
			for _, n := range nodes {
				n.Close()
			}
		})
	}
}
