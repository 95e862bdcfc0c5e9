package policy

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/seed"
	"github.com/sluicehq/sluice/storetest"
)

func TestIdleLimits(t *testing.T) {
	for rule, want := range map[string]string{
		"limits: [10/second, 1000/minute]":                                            "1000/minute burst 1000",
		"limits: [1000/minute, 10/second]":                                            "1000/minute burst 1000",
		"limits: [10/second, 1000/hour, 20000/day]":                                   "",
		"limits: [10/second burst 50, 1000/minute burst 20]":                          "",
		"limits: [100/hour, 1000/day], algorithm: fixed_window":                       "",
		"limits: [100/hour, 2400/day], algorithm: fixed_window":                       "2400/day",
		"limits: [100/hour, 2399/day], algorithm: fixed_window":                       "",
		"limits: [100/hour, 300/90m], algorithm: fixed_window":                        "300/1h30m0s",
		"limits: [100/hour, 299/90m], algorithm: fixed_window":                        "",
		"limits: [100/day, 100/hour], algorithm: fixed_window":                        "100/hour",
		"limits: [100/day, 99/hour], algorithm: fixed_window":                         "",
		"limits: [100/day, 3100/month], algorithm: fixed_window":                      "3100/month",
		"limits: [100/day, 3099/month], algorithm: fixed_window":                      "",
		"limits: [1/7m, 6378/month], algorithm: fixed_window":                         "",
		"limits: [1/7m, 6379/month], algorithm: fixed_window":                         "6379/month",
		"limits: [100/month, 100/day], algorithm: fixed_window":                       "100/day",
		"limits: [10/second, 100000/month]":                                           "",
		"limits: [100/day, 3200/month]":                                               "3200/month",
		"limits: [100/day, 3199/month]":                                               "",
		"limits: [10/second, 610/minute], algorithm: sliding_window_log":              "610/minute",
		"limits: [10/second, 609/minute], algorithm: sliding_window_log":              "",
		"limits: [10/second, 600/minute], algorithm: sliding_window_log_exact":        "600/minute",
		"limits: [10/second, 599/minute], algorithm: sliding_window_log_exact":        "",
		"limits: [10/second, 610/minute], algorithm: sliding_window_counter":          "610/minute",
		"limits: [10/second, 609/minute], algorithm: sliding_window_counter":          "",
		"limits: [10/minute, 10/second], algorithm: sliding_window_counter":           "10/second",
		"limits: [10/minute, 50/second burst 9], algorithm: leaky_bucket":             "",
		"limits: [10/second, 1000/minute], shadow: true":                              "",
		"limits: [10/second, 1000/minute], count: {status: [401]}":                    "",
		"limit: 1/second, tiers: {pro: [10/second, 1000/minute]}":                     "1000/minute burst 1000 of the tier pro",
		"limits: [10/second, 1000/minute], tiers: {pro: [1000/minute]}":               "",
		"limits: [10/second, 1000/minute], tiers: {pro: [20/second, 500/minute]}":     "1000/minute burst 1000",
		"limits: [10/second, 1000/minute], tiers: {pro: [20/second, 50000/50m, 9/d]}": "20/second burst 20 of the tier pro",
	} {
		p := parse(t, "tiers: {from: method}\nrules: [{name: a, key: [client_ip], "+rule+"}]")
		var got []string
		for _, w := range p.Warnings() {
			if limit, found := strings.CutPrefix(w.Message, "the limit "); found {
				limit, _, _ = strings.Cut(limit, " never refuses")
				got = append(got, limit)
			}
		}
		if strings.Join(got, ", ") != want {
			t.Errorf("%s: %q never refuse, want %q", rule, got, want)
		}
	}
}

// A limit that a subject may have used up under an override is none of those.
func TestIdleBesideOverrides(t *testing.T) {
	const rule = "rules: [{name: a, key: [client_ip], limits: [10/second, 1000/minute]}]\noverrides: [{rule: a, key: {client_ip: 192.0.2.1}, limit: "
	for limit, want := range map[string]int{"2000/minute": 1, "1000/minute burst 5": 0} {
		if got := parse(t, rule+limit+"}]").Warnings(); len(got) != want {
			t.Errorf("%s: %v", limit, got)
		}
	}
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
			p, err := sluice.NewPlan(l)
			if err != nil {
				t.Fatal(err)
			}
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
				if err := counts.TakeAt(t.Context(), now, charges, receipts); err != nil {
					t.Fatal(err)
				}
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
