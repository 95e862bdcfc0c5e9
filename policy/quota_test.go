package policy

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicehq/sluice/memory"
)

const quotas = `
tiers: {from: header:X-Plan}
rules:
  - {name: health, match: /health, exempt: true}
  - {name: staff, clients: [192.0.2.99], exempt: true}
  - {name: closed, match: /closed, block: true}
  - {name: address, key: [client_ip], limit: 9/day}
  - {name: key, key: [api_key], missing: skip, limits: [5/second, 50/day], tiers: {pro: 70/day}}
  - {name: needs, key: ["header:X-Needed"], missing: refuse, limit: 9/day}
  - {name: login, match: POST /login, key: [client_ip, body:user], limit: 9/day}
  - {name: search, key: [query:user], limit: 9/day}
  - {name: orders, match: "GET /orders/{id}", key: [client_ip, route], limit: 2/day, cost: 2}
  - {name: beta, headers: {X-Beta: "1"}, key: [client_ip], limit: 3/day}
  - {name: watched, key: [client_ip], limit: 1/day, shadow: true}
overrides:
  - {rule: key, key: {api_key: evil}, block: true}
  - {rule: key, key: {api_key: free}, exempt: true}
`

// What holds for a caller is told, with and without a path, and nothing is taken.
func TestQuota(t *testing.T) {
	e := engine(t, quotas)
	for _, tt := range []struct{ method, path, client, headers, want string }{
		{"", "", "192.0.2.1", "", "address:9 watched:1"},
		{"", "", "192.0.2.1", "X-Api-Key: k", "address:9 key-1s:5 key-1d:50 watched:1"},
		{"", "", "192.0.2.1", "X-Api-Key: k,X-Plan: pro", "address:9 key:70 watched:1"},
		{"", "", "192.0.2.1", "X-Beta: 1,X-Needed: x", "address:9 needs:9 beta:3 watched:1"},
		{"", "", "192.0.2.1", "X-Api-Key: free", "address:9 watched:1"},
		{"", "", "192.0.2.1", "X-Api-Key: evil", "blocked by key, key 0 override"},
		{"", "", "192.0.2.99", "X-Api-Key: k", "exempt"},
		{"", "/health", "192.0.2.1", "", "exempt"},
		{"", "/closed", "192.0.2.1", "", "blocked by closed, closed 0 block"},
		{"", "/orders/7", "192.0.2.1", "", "address:9 orders:2 watched:1"},
		{"", "/orders/%37", "192.0.2.1", "", "address:9 orders:2 watched:1"},
		{"POST", "/orders/7", "192.0.2.1", "", "address:9 watched:1"},
		{"POST", "/login", "192.0.2.1", "", "address:9 watched:1"}, // whose is not known
	} {
		r := request(tt.method, tt.path, tt.client)
		for line := range strings.SplitSeq(tt.headers, ",") {
			if name, value, found := strings.Cut(line, ": "); found {
				r.Header.Set(name, value)
			}
		}
		for range 3 {
			d := e.Quota(t.Context(), r)
			got := names(d)
			if d.Blocked != "" || d.Exempt || d.Missing != "" {
				got = told(d)
			}
			if got != tt.want {
				t.Errorf("%s %s of %s with %q: %s, want %s", tt.method, tt.path, tt.client, tt.headers, got, tt.want)
			}
		}
	}
}

// What it tells is what a request meets, also when a limit is used up.
func TestQuotaUsedUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := engine(t, quotas)
		if d := e.Decide(t.Context(), get("/orders/7", "X-Needed: x")); !d.Allowed {
			t.Fatalf("%+v", d)
		}
		d := e.Quota(t.Context(), get("/orders/7"))
		if d.Allowed || d.RetryAfter != 24*time.Hour || names(d) != "address:8 orders:refused watched:refused" {
			t.Errorf("%+v", d)
		}
		if r := d.Results[1]; r.Remaining != 0 || r.ResetAfter != 24*time.Hour || r.Cost != 2 {
			t.Errorf("%+v", r)
		}
	})
}

