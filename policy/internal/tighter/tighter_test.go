package tighter

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/plantest"
	"github.com/sluicehq/sluice/internal/seed"
	"github.com/sluicehq/sluice/storetest"
)

// edges returns a time at which two limits may differ: near an edge of a window of one of them, or any later time.
func edges(r *rand.Rand, now int64, plans ...*sluice.Plan) int64 {
	p := plans[r.IntN(len(plans))]
	period := p.Limit.Period.Microseconds()
	switch r.IntN(5) {
	case 0:
		return now
	case 1:
		return max(now, (now/period+1)*period-r.Int64N(3))
	case 2:
		return now + period - 1 + r.Int64N(3)
	case 3:
		return now + r.Int64N(1+period/max(1, p.Limit.Count))
	}
	return now + r.Int64N(2*period)
}

// A plan that is reported as never tighter allows every request that the other plan allows.
func TestThan(t *testing.T) {
	t.Parallel()
	seed := seed.Of(t)
	r := rand.New(rand.NewPCG(seed, 3))
	periods := []time.Duration{time.Millisecond, 7 * time.Millisecond, time.Second, 1500 * time.Millisecond, time.Minute, time.Hour, 24 * time.Hour, 0}
	idle := make(map[string]int)
	for range 1500 {
		var plans []*sluice.Plan
		algorithm := sluice.Algorithms()[r.IntN(7)]
		for len(plans) < 2 {
			l := sluice.Limit{Count: 1 + r.Int64N([]int64{4, 40, 4000}[r.IntN(3)]), Period: periods[r.IntN(8)], Algorithm: algorithm}
			if l.Period == 0 {
				l.Algorithm, l.MonthDay = sluice.FixedWindow, 1+r.IntN(31)
			} else if l.Algorithm <= sluice.GCRA && r.IntN(2) == 0 {
				l.Burst = 1 + r.Int64N(9)
			}
			p := plantest.Of(t, l)
			if len(plans) == 0 || plans[0].Fingerprint != p.Fingerprint {
				plans = append(plans, p)
			}
		}
		if !Than(plans[0], plans[1]) {
			continue
		}
		idle[fmt.Sprint(plans[0].Limit.Algorithm, plans[1].Limit.Algorithm)]++
		var counts storetest.Model
		charges := []sluice.Charge{{Key: "k", Plan: plans[0]}, {Key: "k", Plan: plans[1]}}
		receipts := make([]sluice.Receipt, 2)
		now := int64(1e15) + r.Int64N(1e13)
		for range 60 {
			now = edges(r, now, plans...)
			for _, cost := range []int64{1 + r.Int64N(plans[0].Capacity), plans[0].Capacity / 2, 1, 1} {
				charges[0].Cost, charges[1].Cost = max(1, cost), max(1, cost)
				if err := counts.TakeAt(t.Context(), now, charges, receipts); err != nil {
					t.Fatal(err)
				}
				if receipts[0].Fits && !receipts[1].Fits {
					t.Fatalf("seed %d: %v of %v denies %d at %d, and %v does not", seed, plans[1].Limit, algorithm, cost, now, plans[0].Limit)
				}
			}
		}
	}
	if len(idle) < 7 {
		t.Errorf("premise, seed %d: only %v", seed, idle)
	}
	t.Log(idle)
}
