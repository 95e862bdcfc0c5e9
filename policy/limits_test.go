package policy

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/plantest"
	"github.com/sluicehq/sluice/internal/seed"
	"github.com/sluicehq/sluice/storetest"
)

// A rule with several limits decides as rules of one limit do, each under a name of its own,
// and that over the store that counts in rational numbers.
func TestLimitsAsRules(t *testing.T) {
	t.Parallel()
	for _, algorithm := range sluice.Algorithms() {
		virtually(t, algorithm.String(), func(t *testing.T) {
			one := fmt.Sprintf(`
rules:
  - {name: api, key: [client_ip], limits: [3/second, 14/7s, 90/minute], algorithm: %[1]s, cost: {header: C, max: 3}}
  - {name: all, limit: 150/minute}`, algorithm)
			many := fmt.Sprintf(`
rules:
  - {name: api, key: [client_ip], limit: 3/second, algorithm: %[1]s, cost: {header: C, max: 3}}
  - {name: api7, key: [client_ip], limit: 14/7s, algorithm: %[1]s, cost: {header: C, max: 3}}
  - {name: api60, key: [client_ip], limit: 90/minute, algorithm: %[1]s, cost: {header: C, max: 3}}
  - {name: all, limit: 150/minute}`, algorithm)
			a, b := engine(t, one), NewEngine(new(storetest.Model), parse(t, many))
			const seed = 7
			rng := rand.New(rand.NewPCG(seed, seed))
			refusedBy := make(map[string]int)
			for step := range 2500 {
				r := request("GET", "/", fmt.Sprintf("192.0.2.%d", rng.IntN(3)), fmt.Sprintf("C: %d", 1+rng.IntN(3)))
				x, y := a.Decide(t.Context(), r), b.Decide(t.Context(), r)
				if x.Allowed != y.Allowed || x.RetryAfter != y.RetryAfter || x.Delay != y.Delay || len(x.Results) != len(y.Results) {
					t.Fatalf("seed %d, step %d: %+v\nwant %+v", seed, step, x, y)
				}
				for i := range x.Results {
					if x.Results[i].Decision != y.Results[i].Decision || x.Results[i].Cost != y.Results[i].Cost {
						t.Fatalf("seed %d, step %d, result %d: %+v\nwant %+v", seed, step, i, x.Results[i], y.Results[i])
					}
					if !x.Results[i].Allowed {
						refusedBy[y.Results[i].Rule]++
					}
				}
				time.Sleep(time.Duration(rng.ExpFloat64() * float64(150*time.Millisecond)))
			}
			if len(refusedBy) < 3 {
				t.Errorf("premise: only %v have refused", refusedBy)
			}
		})
	}
}

func TestLimitNames(t *testing.T) {
	t.Parallel()
	for _, row := range names(t, "names of several limits") {
		var plans []*sluice.Plan
		for text := range strings.SplitSeq(row.In, ", ") {
			l := must(sluice.ParseLimit(text))
			plans = append(plans, plantest.Of(t, l))
		}
		if got := strings.Join(LimitNames("r", plans), ", "); got != row.Want {
			t.Errorf("%s: %s, want %s", row.In, got, row.Want)
		}
	}
}

// A log of more than 1024 units refuses the part of even traffic that docs/policy.md names, and admits a burst of all
// units again after 33/32 of the period.
func TestCoarseLog(t *testing.T) {
	t.Parallel()
	const count, period = 1100, 32 * time.Second
	rules := "rules: [{name: a, limit: 1100/32s, algorithm: sliding_window_log, cost: {header: C, max: 1100}}]"
	for percent, want := range map[int]float64{97: 0, 98: 0.01, 100: 0.03} {
		virtually(t, fmt.Sprintf("%d percent", percent), func(t *testing.T) {
			e, offered, refused := engine(t, rules), count*percent/100, 0
			for range 20 * offered {
				if d := e.Decide(t.Context(), get("/")); !d.Allowed {
					refused++
				}
				time.Sleep(period / time.Duration(offered))
			}
			if part := float64(refused) / float64(20*offered); part < want-0.005 || part > want+0.005 {
				t.Errorf("%.4f of the requests are refused, want %v", part, want)
			}
		})
	}
	virtually(t, "all at once", func(t *testing.T) {
		e, all := engine(t, rules), get("/", "C: 1100")
		pass(t, e, all)
		time.Sleep(period*33/32 - time.Microsecond)
		if d := e.Decide(t.Context(), all); d.Allowed {
			t.Error("the burst is admitted early")
		}
		time.Sleep(time.Microsecond)
		pass(t, e, all)
	})
}

// edges returns a time at which two limits may differ: about the edge of a window of either, or any.
func edges(r dice, now int64, plans ...*sluice.Plan) int64 {
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

// What is said never to refuse never does, where the other lets requests pass, by the definitions.
func TestIdleIsIdle(t *testing.T) {
	t.Parallel()
	seed := seed.Of(t)
	r := dice{rand.New(rand.NewPCG(seed, 3))}
	periods := []time.Duration{time.Millisecond, 7 * time.Millisecond, time.Second, 1500 * time.Millisecond, time.Minute, time.Hour, 24 * time.Hour, 0}
	idle := make(map[string]int)
	for range 1500 {
		var plans []*sluice.Plan
		algorithm := sluice.Algorithms()[r.IntN(7)]
		for len(plans) < 2 {
			l := sluice.Limit{Count: 1 + r.Int64N(pick(r, int64(4), 40, 4000)), Period: periods[r.IntN(8)], Algorithm: algorithm}
			if l.Period == 0 {
				l.Algorithm, l.MonthDay = sluice.FixedWindow, 1+r.IntN(31)
			} else if l.Algorithm <= sluice.GCRA && r.one(2) {
				l.Burst = 1 + r.Int64N(9)
			}
			p := plantest.Of(t, l)
			if len(plans) == 0 || plans[0].Fingerprint != p.Fingerprint {
				plans = append(plans, p)
			}
		}
		if !isTighter(plans[0], plans[1]) {
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
				ok(t, counts.TakeAt(t.Context(), now, charges, receipts))
				if receipts[0].Fits && !receipts[1].Fits {
					t.Fatalf("seed %d: %v of %v refuses %d at %d, and %v does not", seed, plans[1].Limit, algorithm, cost, now, plans[0].Limit)
				}
			}
		}
	}
	if len(idle) < 7 {
		t.Errorf("premise, seed %d: only of %v", seed, idle)
	}
	t.Log(idle)
}