// Rules that go by what is not asked about are left out.
func TestQuotaOf(t *testing.T) {
	e := engine(t, `
tiers: {from: query:plan}
rules: [{name: a, limit: 5/day, tiers: {pro: 9/day}}, {name: b, limit: 5/day}]`)
	if d := e.Quota(t.Context(), &Request{RawQuery: "plan=pro"}); names(d) != "b:5" {
		t.Errorf("%+v", d)
	}
	// A rule with a pattern is one of some paths, also where that is all of them.
	e = engine(t, "rules: [{name: a, match: /, limit: 5/day}, {name: closed, match: /, clients: [192.0.2.1], block: true}]")
	if d := e.Quota(t.Context(), &Request{}); !d.Allowed || names(d) != "" {
		t.Errorf("%+v", d)
	}
	if d := e.Quota(t.Context(), &Request{Path: "/"}); names(d) != "a:5" {
		t.Errorf("%+v", d)
	}
	if d := e.Quota(t.Context(), get("")); d.Blocked != "" {
		t.Errorf("%+v", d)
	}
	e = engine(t, "rules: [{name: a, match: /x, key: [client_ip], limit: 5/day}]")
	if d := e.Quota(t.Context(), &Request{Path: "/%00"}); d.Missing != "an unambiguous path" || d.Allowed {
		t.Errorf("%+v", d)
	}
}

// Nothing is taken whatever is asked, over any store, and an observer hears of nothing.
func TestQuotaTakesNothing(t *testing.T) {
	e := engine(t, quotas)
	e.Observe(func(context.Context, *Observation) { t.Error("the observer is told") })
	for range 20 {
		if d := e.Quota(t.Context(), get("/orders/7", "X-Api-Key: k")); !d.Allowed {
			t.Fatalf("%+v", d)
		}
	}
	e.observers = nil
	if d := e.Decide(t.Context(), get("/orders/7", "X-Api-Key: k", "X-Needed: x")); said(d) != "address:8 key:4 key:49 needs:8 search:8 orders:0 watched:0" {
		t.Errorf("%s", said(d))
	}
	e = NewEngine(unanswering{}, parse(t, quotas))
	if d := e.Quota(t.Context(), get("/")); d.Err == nil || d.Now != 0 || !d.Allowed || len(d.Results) != 2 {
		t.Errorf("without the store: %+v", d)
	}
}

// FuzzQuota holds that what a quota tells of a rule is what the rule then says.
func FuzzQuota(f *testing.F) {
	f.Add("/orders/7", "GET", "k", "pro", uint8(3))
	f.Add("", "POST", "", "", uint8(0))
	p := parse(f, quotas)
	f.Fuzz(func(t *testing.T, path, method, key, plan string, before uint8) {
		e := NewEngine(memory.NewSize(1<<20), p)
		r := request(method, path, "192.0.2.1", "X-Api-Key: "+key, "X-Plan: "+plan)
		for range before % 16 {
			e.Decide(t.Context(), r)
		}
		d := e.Quota(t.Context(), r)
		x := e.Explain(t.Context(), r)
		if path != "" && (d.Exempt != x.Decision.Exempt || d.Blocked != x.Decision.Blocked) {
			t.Fatalf("%+v, explained as %+v", d, x.Decision)
		}
		for _, q := range d.Results {
			found := path == "" || x.Decision.Missing != "" // then explained by fewer rules
			for _, is := range x.Decision.Results {
				found = found || is.Rule == q.Rule && is.Name == q.Name && is.From == q.From && is.Plan == q.Plan && is.Remaining == q.Remaining
			}
			if !found {
				t.Fatalf("%s", fmt.Sprintf("%+v is not in %+v", q, x.Decision))
			}
		}
	})
}
