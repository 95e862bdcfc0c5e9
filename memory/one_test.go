package memory

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/plantest"
	"github.com/sluicehq/sluice/internal/seed"
)

// TakeOne returns the same receipts as Take, for states in cells and in the overflow.
func TestTakeOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		plans := []*sluice.Plan{
			plantest.Of(t, sluice.Limit{Count: 5, Period: time.Second}),
			plantest.Of(t, sluice.Limit{Count: 5, Period: time.Second, Algorithm: sluice.FixedWindow}),
			plantest.Of(t, sluice.Limit{Count: 5, Period: time.Second, Algorithm: sluice.SlidingWindowLog}),
		}
		one, list, refused, r := New(), New(), 0, rand.New(rand.NewPCG(seed.Of(t), 0))
		for step := range 2000 {
			c := sluice.Charge{Key: fmt.Sprint("key ", r.IntN(3)), Plan: plans[r.IntN(len(plans))], Cost: r.Int64N(5) - 1}
			got, err := one.TakeOne(t.Context(), c.Key, c.Plan, c.Cost)
			if err != nil {
				t.Fatal(err)
			}
			want := make([]sluice.Receipt, 1)
			if err := list.Take(t.Context(), []sluice.Charge{c}, want); err != nil {
				t.Fatal(err)
			}
			if got != want[0] {
				t.Fatalf("step %d, cost %d of %v: %+v, and Take returns %+v", step, c.Cost, c.Plan, got, want[0])
			}
			if !got.Fits {
				refused++
			}
			time.Sleep(time.Duration(r.IntN(200)) * time.Millisecond)
		}
		if refused == 0 {
			t.Error("premise: nothing was denied")
		}
		if _, err := one.TakeOne(t.Context(), "key", nil, 1); err == nil {
			t.Error("a charge without a plan was taken")
		}
	})
}
