package memory

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/plantest"
)

// TestPackedStates holds that a state tells the same after it was packed, whatever the
// clock does between.
func TestPackedStates(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(5, 5))
	stuck := map[string]int{}
	for range 100_000 {
		l := sluice.Limit{
			Count:     1 + rng.Int64N(1<<rng.IntN(40)),
			Period:    time.Duration(1+rng.Int64N(1<<rng.IntN(42))) * time.Microsecond,
			Algorithm: sluice.Algorithms()[rng.IntN(5)],
		}
		length := l.Period.Microseconds()
		if l.Algorithm == sluice.FixedWindow && rng.IntN(2) == 0 {
			l.Period, l.MonthDay, length = 0, 1+rng.IntN(31), 31*24*time.Hour.Microseconds()
		}
		p, err := sluice.NewPlan(l)
		if err != nil {
			continue
		}
		layout := newLayout(p, 0)
		now, later := rng.Int64N(maxTime), rng.Int64N(maxTime)
		if rng.IntN(2) == 0 {
			later = min(max(0, now+rng.Int64N(2*length+1000)-length), maxTime-1)
		}
		var r, want, got sluice.Receipt
		state := p.Step(sluice.State{}, now, 1+rng.Int64N(p.Capacity), &r)
		state = p.Step(state, min(now+rng.Int64N(length+10), maxTime-1), 1, &r)
		word, ok := layout.pack(state)
		if !ok {
			continue
		}
		if word == 0 {
			t.Fatalf("%v: %+v is packed as a free cell", p.Limit, state)
		}
		stuck[l.Algorithm.String()]++
		if l.MonthDay > 0 {
			stuck["month"]++
		}
		cost := rng.Int64N(2*p.Capacity+1) - p.Capacity/2
		p.Step(state, later, cost, &want)
		p.Step(layout.unpack(word, later), later, cost, &got)
		if got != want {
			t.Fatalf("%v: %+v of %d, at %d: %+v is %+v after packing", p.Limit, state, now, later, want, got)
		}
	}
	if stuck["month"] < 1500 {
		t.Errorf("only %d states of months were packed", stuck["month"])
	}
	for _, a := range sluice.Algorithms()[:5] {
		if stuck[a.String()] < 1500 {
			t.Errorf("only %d states of %v were packed", stuck[a.String()], a)
		}
	}
}

// TestCommonLimitsPack holds that the limits of ordinary life take 16 bytes.
func TestCommonLimitsPack(t *testing.T) {
	t.Parallel()
	for _, a := range sluice.Algorithms()[:5] {
		for _, limit := range []string{"1/second", "100/minute", "7/second", "999/minute", "5000/hour", "1000000/day", "30000/second"} {
			p := plantest.As(t, a, limit)
			if !newLayout(p, 0).fits {
				t.Errorf("%s %v does not fit a cell", limit, a)
			}
			owing, err := p.WithMost(200 * p.Capacity)
			if err != nil || !newLayout(owing, 0).fits {
				t.Errorf("%s %v that may owe 199 times as much does not fit a cell: %v", limit, a, err)
			}
		}
	}
	p, err := sluice.NewPlan(sluice.Limit{Count: 1e12, MonthDay: 31, Algorithm: sluice.FixedWindow})
	if err != nil || !newLayout(p, 0).fits {
		t.Errorf("a month does not fit a cell: %v", err)
	}
	if p := plantest.Plan(t, "9973/23935h13m burst 10"); newLayout(p, 0).fits {
		t.Errorf("the odd bucket of the tests fits a cell")
	}
}
