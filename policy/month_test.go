package policy

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A month of the calendar is a limit like others: in a rule, a tier and an override. It brings
// its algorithm, where the rule names none.
func TestMonths(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// A bubble begins at 2000-01-01T00:00:00Z.
		e := engine(t, `
tiers: {from: header:X-Plan}
rules:
  - {name: a, key: [header:User], limit: 5/minute, tiers: {pro: 20/month, mid: 15/month from 15}}
  - {name: b, match: /b, limit: 1000/month, algorithm: fixed_window, cost: 2}
overrides:
  - {rule: a, key: {header:User: bob}, limit: 7/month from 31}`)
		for _, c := range []struct {
			headers   []string
			limit     string
			algorithm string
			wait      time.Duration // once it is used up
		}{
			{nil, "5/minute burst 5", "token_bucket", 12 * time.Second},
			{[]string{"X-Plan: pro"}, "20/month", "fixed_window", 31 * 24 * time.Hour},
			{[]string{"X-Plan: mid"}, "15/month from 15", "fixed_window", 14 * 24 * time.Hour},
			{[]string{"User: bob"}, "7/month from 31", "fixed_window", 30 * 24 * time.Hour},
			{[]string{"User: bob", "X-Plan: pro"}, "7/month from 31", "fixed_window", 30 * 24 * time.Hour},
		} {
			r := get("/", c.headers...)
			first := e.Decide(t.Context(), r).Results[0]
			if l := first.Plan.Limit; l.String() != c.limit || l.Algorithm.String() != c.algorithm {
				t.Errorf("%v: %v, %v; want %s, %s", c.headers, l, l.Algorithm, c.limit, c.algorithm)
			}
			admitted(t, e, r, 30)
			if d := e.Decide(t.Context(), r); d.Allowed || d.RetryAfter != c.wait {
				t.Errorf("%v: allowed %v, and to wait for %v, want %v", c.headers, d.Allowed, d.RetryAfter, c.wait)
			}
		}
		if n := admitted(t, e, get("/b", "User: carol", "X-Plan: pro"), 20); n != 20 {
			t.Errorf("%d of 20 pass", n)
		}
		time.Sleep(14*24*time.Hour - time.Microsecond)
		mid := get("/", "X-Plan: mid")
		if e.Decide(t.Context(), mid).Allowed {
			t.Error("a microsecond before the 15th, the month has begun")
		}
		time.Sleep(time.Microsecond)
		if n := admitted(t, e, mid, 20); n != 15 {
			t.Errorf("from the 15th %d pass, want 15", n)
		}
	})
}

func TestMonthErrors(t *testing.T) {
	for rule, want := range map[string]string{
		"limit: 10/month, algorithm: token_bucket":                "token_bucket does not count by the calendar: use fixed_window, or write 30d",
		"limit: 10/month, algorithm: sliding_window_log":          "sliding_window_log does not count by the calendar",
		"limit: 10/month burst 5":                                 "a month of the calendar has no burst",
		"limit: 10/month from 32":                                 `the day "32" is not a number from 1 to 31`,
		"limit: 10/day from 15":                                   "only a month begins on a day",
		"limit: 10/minute, algorithm: gcra, tiers: {x: 10/month}": "gcra does not count by the calendar",
		"limit: 10/months":                                        `is written month`,
		"limit: 10/month, cost: 11":                               "the limit 10/month never lets more than 10 pass at once",
	} {
		_, err := Parse("test.yaml", []byte("version: 1\ntiers: {from: header:X}\nrules:\n  - {name: a, "+rule+"}\n"))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", rule, err, want)
		}
	}
}
