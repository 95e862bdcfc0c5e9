package policy

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// For an hour, one client sends requests one after the other, which cost four times their estimates. What passes stays
// within the bound of the algorithm.
func TestOverrun(t *testing.T) {
	t.Parallel()
	const limit, estimate, real = 5000, 1000, 4000
	for algorithm, most := range map[string]struct{ hour, window int64 }{
		// Buckets: the units that drain, and once the burst and the overrun of the request under way.
		"token_bucket":           {limit*60 + limit + real - estimate, 0},
		"gcra":                   {limit*60 + limit + real - estimate, 0},
		"sliding_window_counter": {limit * 60, 0},
		// Windows and logs: the limit and one overrun in each window.
		"fixed_window":             {60 * (limit + real - estimate), limit + real - estimate},
		"sliding_window_log_exact": {60 * (limit + real - estimate), limit + real - estimate},
		"sliding_window_log":       {60 * (limit + real - estimate), limit + real - estimate},
	} {
		virtually(t, algorithm, func(t *testing.T) {
			e := engine(t, fmt.Sprintf("rules: [{name: a, limit: %d/minute, algorithm: %s, cost: {response_header: X-Cost, estimate: %d, max: %d}}]", limit, algorithm, estimate, 2*real))
			begin := time.Now()
			passed := int64(0)
			windows := make(map[time.Duration]int64)
			for time.Since(begin) < time.Hour {
				d := e.Decide(t.Context(), get("/"))
				if !d.Allowed {
					if d.RetryAfter <= 0 || d.RetryAfter > 3*time.Minute {
						t.Fatalf("after %v: %s waits %v", time.Since(begin), summary(d), d.RetryAfter)
					}
					if time.Sleep(d.RetryAfter); time.Since(begin) >= time.Hour {
						break
					}
					if d = e.Decide(t.Context(), get("/")); !d.Allowed {
						t.Fatalf("after %v: denied after the wait of the denial before: %s", time.Since(begin), summary(d))
					}
				}
				e.Settle(t.Context(), d, header(200, "X-Cost", fmt.Sprint(real)))
				passed += real
				windows[time.Since(begin)/time.Minute] += real
				time.Sleep(10 * time.Millisecond)
			}
			t.Logf("%.3f of the limit", float64(passed)/(60*limit))
			if passed > most.hour || passed < 60*limit*3/4 {
				t.Errorf("%d passed in an hour, want %d at most", passed, most.hour)
			}
			for w, n := range windows {
				if most.window > 0 && n > most.window {
					t.Errorf("%d passed in minute %d, want %d at most", n, w, most.window)
				}
			}
		})
	}
}

// However much a key owes, it is locked out for no longer than Policy.Debts reports, and a reset cancels the debt.
func TestLockout(t *testing.T) {
	t.Parallel()
	for _, algorithm := range exactAlgorithms {
		synctest.Test(t, func(t *testing.T) {
			e := engine(t, "rules: [{name: a, limit: 100/hour, algorithm: "+algorithm+", cost: {response_header: X-Cost, estimate: 10, max: 200}}]")
			debts := e.Policy().Debts()
			if len(debts) != 1 || debts[0].Lockout < time.Hour {
				t.Fatalf("%s: %+v", algorithm, debts)
			}
			var held []Decision
			for range 10 { // as many at once as fit
				held = append(held, pass(t, e, get("/")))
			}
			for _, d := range held {
				e.Settle(t.Context(), d, header(200, "X-Cost", "9999999999"))
			}
			d := e.Decide(t.Context(), get("/"))
			if d.Allowed || d.RetryAfter > debts[0].Lockout || d.Results[0].Remaining != 0 {
				t.Fatalf("%s: %s, a wait of %v, want %v at most", algorithm, summary(d), d.RetryAfter, debts[0].Lockout)
			}
			time.Sleep(d.RetryAfter)
			pass(t, e, get("/"))
			if reset(t, e, "a"); remains(t, e, "a") != 100 {
				t.Errorf("%s: %d are left after a reset", algorithm, remains(t, e, "a"))
			}
		})
	}
}

// Each observer gets one Settlement, with the cost of an outcome and the units that were cut.
func TestObserveSettled(t *testing.T) {
	t.Parallel()
	e := engine(t, `rules: [{name: a, limit: 60/hour, cost: {response_header: X-Cost, estimate: 10, max: 100}}]`)
	var seen []Settlement
	for range 2 {
		e.ObserveSettled(func(_ context.Context, s *Settlement) { seen = append(seen, *s) })
	}
	e.Settle(t.Context(), pass(t, e, get("/")), header(200, "X-Cost", "150"))
	if len(seen) != 2 || seen[0] != seen[1] || seen[0].Rule != "a" || seen[0].Estimate != 10 || seen[0].Cost != 100 || seen[0].Cut != 50 {
		t.Errorf("observers got %+v", seen)
	}
}
