package policy

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/plantest"
	"github.com/sluicehq/sluice/storetest"
)

// A rule with several limits decides as several rules with one limit each. These are decided over the store that counts
// in rational numbers.
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
				t.Errorf("premise: only %v have denied", refusedBy)
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

// A log of more than 1024 units denies the fraction of even traffic that docs/policy.md states, and admits a burst of
// all units again after 33/32 of the period.
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
				t.Errorf("%.4f of the requests are denied, want %v", part, want)
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
