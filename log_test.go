package sluice_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/storetest"
)

// TestLogHoldsOnToLittle has logs of many lengths expire for long, and holds that they
// answer as the definition says, and take no more memory than they should: 4 bytes for each
// unit, or 32 if times are exact, or 144 whatever the limit.
func TestLogHoldsOnToLittle(t *testing.T) {
	for _, test := range []struct {
		algorithm           sluice.Algorithm
		counts              []int64
		bytes, bytesPerUnit int
	}{
		{sluice.SlidingWindowLog, []int64{1, 2, 7, 100, 256, 257, 300, 1000, 2500, 4096}, 48, 4},
		{sluice.SlidingWindowLog, []int64{4097, 6000}, 144, 0},
		{sluice.SlidingWindowLogExact, []int64{1, 2, 7, 100, 256, 257, 300, 1000, 2500}, 32, 32},
	} {
		for _, count := range test.counts {
			p := plan(t, sluice.Limit{Count: count, Period: time.Hour, Algorithm: test.algorithm})
			testLogHoldsOnToLittle(t, p, test.bytes+test.bytesPerUnit*int(count))
		}
	}
}

func testLogHoldsOnToLittle(t *testing.T, p *sluice.Plan, most int) {
	count := p.Capacity
	rng := rand.New(rand.NewPCG(5, uint64(count)))
	var log sluice.Log
	var model storetest.Model
	now, gap := int64(1_700_000_000_000_000), p.Limit.Period.Microseconds()/count
	admitted := int64(0)
	for n := range 10*min(count, 2500) + 100 {
		cost := 1 + count/2500
		now += gap*cost + rng.Int64N(5) - 2
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
			t.Fatalf("%v, step %d, cost %d: %+v, want %+v", p.Limit, n, cost, got, want[0])
		}
		if got.Fits && cost > 0 {
			admitted += cost
		}
		if got.Fits && cost != 0 && (log.EmptyAt(p) == 0) != (got.Used == 0) {
			t.Fatalf("%v, step %d, cost %d: empty at %d, with %d used", p.Limit, n, cost, log.EmptyAt(p), got.Used)
		}
		if log.Bytes() > most {
			t.Fatalf("%v, step %d: the log holds on to %d bytes, want %d at most", p.Limit, n, log.Bytes(), most)
		}
	}
	if admitted < 5*count {
		t.Errorf("premise: %v: %d units were admitted, which is too few for the log to come round", p.Limit, admitted)
	}
}
