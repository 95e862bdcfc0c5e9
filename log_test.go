package sluice_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/storetest"
)

// TestLogHoldsOnToLittle has logs of many lengths expire for long, and holds that they
// answer as the definition says, in 32 bytes for each unit of the limit at most.
func TestLogHoldsOnToLittle(t *testing.T) {
	for _, count := range []int64{1, 2, 7, 100, 256, 257, 300, 1000, 2500} {
		p := plan(t, sluice.Limit{Count: count, Period: time.Hour, Algorithm: sluice.SlidingWindowLog})
		rng := rand.New(rand.NewPCG(5, uint64(count)))
		var log sluice.Log
		var model storetest.Model
		now, gap := int64(1_700_000_000_000_000), p.Limit.Period.Microseconds()/count
		admitted := int64(0)
		for n := range 10*count + 100 {
			cost := int64(1)
			now += gap + rng.Int64N(5) - 2
			switch rng.IntN(50) {
			case 0:
				cost = -rng.Int64N(4)
			case 1:
				now -= gap / 2
			case 2:
				now += 20 * gap
			case 3:
				if rng.Int64N(count) < 10 {
					cost = sluice.All
				}
			}
			var want [1]sluice.Receipt
			if err := model.TakeAt(t.Context(), now, []sluice.Charge{{Key: "k", Plan: p, Cost: cost}}, want[:]); err != nil {
				t.Fatal(err)
			}
			got := log.Step(p, now, cost)
			if got != want[0] {
				t.Fatalf("count %d, step %d, cost %d: %+v, want %+v", count, n, cost, got, want[0])
			}
			if got.Fits && cost > 0 {
				admitted++
			}
			if got.Fits && cost != 0 && (log.EmptyAt(p) == 0) != (got.Used == 0) {
				t.Fatalf("count %d, step %d, cost %d: empty at %d, with %d used", count, n, cost, log.EmptyAt(p), got.Used)
			}
			if log.Bytes() > 32*int(count) {
				t.Fatalf("count %d, step %d: the log holds on to %d bytes, want 32 for each unit at most", count, n, log.Bytes())
			}
		}
		if admitted < 5*count {
			t.Errorf("premise: count %d: %d units were admitted, which is too few for the log to come round", count, admitted)
		}
	}
}
