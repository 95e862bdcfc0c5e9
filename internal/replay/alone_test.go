package replay

import (
	"testing"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/plantest"
)

// N instances that count each for itself let N times the limit pass.
func TestAlone(t *testing.T) {
	t.Parallel()
	plan := plantest.Plan(t, "100/day as fixed_window")
	for _, nodes := range []int{1, 2, 5} {
		a, passed := newAlone(nodes, 8<<20, newStore), 0
		for i := range int64(2000) {
			var r [1]sluice.Receipt
			if err := a.TakeAt(t.Context(), i*1_000_000, []sluice.Charge{{Key: "k", Plan: plan, Cost: 1}}, r[:]); err != nil {
				t.Fatal(err)
			}
			if r[0].Fits {
				passed++
			}
		}
		if passed != 100*nodes {
			t.Errorf("%d instances let %d pass, want %d", nodes, passed, 100*nodes)
		}
	}
}
