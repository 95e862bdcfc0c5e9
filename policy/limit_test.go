package policy

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicehq/sluice"
)

// A tier is compared as what names it is.
func TestTiersOfAQuery(t *testing.T) {
	e := engine(t, `
tiers: {from: query:plan, default: yearly}
rules:
  - {name: a, limit: 10/day, tiers: {business: 20/day, yearly: 30/day}}`)
	for query, want := range map[string]string{"plan=business": "tier:business", "plan=BUSINESS": "tier:business", "": "tier:yearly", "plan=x": "rule"} {
		r := get("/")
		r.RawQuery = query
		if got := e.Decide(t.Context(), r).Results[0].From; got != want {
			t.Errorf("%q has the limit of %s, want %s", query, got, want)
		}
	}
}

func TestTiers(t *testing.T) {
	e := engine(t, `
tiers: {from: header:X-Plan, default: free}
rules:
  - name: a
    key: [client_ip]
    limit: 10/day
    tiers: {free: 5/day, pro: 100/day burst 20}
  - {name: b, key: [client_ip], limit: 50/day}`)
	for _, c := range []struct {
		headers []string
		from    string
		limit   string
	}{
		{nil, "tier:free", "5/day burst 5"},
		{[]string{"X-Plan: pro"}, "tier:pro", "100/day burst 20"},
		{[]string{"X-Plan: free"}, "tier:free", "5/day burst 5"},
		{[]string{"X-Plan: unheard-of"}, "rule", "10/day burst 10"},
		{[]string{"X-Plan: pro", "X-Plan: free"}, "tier:free", "5/day burst 5"},
	} {
		d := e.Decide(t.Context(), get("/", c.headers...))
		r := d.Results[0]
		if r.From != c.from || r.Plan.Limit.String() != c.limit || d.Results[1].From != "rule" {
			t.Errorf("%v: %s from %s", c.headers, r.Plan.Limit, r.From)
		}
	}
	if n := admitted(t, e, request("GET", "/", "192.0.2.9", "X-Plan: pro"), 50); n != 20 {
		t.Errorf("tier pro admits %d, want 20", n)
	}
}

func TestOverrides(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// A bubble begins at 2000-01-01T00:00:00Z.
		e := engine(t, `
tiers: {from: header:X-Plan}
rules:
  - {name: two, key: [header:A, header:B], limit: 1/day, tiers: {pro: 2/day}}
  - {name: ip, key: [client_ip], limit: 1/day}
overrides:
  - {rule: two, key: {header:A: "*"}, limit: 6/day, until: "2000-01-02"}
  - {rule: two, key: {header:B: b, header:A: "*"}, limit: 5/day, until: "2000-01-01T00:03:00Z", reason: x}
  - {rule: two, key: {header:A: a}, limit: 4/day, until: "2000-01-01T01:02:00+01:00"}
  - {rule: two, key: {header:A: a, header:B: b}, limit: 3/day, until: "2000-01-01T00:01:00Z"}
  - {rule: two, key: {header:A: "x/y {*}"}, limit: 7/day}
  - {rule: ip, key: {client_ip: "::ffff:192.0.2.1"}, limit: 8/day}
  - {rule: ip, key: {client_ip: "2001:db8::1"}, limit: 9/day}`)
		check := func(want int64, from string, headers ...string) {
			t.Helper()
			r := e.Decide(t.Context(), get("/", headers...)).Results[0]
			if r.Plan.Limit.Count != want || r.From != from {
				t.Errorf("%v at %v: %d a day from %s, want %d from %s", headers, time.Now().UTC(), r.Plan.Limit.Count, r.From, want, from)
			}
		}
		check(3, "override", "A: a", "B: b")
		check(4, "override", "A: a", "B: other")
		check(4, "override", "A: a")
		check(5, "override", "A: other", "B: b")
		check(6, "override", "A: *", "B: other", "X-Plan: pro")
		check(7, "override", "A: x/y {*}", "B: other")
		time.Sleep(time.Minute - 1)
		check(3, "override", "A: a", "B: b")
		time.Sleep(time.Nanosecond)
		check(4, "override", "A: a", "B: b")
		time.Sleep(time.Minute)
		check(5, "override", "A: a", "B: b")
		time.Sleep(time.Minute)
		check(6, "override", "A: a", "B: b")
		// A date without a time is the end of that day in UTC.
		time.Sleep(time.Until(time.Date(2000, 1, 3, 0, 0, 0, -1, time.UTC)))
		check(6, "override", "A: a", "B: b")
		time.Sleep(time.Nanosecond)
		check(1, "rule", "A: a", "B: b")
		check(2, "tier:pro", "A: a", "B: b", "X-Plan: pro")
		check(7, "override", "A: x/y {*}", "B: other", "X-Plan: pro")

		for client, want := range map[string]int64{"192.0.2.1": 8, "192.0.2.2": 1, "::ffff:192.0.2.1": 8, "2001:db8::ffff": 9, "2001:db8:0:1::": 1} {
			if r := e.Decide(t.Context(), request("GET", "/", client)).Results[1]; r.Plan.Limit.Count != want {
				t.Errorf("%s: %d a day, want %d", client, r.Plan.Limit.Count, want)
			}
		}
	})
}

func TestCost(t *testing.T) {
	e := engine(t, `
rules:
  - {name: fixed, limit: 1000/day, cost: 7}
  - {name: header, limit: 1000/day, cost: {header: X-Cost, max: 100, default: 3}}`)
	for header, want := range map[string]int64{
		"":                                      3,
		"X-Cost: 1":                             1,
		"X-Cost: 42":                            42,
		"X-Cost:  42 ":                          42,
		"X-Cost: 007":                           7,
		"X-Cost: 100":                           100,
		"X-Cost: 101":                           100,
		"X-Cost: 0":                             1,
		"X-Cost: -5":                            3,
		"X-Cost: +5":                            3,
		"X-Cost: 1.5":                           3,
		"X-Cost: 1e3":                           3,
		"X-Cost: NaN":                           3,
		"X-Cost: Inf":                           3,
		"X-Cost: 0x10":                          3,
		"X-Cost: ":                              3,
		"X-Cost: 1 2":                           3,
		"X-Cost: \u0661":                        3,
		"X-Cost: 1|X-Cost: 50":                  50,
		"X-Cost: 1|X-Cost: x":                   3,
		"X-Cost: 9223372036854775807":           100,
		"X-Cost: 9223372036854775808":           100,
		"X-Cost: 18446744073709551617":          100,
		"X-Cost: " + strings.Repeat("9", 1<<16): 100,
	} {
		d := e.Decide(t.Context(), get("/", strings.Split(header, "|")...))
		if d.Results[0].Cost != 7 || d.Results[1].Cost != want {
			t.Errorf("%.60s: costs %d and %d, want 7 and %d", header, d.Results[0].Cost, d.Results[1].Cost, want)
		}
	}
	if d := engine(t, `rules: [{name: a, limit: 5/day, cost: {header: X-Cost, max: 10}}]`).Decide(t.Context(), get("/", "X-Cost: 6")); d.Allowed || d.RetryAfter != sluice.Never {
		t.Errorf("a cost that never fits: %+v", d)
	}
}
