package accuracy_test

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/plantest"
	"github.com/sluicehq/sluice/internal/replay/accuracy"
	"github.com/sluicehq/sluice/internal/seed"
	"github.com/sluicehq/sluice/memory"
)

func newStore() accuracy.Store { return memory.NewSize(256 << 20) }

func measured(t *testing.T, l sluice.Limit, requests []accuracy.Request) map[string]accuracy.Verdict {
	t.Helper()
	verdicts, err := accuracy.Measure(t.Context(), l, slices.Values(requests), newStore)
	if err != nil {
		t.Fatal(err)
	}
	by := map[string]accuracy.Verdict{}
	for _, v := range verdicts {
		by[v.Algorithm] = v
	}
	if len(by) != len(sluice.Algorithms()) {
		t.Fatalf("%d verdicts", len(by))
	}
	return by
}

// What can be said without counting: by hand, at 2 a minute.
func TestByHand(t *testing.T) {
	const minute = 60_000_000
	at := func(micros ...int64) (all []accuracy.Request) {
		for _, m := range micros {
			all = append(all, accuracy.Request{At: 1_767_225_600_000_000 + m, Key: "k"})
		}
		return all
	}
	for name, c := range map[string]struct {
		requests  []accuracy.Request
		algorithm string
		want      accuracy.Verdict
	}{
		"a fixed window lets twice as many pass around its end": {
			at(minute-2, minute-1, minute, minute+1), "fixed_window",
			accuracy.Verdict{Decisions: 4, Admitted: 4, FalseAllows: 2, Worst: 2},
		},
		"an exact log does not": {
			at(minute-2, minute-1, minute, minute+1), "sliding_window_log_exact",
			accuracy.Verdict{Decisions: 4, Admitted: 2},
		},
		"a counter thinks that the last window was even: two at its beginning": {
			// a minute and ten seconds later it counts 2·50/60 = 1.67 of them, and admits none
			at(0, 1, minute+10_000_000), "sliding_window_counter",
			accuracy.Verdict{Decisions: 3, Admitted: 2, FalseDenials: 1},
		},
		"a bucket gives half a minute's worth after half a minute": {
			at(0, 1, 30_000_001), "token_bucket",
			accuracy.Verdict{Decisions: 3, Admitted: 3, FalseAllows: 1, Worst: 1},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c.want.Algorithm = c.algorithm
			if got := measured(t, plantest.Limit(t, "2/minute"), c.requests)[c.algorithm]; got != c.want {
				t.Errorf("%+v, want %+v", got, c.want)
			}
		})
	}
}

// TestNaive judges by counting again over the whole past, request by request.
func TestNaive(t *testing.T) {
	r := rand.New(rand.NewPCG(seed.Of(t), 0))
	for range 6 {
		l := sluice.Limit{Count: 1 + r.Int64N(12), Period: time.Duration(1+r.IntN(90)) * time.Second}
		var requests []accuracy.Request
		now := int64(1_767_225_600_000_000) + r.Int64N(1e12)
		for range 800 {
			now += int64(float64(l.Period.Microseconds()) / float64(l.Count) / 2 * r.ExpFloat64())
			requests = append(requests, accuracy.Request{At: now, Key: string(rune('a' + r.IntN(3)))})
		}
		got := measured(t, l, requests)
		for _, a := range sluice.Algorithms() {
			l.Algorithm = a
			if want := naive(t, l, requests); got[a.String()] != want {
				t.Errorf("%s: %+v, want %+v", l, got[a.String()], want)
			}
		}
	}
}

// naive asks a limiter of each key, and keeps all that passed for good.
func naive(t *testing.T, l sluice.Limit, requests []accuracy.Request) accuracy.Verdict {
	v := accuracy.Verdict{Algorithm: l.Algorithm.String()}
	store := memory.NewSize(64 << 20)
	plan := plantest.Of(t, l)
	passed := map[string][]int64{}
	for _, r := range requests {
		d := plan.Decide(1, plantest.OneAt(t, store, r.At, r.Key, plan, 1))
		at := r.At
		if d.Allowed {
			at += d.Delay.Microseconds()
		}
		count := int64(0)
		for _, p := range passed[r.Key] {
			if p > at-l.Period.Microseconds() {
				count++
			}
		}
		v.Decisions++
		switch {
		case d.Allowed && count >= l.Count:
			v.FalseAllows++
			v.Worst = max(v.Worst, count+1-l.Count)
		case !d.Allowed && count < l.Count:
			v.FalseDenials++
		}
		if d.Allowed {
			v.Admitted++
			passed[r.Key] = append(passed[r.Key], at)
		}
	}
	return v
}

// The verdicts on made-up traffic are what the documentation of the algorithms says of any traffic.
func TestPromises(t *testing.T) {
	for _, s := range accuracy.Synthetics() {
		for _, text := range []string{"10/minute", "2000/hour"} {
			l := plantest.Limit(t, text)
			requests := slices.Collect(s.Make(l, 6_000, 7))
			if len(requests) != 6_000 || !slices.IsSortedFunc(requests, func(a, b accuracy.Request) int { return cmp.Compare(a.At, b.At) }) {
				t.Fatalf("%s: %d requests, or they go back in time", s.Name, len(requests))
			}
			got := measured(t, l, requests)
			exact, log, window := got["sliding_window_log_exact"], got["sliding_window_log"], got["fixed_window"]
			if exact.FalseAllows+exact.FalseDenials+log.FalseAllows > 0 {
				t.Errorf("%s %s: the exact log is wrong, or the log allows too much: %+v %+v", s.Name, text, exact, log)
			}
			if window.Worst > l.Count || s.Name == "boundary" && window.Worst < l.Count {
				t.Errorf("%s %s: %+v, want at most, and at the boundary exactly, the limit again", s.Name, text, window)
			}
		}
	}
}
