package policy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/failover"
	"github.com/sluicehq/sluice/memory"
)

func parse(t testing.TB, rules string) *Policy {
	t.Helper()
	p, err := Parse("test.yaml", []byte("version: 1\n"+rules))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func engine(t testing.TB, rules string) *Engine {
	t.Helper()
	return NewEngine(memory.New(), parse(t, rules))
}

// get is a request of 192.0.2.1 for a path, with headers as "Name: value".
func get(path string, headers ...string) *Request {
	return request("GET", path, "192.0.2.1", headers...)
}

func request(method, path, client string, headers ...string) *Request {
	r := &Request{Method: method, Host: "example.com", Path: path, Peer: netip.MustParseAddr(client), Header: http.Header{}}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Add(name, value)
	}
	return r
}

func withBody(r *Request, body string) *Request {
	r.Header.Set("Content-Type", "application/json")
	r.Body = func(int64) ([]byte, error) { return []byte(body), nil }
	return r
}

// admitted counts how many of n equal requests pass.
func admitted(t testing.TB, e *Engine, r *Request, n int) (passed int) {
	t.Helper()
	for range n {
		if e.Decide(t.Context(), r).Allowed {
			passed++
		}
	}
	return passed
}

// said returns what each rule has said, as "name:remaining" or "name:refused".
func said(d Decision) string {
	var all []string
	for _, r := range d.Results {
		word := fmt.Sprint(r.Remaining)
		if !r.Allowed {
			word = "refused"
		}
		all = append(all, r.Rule+":"+word)
	}
	return strings.Join(all, " ")
}

func TestNoRuleMatches(t *testing.T) {
	e := engine(t, `rules: [{name: a, match: /x, limit: 1/day}]`)
	for range 3 {
		if d := e.Decide(t.Context(), get("/y")); !d.Allowed || d.Results != nil || d.Exempt || d.Degraded {
			t.Fatalf("got %+v", d)
		}
	}
	if d := NewEngine(memory.New(), nil).Decide(t.Context(), get("/y")); !d.Allowed {
		t.Error("an engine without a policy refuses")
	}
}

func TestLayersAllOrNothing(t *testing.T) {
	e := engine(t, `
rules:
  - {name: per-address, key: [client_ip], limit: 10/day}
  - {name: global, limit: 100/day}
  - {name: search, match: /search, key: [client_ip], limit: 3/day}`)
	if n := admitted(t, e, get("/search"), 50); n != 3 {
		t.Errorf("%d of /search passed, want 3", n)
	}
	d := e.Decide(t.Context(), get("/search"))
	if got, want := said(d), "per-address:7 global:97 search:refused"; got != want {
		t.Errorf("got %s, want %s: refused requests have used up other layers", got, want)
	}
	if d.Allowed || d.RetryAfter <= 7*time.Hour || d.RetryAfter != d.Results[2].RetryAfter {
		t.Errorf("retry after %v", d.RetryAfter)
	}
	if n := admitted(t, e, get("/other"), 50); n != 7 {
		t.Errorf("%d others passed, want 7", n)
	}
}

// Concurrent requests are admitted up to the smallest layer, and what was refused is
// found in none.
func TestLayersConcurrently(t *testing.T) {
	e := engine(t, `
rules:
  - {name: wide, limit: 1000/day}
  - {name: user, key: [header:X-User], limit: 50/day}
  - {name: narrow, match: /narrow, limit: 120/day}`)
	var passed, narrow atomic.Int64
	var wg sync.WaitGroup
	for g := range 16 {
		wg.Go(func() {
			for i := range 100 {
				path := []string{"/narrow", "/free"}[i%2]
				r := get(path, fmt.Sprintf("X-User: u%d", g%8))
				if e.Decide(t.Context(), r).Allowed {
					passed.Add(1)
					if path == "/narrow" {
						narrow.Add(1)
					}
				}
			}
		})
	}
	wg.Wait()
	// 8 users of 50 each ask 200 times, half of it for the narrow path.
	if passed.Load() != 400 || narrow.Load() > 120 {
		t.Errorf("%d passed, want 400; %d of them narrow, want at most 120", passed.Load(), narrow.Load())
	}
	d := e.Decide(t.Context(), get("/narrow", "X-User: fresh"))
	if want := 1000 - passed.Load() - 1; d.Allowed && d.Results[0].Remaining != want {
		t.Errorf("the wide layer has %d left, want %d", d.Results[0].Remaining, want)
	}
}

func TestShadow(t *testing.T) {
	e := engine(t, `
rules:
  - {name: hard, limit: 5/day}
  - {name: soft, limit: 2/day, shadow: true}
  - {name: queue, limit: 1/day burst 5, algorithm: leaky_bucket, shadow: true}`)
	want := []string{"hard:4 soft:1 queue:4", "hard:3 soft:0 queue:3", "hard:2 soft:refused queue:2", "hard:1 soft:refused queue:1"}
	for i, w := range want {
		d := e.Decide(t.Context(), get("/"))
		if said(d) != w || !d.Allowed || d.Delay != 0 || d.RetryAfter != 0 {
			t.Errorf("request %d: %s, want %s; %+v", i, said(d), w, d)
		}
		if !d.Results[1].Shadow || d.Results[0].Shadow {
			t.Errorf("the shadow is not marked: %+v", d.Results)
		}
	}
}

// A request is exempt only if it is in every way to read its path.
func TestExempt(t *testing.T) {
	const rules = `
rules:
  - {name: all, limit: 1000/day}
  - {name: health, match: [GET /health, "/static/{rest...}"], exempt: true}
  - {name: vip, hosts: [vip.example.com], headers: {X-Vip: "1"}, exempt: true}`
	e := engine(t, rules)
	for path, want := range map[string]bool{
		"/health":                      true,
		"/health/":                     true,
		"//health":                     false, // to some servers that is a host
		"/health//":                    true,
		"/x/../health":                 false, // some servers do not resolve that
		"/static/a/b":                  true,
		"/api/search/..%2f..%2fhealth": false,
		"/api%2f..%2fhealth":           false,
		"/static/..%2fapi":             false,
		"/health;x=1":                  false,
		"/healthz":                     false,
	} {
		if d := e.Decide(t.Context(), get(path)); d.Exempt != want || !d.Allowed || (len(d.Results) == 0) != want {
			t.Errorf("%s: exempt %v, want %v; %+v", path, d.Exempt, want, d)
		}
	}
	for _, c := range []struct {
		host    string
		headers []string
		want    bool
	}{
		{"vip.example.com", []string{"X-Vip: 1"}, true},
		{"VIP.example.com.:8080", []string{"X-Vip: 1"}, true},
		{"vip.example.com", []string{"X-Vip: 1", "X-Vip: 1"}, true},
		{"vip.example.com", []string{"X-Vip: 1", "X-Vip: 2"}, false},
		{"vip.example.com", []string{"X-Vip: 2"}, false},
		{"vip.example.com", nil, false},
		{"example.com", []string{"X-Vip: 1"}, false},
	} {
		r := get("/api", c.headers...)
		r.Host = c.host
		if d := e.Decide(t.Context(), r); d.Exempt != c.want {
			t.Errorf("%s %v: exempt %v", c.host, c.headers, d.Exempt)
		}
	}
}

func TestHostsAndHeaders(t *testing.T) {
	e := engine(t, `
rules:
  - {name: exact, hosts: [a.example.com, "A.example.ORG"], limit: 1000/day}
  - {name: below, hosts: ["*.example.com"], limit: 1000/day}
  - {name: path, hosts: ["*.example.com"], match: /x, limit: 1000/day}
  - {name: value, headers: {x-plan: pro}, limit: 1000/day}
  - {name: any, headers: {X-Plan: "*"}, limit: 1000/day}
  - {name: both, headers: {X-Plan: pro, X-Beta: "*"}, limit: 1000/day}`)
	for _, c := range []struct{ host, path, headers, want string }{
		{"a.example.com", "/", "", "exact below"},
		{"A.Example.Com.", "/x", "", "exact below path"},
		{"a.example.org:80", "/x", "", "exact"},
		{"b.a.example.com", "/x", "", "below path"},
		{"example.com", "/x", "", ""},
		{"xexample.com", "/x", "", ""},
		{"[::1]:80", "/x", "", ""},
		{"", "/x", "", ""},
		{"", "/", "X-Plan: pro", "value any"},
		{"", "/", "X-Plan: free", "any"},
		{"", "/", "X-Plan: free|X-Plan: pro", "value any"},
		{"", "/", "X-Plan:  pro |X-Beta: 1", "value any both"},
		{"", "/", "X-Plan: PRO", "any"},
	} {
		r := get(c.path)
		r.Host = c.host
		for h := range strings.SplitSeq(c.headers, "|") {
			if name, value, found := strings.Cut(h, ": "); found {
				r.Header.Add(name, value)
			}
		}
		var got []string
		for _, res := range e.Decide(t.Context(), r).Results {
			got = append(got, res.Rule)
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%+v: got %q", c, got)
		}
	}
}

func TestMissing(t *testing.T) {
	e := engine(t, `
rules:
  - {name: skips, key: [header:A], missing: skip, limit: 1000/day}
  - {name: shares, key: [header:A], limit: 1000/day}
  - {name: refuses, match: /strict, key: [client_ip, header:A], missing: refuse, limit: 1000/day}
  - {name: shadow, match: /shadow, key: [header:A], missing: refuse, limit: 1000/day, shadow: true}`)
	for _, c := range []struct{ path, header, want string }{
		{"/", "A: 1", "skips:999 shares:999"},
		{"/", "A: !", "skips:999 shares:999"}, // not the bucket of those that lack it
		{"/", "", "shares:999"},
		{"/", "", "shares:998"},
		{"/", "A:  ", "shares:997"},
		{"/shadow", "", "shares:996"},
		{"/strict", "A: 1", "skips:998 shares:998 refuses:999"},
	} {
		r := get(c.path)
		if c.header != "" {
			r.Header.Set("A", c.header[3:])
		}
		if got := said(e.Decide(t.Context(), r)); got != c.want {
			t.Errorf("%+v: got %s", c, got)
		}
	}
	d := e.Decide(t.Context(), get("/strict"))
	if d.Allowed || d.Missing != "header:A" || len(d.Results) != 0 {
		t.Errorf("a request without a needed part: %+v", d)
	}
	if got := said(e.Decide(t.Context(), get("/"))); got != "shares:994" {
		t.Errorf("a malformed request counts for the rules that can count it, and once: %s", got)
	}
	// To send the header twice is not to leave it out.
	if got := said(e.Decide(t.Context(), get("/", "A: 1", "A: 2"))); got != "skips:999 shares:993" {
		t.Errorf("a garbled part: %s", got)
	}
}

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
		time.Sleep(24 * time.Hour)
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

// An attacker who tries one account from many addresses, or many accounts from one, is
// limited by both rules; whoever writes the name in another way is, too.
func TestLogin(t *testing.T) {
	e := engine(t, `
rules:
  - {name: by-address, match: POST /auth/login, key: [client_ip], limit: 20/day, on_error: deny}
  - {name: by-user, match: POST /auth/login, key: [body:username], limit: 5/day, on_error: deny}`)
	login := func(client, path, body string) bool {
		return e.Decide(t.Context(), withBody(request("POST", path, client), body)).Allowed
	}
	passed := 0
	for i := range 30 {
		name := []string{"alice", "Alice", " ALICE "}[i%3]
		path := []string{"/auth/login", "//auth/./login/", "/auth%2flogin"}[i%3]
		if login(fmt.Sprintf("198.51.100.%d", i), path, fmt.Sprintf(`{"username": %q}`, name)) {
			passed++
		}
	}
	if passed != 5 {
		t.Errorf("30 addresses got %d tries at one account, want 5", passed)
	}
	passed = 0
	for i := range 40 {
		if login("203.0.113.1", "/auth/login", fmt.Sprintf(`{"username": "user%d"}`, i)) {
			passed++
		}
	}
	if passed != 20 {
		t.Errorf("one address got %d tries at 40 accounts, want 20", passed)
	}
	passed = 0
	for i := range 12 {
		body := []string{"", "{", `{"username": "a", "username": "b"}`, `{"user": "x"}`}[i%4]
		if login(fmt.Sprintf("198.51.100.%d", 100+i), "/auth/login", body) {
			passed++
		}
	}
	if passed != 5 {
		t.Errorf("%d tries without a readable name passed, want 5 for all of them", passed)
	}
}

// brokenStore is a store that does not answer.
type brokenStore struct{ err error }

func (s brokenStore) Take(context.Context, []sluice.Charge, []sluice.Receipt) error { return s.err }

func TestOnError(t *testing.T) {
	p := parse(t, `
rules:
  - {name: open, match: [/open, /mixed], limit: 1/day}
  - {name: closed, match: [/closed, /mixed], limit: 1/day, on_error: deny}
  - {name: local, match: [/local, /mixed], limit: 1/day, on_error: local}
  - {name: shadow, match: /shadow, limit: 1/day, on_error: deny, shadow: true}
  - {name: exempt, match: /exempt, exempt: true}`)
	down := errors.New("connection refused")
	e := NewEngine(brokenStore{down}, p)
	for path, want := range map[string]bool{"/open": true, "/closed": false, "/local": true, "/mixed": false, "/shadow": true} {
		d := e.Decide(t.Context(), get(path))
		if d.Allowed != want || d.Unavailable == want || !d.Degraded || d.Err != down || d.Now != 0 || len(d.Results) == 0 {
			t.Errorf("%s: %+v", path, d)
		}
		if (d.RetryAfter >= time.Second) == want {
			t.Errorf("%s: retry after %v", path, d.RetryAfter)
		}
		if x := e.Explain(t.Context(), get(path)).Decision; x.Allowed != d.Allowed || x.Unavailable != d.Unavailable || !x.Degraded {
			t.Errorf("%s: explained as %+v", path, x)
		}
	}
	for _, path := range []string{"/exempt", "/none"} {
		if d := e.Decide(t.Context(), get(path)); !d.Allowed || d.Degraded {
			t.Errorf("%s: %+v", path, d)
		}
	}
}

// A store that stands in for another has its say, and rules that are closed without the
// other one say so.
func TestLocalReceipts(t *testing.T) {
	store := failover.New(brokenStore{errors.New("connection refused")}, failover.Config{Logger: slog.New(slog.DiscardHandler)})
	defer store.Close()
	e := NewEngine(store, parse(t, `
rules:
  - {name: open, match: [/open, /mixed], limit: 1000/day}
  - {name: closed, match: [/closed, /mixed], limit: 1000/day, on_error: deny}
  - {name: local, match: [/local, /mixed], limit: 3/day, on_error: local}
  - {name: shadow, match: /local, limit: 3/day, on_error: deny, shadow: true}`))
	for path, want := range map[string]int{"/open": 10, "/closed": 0, "/local": 3, "/mixed": 0} {
		passed := 0
		for range 10 {
			would := e.Explain(t.Context(), get(path)).Decision
			d := e.Decide(t.Context(), get(path))
			if d.Allowed {
				passed++
			}
			closed := want == 0
			if !d.Degraded || d.Unavailable != closed || (d.Now == 0) != closed || closed && d.RetryAfter != time.Second {
				t.Errorf("%s: %+v", path, d)
			}
			if would.Allowed != d.Allowed || would.Unavailable != d.Unavailable || !would.Degraded {
				t.Errorf("%s: explained as %+v, decided %+v", path, would, d)
			}
		}
		if passed != want {
			t.Errorf("%s: %d of 10 passed, want %d", path, passed, want)
		}
	}
}

// recorder passes charges on to a store, and remembers them.
type recorder struct {
	sluice.Store
	charges []sluice.Charge
}

func (s *recorder) Take(ctx context.Context, charges []sluice.Charge, receipts []sluice.Receipt) error {
	if ctx.Err() != nil {
		return ctx.Err() // as a store behind a network does
	}
	for _, c := range charges {
		c.Key = strings.Clone(c.Key)
		s.charges = append(s.charges, c)
	}
	return s.Store.Take(ctx, charges, receipts)
}

func TestKeys(t *testing.T) {
	store := &recorder{Store: memory.New()}
	e := NewEngine(store, parse(t, `
ipv6_prefix: 48
rules:
  - {name: global, limit: 9/day}
  - {name: address, key: [client_ip], limit: 9/day}
  - {name: user, key: [client_ip, header:X-User, "const:v/2"], together: [header:X-User], limit: 9/day}
  - {name: route, match: ["/a/{id}", "GET /a/{rest...}"], key: [route, method], limit: 9/day}
  - {name: tag-two, key: [header:X-User, client_ip], together: [client_ip, header:X-User], limit: 9/day}`))
	keys := func(r *Request) []string {
		store.charges = nil
		e.Decide(t.Context(), r)
		var all []string
		for _, c := range store.charges {
			all = append(all, c.Key)
		}
		return all
	}
	for _, c := range []struct {
		r    *Request
		want []string
	}{
		{request("GET", "/", "192.0.2.1", "X-User: alice"), []string{
			"global", "address/192.0.2.1", "{alice}user/192.0.2.1/alice/v%2F2", "{192.0.2.1/alice}tag-two/alice/192.0.2.1"}},
		{request("HEAD", "/a/7", "::ffff:192.0.2.1", "X-User: {a}/!"), []string{
			"global", "address/192.0.2.1", "{%7Ba%7D%2F%21}user/192.0.2.1/%7Ba%7D%2F%21/v%2F2",
			"route/%2Fa%2F%7Bid%7D/HEAD", "{192.0.2.1/%7Ba%7D%2F%21}tag-two/%7Ba%7D%2F%21/192.0.2.1"}},
		{request("GET", "/a/b/c", "2001:db8:1:2:3:4:5:6"), []string{
			"global", "address/2001:db8:1::", "{!}user/2001:db8:1::/!/v%2F2",
			"route/GET%20%2Fa%2F%7Brest...%7D/GET", "{2001:db8:1::/!}tag-two/!/2001:db8:1::"}},
	} {
		if got := keys(c.r); !slices.Equal(got, c.want) {
			t.Errorf("%s:\n got %q\nwant %q", c.r.Path, got, c.want)
		}
	}
}

// Values of any length and content give keys of bounded length that differ.
func TestKeysOfHostileValues(t *testing.T) {
	store := &recorder{Store: memory.New()}
	e := NewEngine(store, parse(t, `rules: [{name: a, key: [header:X, header:Y], limit: 9/day}]`))
	values := []string{"", "!", "*", "/", "a/b", "a", "b", "%2F", "\x00", "\xff", "{x}", "#", ":", "\n", "é", strings.Repeat("x", 1<<20), strings.Repeat("x", 1<<20+1)}
	seen := make(map[string][2]string)
	for _, x := range values {
		for _, y := range values {
			r := get("/")
			r.Header["X"], r.Header["Y"] = []string{x}, []string{y}
			e.Decide(t.Context(), r)
			key := store.charges[len(store.charges)-1].Key
			if before, twice := seen[key]; twice && before != [2]string{x, y} {
				t.Fatalf("%.20q and %.20q have the key %q", before, [2]string{x, y}, key)
			}
			seen[key] = [2]string{x, y}
			if len(key) > 300 || strings.Trim(key, "abcdefghijklmnopqrstuvwxyzABCDEF0123456789%/!#:") != "" {
				t.Fatalf("the key is %.400q", key)
			}
		}
	}
	if len(seen) != len(values)*len(values) {
		t.Errorf("%d keys of %d pairs", len(seen), len(values)*len(values))
	}
}

// What applies out of many rules is what applies of each alone.
func TestIndexAgainstSingleRules(t *testing.T) {
	var docs []string
	for _, host := range []string{"", ", hosts: [a.test]", `, hosts: ["*.test", b.org]`, ", hosts: [c.a.test]"} {
		for _, match := range []string{"", ", match: /x", `, match: ["GET /x/{id}", /y/]`, `, match: [POST /x, "a.test/x/"]`} {
			for _, header := range []string{"", ", headers: {A: one}", `, headers: {B: "*"}`, ", headers: {A: two, B: one}"} {
				docs = append(docs, fmt.Sprintf("{name: r%d%s%s%s, limit: 1000000/day}", len(docs), host, match, header))
			}
		}
	}
	all := engine(t, "rules: ["+strings.Join(docs, ",\n")+"]")
	var single []*Engine
	for _, d := range docs {
		single = append(single, engine(t, "rules: ["+d+"]"))
	}
	applied := 0
	for _, host := range []string{"", "a.test", "A.test:81", "c.a.test", "b.org", "test"} {
		for _, path := range []string{"/", "/x", "/x/1", "/y/z", "/y%2fz", "/x/../y", "/x/1/2"} {
			for _, method := range []string{"GET", "POST"} {
				for _, headers := range []string{"", "A: one", "B: one", "A: two|B: one", "A: one|A: two|B: 2"} {
					r := request(method, path, "192.0.2.1", strings.Split(headers, "|")...)
					r.Host = host
					var got, want []string
					for _, res := range all.Decide(t.Context(), r).Results {
						got = append(got, res.Rule)
					}
					for _, e := range single {
						for _, res := range e.Decide(t.Context(), r).Results {
							want = append(want, res.Rule)
						}
					}
					if applied += len(got); !slices.Equal(got, want) {
						t.Fatalf("%s %s%s %s:\n got %v\nwant %v", method, host, path, headers, got, want)
					}
				}
			}
		}
	}
	if applied < 1000 {
		t.Errorf("only %d rules applied in all", applied)
	}
}

// While policies are swapped, every request is decided by one of them, and what they
// share is counted on.
func TestSwapWhileDeciding(t *testing.T) {
	a := parse(t, `
trusted_proxies: [10.0.0.0/8]
rules: [{name: shared, limit: 500/day}, {name: a, limit: 100000/day}]`)
	b := parse(t, `
rules: [{name: b, limit: 100000/day}, {name: shared, limit: 500/day}, {name: b2, key: [client_ip], limit: 100000/day}]`)
	e := NewEngine(memory.New(), a)
	var passed atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 250 {
				d := e.Decide(t.Context(), get("/"))
				if d.Allowed {
					passed.Add(1)
				}
				switch names := said(d); {
				case len(d.Results) == 2 && strings.HasPrefix(names, "shared:") && d.Results[1].Rule == "a":
				case len(d.Results) == 3 && d.Results[0].Rule == "b" && d.Results[2].Rule == "b2":
				default:
					t.Errorf("decided by neither policy: %s", names)
				}
			}
		})
	}
	wg.Go(func() {
		for i := range 400 {
			e.Swap([]*Policy{b, a}[i%2])
			if n := len(e.TrustedProxies()); n > 1 {
				t.Errorf("%d trusted proxies", n)
			}
		}
	})
	wg.Wait()
	if passed.Load() != 500 {
		t.Errorf("%d of 2000 passed, want 500", passed.Load())
	}
	if e.Swap(b); e.Policy() != b {
		t.Error("Policy is not what Swap has set")
	}
}

func TestDelayAndRefund(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := NewEngine(&recorder{Store: memory.New()}, parse(t, `
rules:
  - {name: all, limit: 100/day}
  - {name: queue, key: [client_ip], limit: 1/second burst 4, algorithm: leaky_bucket}
  - {name: closed, match: /closed, limit: 1/day, cost: {header: C, max: 2}}
  - {name: shadow, limit: 3/day, shadow: true}`))
		var last Decision
		for i := range 4 {
			last = e.Decide(t.Context(), get("/"))
			if want := time.Duration(i) * time.Second; !last.Allowed || last.Delay != want {
				t.Fatalf("request %d: %+v", i, last)
			}
		}
		full := e.Decide(t.Context(), get("/"))
		if full.Allowed || full.Delay != 0 || full.RetryAfter != time.Second || said(full) != "all:96 queue:refused shadow:refused" {
			t.Errorf("the queue is full: %s %+v", said(full), full)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		e.Refund(ctx, last)
		again := e.Decide(t.Context(), get("/"))
		// The place in the queue is free again. The other rules have counted a request.
		if again.Delay != last.Delay || said(again) != "all:95 queue:0 shadow:refused" {
			t.Errorf("after the refund: %s, delay %v", said(again), again.Delay)
		}
		// Nothing is given back of a refusal.
		e.Refund(t.Context(), full)
		if d := e.Decide(t.Context(), get("/")); d.Allowed {
			t.Errorf("a refusal was given back: %s", said(d))
		}
		// The keys of a decision are its own: other decisions have been made since.
		time.Sleep(10 * time.Second)
		e.Decide(t.Context(), get("/"))
		mine := e.Decide(t.Context(), get("/"))
		for i := range 50 {
			e.Decide(t.Context(), request("GET", "/", fmt.Sprintf("198.51.100.%d", i)))
		}
		e.Refund(t.Context(), mine)
		d := e.Decide(t.Context(), get("/"))
		if d.Results[1].Remaining != mine.Results[1].Remaining {
			t.Errorf("another queue got the refund: %s", said(d))
		}
		// A place that there would have been is no turn to wait for.
		third := request("GET", "/closed", "203.0.113.1", "C: 2")
		for third.Path = range strings.FieldsSeq("/ / /closed") {
			d = e.Decide(t.Context(), third)
		}
		if d.Allowed || !d.Results[1].Allowed || d.Delay != 0 || d.Results[1].Delay != 0 {
			t.Errorf("a refused request has a turn: %+v", d)
		}
	})
}

// Leaving a queue lifts no other limit: not that of the window that has begun since, and
// not that of a shorter queue, where the request has had its turn.
func TestRefundLiftsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := NewEngine(memory.New(), parse(t, `
rules:
  - {name: window, match: /window, limit: 5/minute, algorithm: fixed_window}
  - {name: short, match: /short, limit: 1/second burst 2, algorithm: leaky_bucket}
  - {name: trial, limit: 1/hour burst 100, algorithm: leaky_bucket, shadow: true}
  - {name: long, key: [header:K], limit: 1/hour burst 10, algorithm: leaky_bucket}`))
		var held []Decision
		for _, path := range []string{"/window", "/window", "/window", "/short", "/short"} {
			held = append(held, e.Decide(t.Context(), get(path, "K: a")))
		}
		time.Sleep(time.Minute)
		for i, path := range []string{"/window", "/window", "/window", "/window", "/window", "/short", "/short"} {
			if d := e.Decide(t.Context(), get(path, fmt.Sprintf("K: %d", i))); !d.Allowed {
				t.Fatalf("%s: %s", path, said(d))
			}
		}
		for _, d := range held {
			e.Refund(t.Context(), d)
		}
		for _, path := range []string{"/window", "/short"} {
			if d := e.Decide(t.Context(), get(path, "K: b")); d.Allowed {
				t.Errorf("a place in the other queue has lifted %s: %s", path, said(d))
			}
		}
		// The first had its turn at once.
		d := e.Decide(t.Context(), get("/", "K: a"))
		if said(d) != "trial:91 long:8" {
			t.Errorf("after all have left: %s", said(d))
		}
	})
}

func TestNoStore(t *testing.T) {
	defer func() {
		if s, _ := recover().(string); !strings.Contains(s, "needs a store: memory.New()") {
			t.Errorf("without a store: %q", s)
		}
	}()
	NewEngine(nil, nil)
}

func TestExplain(t *testing.T) {
	e := engine(t, `
tiers: {from: header:X-Plan}
rules:
  - {name: health, match: GET /health, exempt: true}
  - {name: all, limit: 3/day}
  - {name: user, key: [header:X-User], missing: skip, limit: 10/day, tiers: {pro: 20/day}}
  - {name: queue, match: /jobs, limit: 1/day burst 3, algorithm: leaky_bucket}
  - {name: host, hosts: [other.test], limit: 1/day}
  - {name: header, headers: {X-Beta: "1"}, limit: 1/day}
  - {name: strict, match: /strict, key: [header:X-Key], missing: refuse, limit: 1/day}
  - {name: log, match: /log, limit: 2/day, algorithm: sliding_window_log}`)
	texts := func(trace Trace) (all []string) {
		for _, r := range trace.Rules {
			text := fmt.Sprintf("%s %v %s", r.Rule, r.Applies, r.Why)
			if r.Result != nil {
				text += fmt.Sprintf(" | %s %s allowed=%v remaining=%d", r.Key, r.Result.From, r.Result.Allowed, r.Result.Remaining)
			}
			all = append(all, text)
		}
		return all
	}
	check := func(r *Request, want ...string) {
		t.Helper()
		for range 2 { // nothing is taken
			got := texts(e.Explain(t.Context(), r))
			for i := range max(len(got), len(want)) {
				if i >= len(got) || i >= len(want) || got[i] != want[i] {
					t.Fatalf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
				}
			}
		}
	}
	none := "no pattern matches the method, host and path"
	rest := []string{
		`host false host "example.com" is not one of its hosts`,
		"header false the header X-Beta is missing or has another value",
		"strict false " + none, "log false " + none,
	}
	check(get("/health"), "health true exempts the request",
		`all false rule "health" exempts the request`, `user false rule "health" exempts the request`,
		`queue false rule "health" exempts the request`, `host false rule "health" exempts the request`,
		`header false rule "health" exempts the request`, `strict false rule "health" exempts the request`,
		`log false rule "health" exempts the request`)
	check(get("/health;a"), append([]string{
		"health false does not exempt: the path can be read in more than one way, and not every way matches",
		"all true every request | all rule allowed=true remaining=3",
		"user false skipped: the request lacks header:X-User", "queue false " + none}, rest...)...)
	check(get("/jobs", "X-User: bob", "X-Plan: pro"), append([]string{
		"health false " + none,
		"all true every request | all rule allowed=true remaining=3",
		"user true every request | user/bob tier:pro allowed=true remaining=20",
		`queue true match "/jobs" | queue rule allowed=true remaining=3`}, rest...)...)

	if d := e.Explain(t.Context(), get("/strict")).Decision; d.Missing != "header:X-Key" || d.Allowed {
		t.Errorf("got %+v", d)
	}
	for _, path := range []string{"/jobs", "/log", "/jobs", "/log", "/x"} {
		would := e.Explain(t.Context(), get(path)).Decision
		is := e.Decide(t.Context(), get(path))
		if would.Allowed != is.Allowed || would.Delay.Round(time.Second) != is.Delay.Round(time.Second) ||
			would.RetryAfter.Round(time.Second) != is.RetryAfter.Round(time.Second) && !is.Allowed {
			t.Errorf("%s: explained as %+v, decided %+v", path, would, is)
		}
	}
}

// What Explain foretells is what Decide then says, for every algorithm.
func TestExplainForetells(t *testing.T) {
	for _, algorithm := range sluice.Algorithms() {
		synctest.Test(t, func(t *testing.T) {
			e := engine(t, fmt.Sprintf(`rules: [{name: a, limit: 10/minute, algorithm: %v, cost: {header: C, max: 20}}, {name: b, limit: 1000/minute}]`, algorithm))
			refused := 0
			for i := range 200 {
				r := get("/", fmt.Sprintf("C: %d", 1+i%4*i%11))
				would, is := e.Explain(t.Context(), r).Decision, e.Decide(t.Context(), r)
				if would.Allowed != is.Allowed || would.Delay != is.Delay {
					t.Fatalf("%v: step %d: explained as %+v, decided %+v", algorithm, i, would, is)
				}
				if !is.Allowed {
					refused++
					if algorithm < sluice.SlidingWindowLog && would.RetryAfter != is.RetryAfter || would.RetryAfter > is.RetryAfter {
						t.Fatalf("%v: step %d: explained as %v, decided %v", algorithm, i, would.RetryAfter, is.RetryAfter)
					}
				}
				time.Sleep(time.Duration(i*i%7) * time.Second)
			}
			if refused < 20 || refused > 180 {
				t.Errorf("%v: %d of 200 refused say little", algorithm, refused)
			}
		})
	}
}

// everything returns a document with every key that there is, without its beginning.
func everything(t *testing.T) string {
	t.Helper()
	data, err := os.ReadFile("../policyfile/testdata/good/everything.yaml")
	_, rest, found := strings.Cut(string(data), "version: 1\n")
	if err != nil || !found {
		t.Fatal(err)
	}
	return rest
}

func TestHostileRequests(t *testing.T) {
	e := engine(t, everything(t))
	bodies := []func(int64) ([]byte, error){
		nil, func(int64) ([]byte, error) { return nil, nil }, func(int64) ([]byte, error) { return nil, io.ErrUnexpectedEOF },
		func(int64) ([]byte, error) { return []byte(`{"user.name":"\ud800"}`), nil },
	}
	for _, r := range []*Request{
		{}, {Path: "*", Method: "OPTIONS"}, {Path: strings.Repeat("/a", 1<<16)}, {Path: strings.Repeat("/%2e%2e;", 1<<16)},
		{Path: "/\x00\xff%zz", Method: "\xff", Host: "\xff:\x00"}, {Host: strings.Repeat(".", 1<<16)},
		{Path: "/api/x", RawQuery: strings.Repeat("user=%zz&", 1<<15), Host: "x.example.com"},
		{Path: "/jobs", Method: "POST", Header: http.Header{"X-Api-Key": {strings.Repeat("\xff", 1<<20)}, "Cookie": {strings.Repeat("session=1;", 1<<12)}}},
	} {
		for _, body := range bodies {
			r.Body = body
			first := e.Decide(t.Context(), r)
			if first.Degraded || first.Unavailable || first.Err != nil {
				t.Errorf("%.40q: %+v", r.Path, first)
			}
			if x := e.Explain(t.Context(), r).Decision; len(x.Results) != len(first.Results) || x.Missing != first.Missing {
				t.Errorf("%.40q: explained as %+v", r.Path, x)
			}
		}
	}
}

// A decision allocates its results and nothing else, and not even those if it is used again,
// observed or not. The pool is left out, since the race detector makes it forget.
func TestDecideAllocations(t *testing.T) {
	p, err := Parse("bench", benchDocument(7))
	if err != nil {
		t.Fatal(err)
	}
	e, req, s, ctx := NewEngine(memory.New(), p), benchRequest(), new(scratch), t.Context()
	var d Decision
	decide := func() {
		s.reset(p, req)
		if e.decide(ctx, s, &d); len(d.Results) != 3 || !d.Allowed {
			t.Fatalf("not what is to be measured: %+v", d)
		}
	}
	decide()
	if n := testing.AllocsPerRun(1000, func() { d = Decision{}; decide() }); n > 1 {
		t.Errorf("a decision allocates %v times, want once", n)
	}
	seen := 0
	for name, observe := range map[string]func(context.Context, *Observation){
		"unobserved": nil,
		"observed":   func(_ context.Context, o *Observation) { seen += len(o.Key(0)) },
	} {
		e.Observe = observe
		if n := testing.AllocsPerRun(1000, func() { d.reset(); decide(); e.observe(ctx, s, &d) }); n > 0 {
			t.Errorf("%s, a decision that is used again allocates %v times", name, n)
		}
	}
	if seen == 0 {
		t.Error("nothing was observed")
	}
}

// The results of a decision are its own. What was in one that is used again does not show.
func TestDecideInto(t *testing.T) {
	p := parse(t, `rules:
  - {name: queue, limit: 1/minute burst 3, algorithm: leaky_bucket}
  - {name: each, key: [client_ip], limit: 2/hour, on_error: deny}`)
	for name, store := range map[string]sluice.Store{"answers": memory.New(), "is away": brokenStore{errors.New("away")}} {
		e := NewEngine(store, p)
		kept := e.Decide(t.Context(), get("/"))
		was := slices.Clone(kept.Results)
		for range 4 {
			stale := sluice.Decision{Allowed: true, Remaining: 9, RetryAfter: 9, ResetAfter: 9, Delay: 9, Now: 9, Local: true}
			got := Decision{
				Allowed: true, Exempt: true, Degraded: true, Unavailable: true, Missing: "stale", RetryAfter: 9, Delay: 9, Now: 9, Err: io.EOF,
				Results: make([]Result, 5), taken: make([]sluice.Charge, 5),
			}
			for i := range got.Results {
				got.Results[i] = Result{Rule: "stale", From: "stale", Cost: 9, Shadow: true, Decision: stale}
			}
			memory := &got.Results[0]
			want := e.Explain(t.Context(), get("/")).Decision
			e.DecideInto(t.Context(), get("/"), &got)
			if len(got.Results) != 2 || &got.Results[0] != memory {
				t.Fatalf("store %s: %d results, and their memory is not used", name, len(got.Results))
			}
			if got.Allowed != want.Allowed || got.Exempt || got.Degraded != want.Degraded || got.Unavailable != want.Unavailable || got.Missing != "" ||
				got.Now == 9 || got.RetryAfter == 9 || got.Delay == 9 || got.Err == io.EOF || len(got.taken) == 5 {
				t.Errorf("store %s: %+v, and Explain has %+v", name, got, want)
			}
			for i, r := range got.Results {
				w := want.Results[i]
				if r.Rule != w.Rule || r.Plan != w.Plan || r.From != w.From || r.Cost != w.Cost || r.Shadow || r.Local || r.Now == 9 || r.Delay == 9 || r.ResetAfter == 9 {
					t.Errorf("store %s: %+v, and Explain has %+v", name, r, w)
				}
			}
		}
		if !slices.Equal(kept.Results, was) {
			t.Errorf("store %s: the results of a decision have changed", name)
		}
	}
}

// The policy that decides is the one that resolves the client, whatever is swapped meanwhile.
func TestPeer(t *testing.T) {
	const rules = `
trusted_proxies: [10.0.0.0/8]
rules: [{name: each, key: [client_ip], limit: 1/day}]`
	for _, tt := range []struct {
		name, peer, field, list, want string
	}{
		{"not a proxy", "192.0.2.1", "", "198.51.100.1", "192.0.2.1"},
		{"a proxy", "10.0.0.1", "", "203.0.113.9, 198.51.100.1, 10.0.0.2", "198.51.100.1"},
		{"a proxy, IPv4 as IPv6", "::ffff:10.0.0.1", "", "198.51.100.1", "198.51.100.1"},
		{"a proxy that says nothing", "10.0.0.1", "", "", "10.0.0.1"},
		{"a header of another name", "10.0.0.1", "x-real-ip", "198.51.100.1", "198.51.100.1"},
	} {
		e, stored := recorded(t, rules)
		r := request("GET", "/", tt.peer)
		r.ForwardedHeader = tt.field
		if name := cmp.Or(tt.field, "X-Forwarded-For"); tt.list != "" {
			r.Header.Set(name, tt.list)
		}
		e.Decide(t.Context(), r)
		if got := stored.charges[0].Key; got != "each/"+tt.want {
			t.Errorf("%s: counted as %s, want %s", tt.name, got, tt.want)
		}
		if got := e.Explain(t.Context(), r).Client.String(); got != tt.want {
			t.Errorf("%s: explained as %s, want %s", tt.name, got, tt.want)
		}
	}
}

// recorded returns an engine, and what it charges.
func recorded(t *testing.T, rules string) (*Engine, *recorder) {
	t.Helper()
	stored := &recorder{Store: memory.New()}
	return NewEngine(stored, parse(t, rules)), stored
}

// Overrides end by the time of the request where it has one, so that what was may be played
// again.
func TestTime(t *testing.T) {
	e := engine(t, `
rules: [{name: each, key: [client_ip], limit: 1/day}]
overrides: [{rule: each, key: {client_ip: 192.0.2.1}, limit: 5/day, until: 2001-02-03T04:05:06Z}]`)
	end := time.Date(2001, 2, 3, 4, 5, 6, 0, time.UTC)
	for at, want := range map[time.Time]string{{}: "rule", end: "rule", end.Add(-time.Microsecond): "override", end.AddDate(1000, 0, 0): "rule"} {
		r := get("/")
		r.Time = at
		if got := e.Decide(t.Context(), r).Results[0].From; got != want {
			t.Errorf("at %v the limit is from the %s, want %s", at, got, want)
		}
	}
}

func TestAttributes(t *testing.T) {
	e, stored := recorded(t, `
tiers: {from: attr:plan}
rules:
  - {name: user, key: [attr:user], limit: 1/day, missing: skip, tiers: {pro: 9/day}}
  - {name: all, key: ["attr:Some Name"], limit: 5/day}`)
	r := get("/")
	r.Attributes = map[string]string{"user": "Álice/1", "plan": "pro", "Some Name": ""}
	d := e.Decide(t.Context(), r)
	if len(d.Results) != 2 || d.Results[0].From != "tier:pro" || stored.charges[0].Key != "user/%C3%81lice%2F1" || stored.charges[1].Key != "all/!" {
		t.Errorf("charged %+v, and said %+v", stored.charges, d.Results)
	}
	if d := e.Decide(t.Context(), get("/")); len(d.Results) != 1 {
		t.Errorf("without attributes %d rules apply", len(d.Results))
	}
}

// A request that counts for several takes as many times the cost of each rule.
func TestRequestCost(t *testing.T) {
	rules := `
rules:
  - {name: one, limit: 100/day}
  - {name: two, limit: 100/day, cost: 2}
  - {name: said, limit: 100/day, cost: {header: X-Cost, max: 10}}`
	for _, tt := range []struct {
		cost int64
		want string
	}{
		{0, "one:99 two:98 said:97"}, {1, "one:99 two:98 said:97"}, {-5, "one:99 two:98 said:97"}, {2, "one:98 two:96 said:94"}, {7, "one:93 two:86 said:79"},
		{60, "one:100 two:refused said:refused"}, {math.MaxInt64, "one:refused two:refused said:refused"},
	} {
		r := get("/", "X-Cost: 3")
		r.Cost = tt.cost
		d := engine(t, rules).Decide(t.Context(), r)
		if got := said(d); got != tt.want {
			t.Errorf("%d such requests: %s, want %s", tt.cost, got, tt.want)
		}
		if !d.Allowed && d.RetryAfter != sluice.Never {
			t.Errorf("%d such requests may be tried again in %v", tt.cost, d.RetryAfter)
		}
	}
}

func TestObserve(t *testing.T) {
	e := engine(t, `
trusted_proxies: [192.0.2.1]
rules:
  - {name: open, match: /open, exempt: true}
  - {name: each, key: [client_ip, "header:X-User"], limit: 1/day, missing: refuse}`)
	var all []string
	type mine struct{}
	ctx := context.WithValue(t.Context(), mine{}, true)
	e.Observe = func(c context.Context, o *Observation) {
		if c != ctx {
			t.Error("it is another context")
		}
		text := fmt.Sprint(o.Request.Path, " ", o.Client(), " allowed:", o.Decision.Allowed, " exempt:", o.Decision.Exempt, " missing:", o.Decision.Missing)
		for i, r := range o.Decision.Results {
			text += fmt.Sprint(" ", r.Rule, " ", o.Key(i), " ", r.Remaining)
		}
		all = append(all, text)
	}
	for _, r := range []*Request{get("/open"), get("/a"), get("/b", "X-User: u", "X-Forwarded-For: 198.51.100.7"), get("/c", "X-User: u", "X-Forwarded-For: 198.51.100.7")} {
		said := e.Decide(ctx, r)
		var d Decision
		if e.DecideInto(ctx, r, &d); len(all) != 2 || d.Missing != said.Missing {
			t.Errorf("%s: observed %q", r.Path, all)
		}
		e.Explain(ctx, r)
		want := map[string][]string{
			"/open": {"/open 192.0.2.1 allowed:true exempt:true missing:", "/open 192.0.2.1 allowed:true exempt:true missing:"},
			"/a":    {"/a 192.0.2.1 allowed:false exempt:false missing:header:X-User", "/a 192.0.2.1 allowed:false exempt:false missing:header:X-User"},
			"/b":    {"/b 198.51.100.7 allowed:true exempt:false missing: each each/198.51.100.7/u 0", "/b 198.51.100.7 allowed:false exempt:false missing: each each/198.51.100.7/u 0"},
			"/c":    {"/c 198.51.100.7 allowed:false exempt:false missing: each each/198.51.100.7/u 0", "/c 198.51.100.7 allowed:false exempt:false missing: each each/198.51.100.7/u 0"},
		}[r.Path]
		if !slices.Equal(all, want) {
			t.Errorf("%s: observed %q, want %q", r.Path, all, want)
		}
		all = nil
	}
}

func TestTrustedProxies(t *testing.T) {
	e := engine(t, `
trusted_proxies: [10.0.0.0/8, 192.0.2.7, "::ffff:198.51.100.0/120", "2001:db8::1", "::ffff:203.0.113.1", "::/0"]
rules: []`)
	want := []string{"10.0.0.0/8", "192.0.2.7/32", "198.51.100.0/24", "2001:db8::1/128", "203.0.113.1/32", "::/0"}
	var got []string
	for _, p := range e.TrustedProxies() {
		got = append(got, p.String())
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// A path with very many readings would charge every rule that has patterns.
func TestAmbiguousPath(t *testing.T) {
	e := NewEngine(memory.New(), parse(t, `
rules:
  - {name: health, match: GET /health, exempt: true}
  - {name: a, match: /a, limit: 5/day}
  - {name: b, match: /b, limit: 5/day}`))
	for _, path := range []string{
		`/a;b/..;c/%2e%2e/%252f\x%3f/..;/%5c..%3bq`,
	} {
		if d := e.Decide(t.Context(), get(path)); d.Allowed || d.Exempt || d.Missing == "" || len(d.Results) > 0 {
			t.Errorf("%s: %+v", path, d)
		}
		if d := e.Explain(t.Context(), get(path)).Decision; d.Missing == "" {
			t.Errorf("%s is explained as %+v", path, d)
		}
	}
	for _, path := range []string{
		"/proxy/https%3A%2F%2Fexample.com%2Fa%2Fb%3Fc%3D1%26d%3D2",
		"/proxy/https%3A%2F%2Fexample.com%2F" + strings.Repeat("path%2Fto%2F", 50) + "%3Fq%3Da%2520b%26r%3Dc%23d",
		"/matrix;a=1;b=2/x;c=3",
		"/files/a%20b%20(c).txt",
	} {
		if d := e.Decide(t.Context(), get(path)); !d.Allowed || d.Missing != "" {
			t.Errorf("%.60s: %+v", path, d)
		}
	}
	shadows := NewEngine(memory.New(), parse(t, `
rules:
  - {name: all, limit: 5/day}
  - {name: a, match: /a, limit: 5/day, shadow: true}`))
	if d := shadows.Decide(t.Context(), get(`/a;b/..;c/%2e%2e/%252f\x%3f/..;/%5c..%3bq`)); !d.Allowed || len(d.Results) != 1 {
		t.Errorf("a shadow has refused: %+v", d)
	}
	if d := e.Decide(t.Context(), get("/a")); d.Results[0].Remaining != 4 {
		t.Errorf("what was refused was counted: %+v", d)
	}
}

// What servers may read in several ways is refused where a rule says so, and by default
// where it counts by a name that somebody has typed.
func TestAmbiguous(t *testing.T) {
	const rules = `
rules:
  - {name: address, match: POST /auth/login, key: [client_ip], limit: 100/day}
  - {name: account, match: POST /auth/login, key: ["body:username"], limit: 100/day%s}`
	post := func(path, body string) *Request {
		return withBody(request("POST", path, "192.0.2.1"), body)
	}
	for _, tt := range []struct {
		policy, rule, path, body string
		missing, said            string
	}{
		{"", "", "/auth/login", `{"username":"alice"}`, "", "address:99 account:99"},
		{"", "", "/auth/login/", `{"username":"alice"}`, "", "address:99 account:99"},
		{"", "", "/auth//login", `{"username":"alice"}`, "", "address:99 account:99"},
		{"", "", "/auth/login.json", `{"username":"alice"}`, "", "address:99 account:99"},
		{"", "", "/auth/login", `{}`, "", "address:99 account:99"},
		{"", "", "//x/auth/login", `{"username":"alice"}`, "an unambiguous path", ""},
		{"", "", "/auth%2flogin", `{"username":"alice"}`, "an unambiguous path", ""},
		{"", "", "/x/../auth/login", `{"username":"alice"}`, "an unambiguous path", ""},
		{"", "", "/auth/login;x", `{"username":"alice"}`, "an unambiguous path", ""},
		{"", "", "/auth/login", `{"username":"alice","username":"bob"}`, "an unambiguous body:username", ""},
		{"", "", "/auth/login", `{"username[]":"alice"}`, "an unambiguous body:username", ""},
		{"", "", "//x/other", `{"username":"alice"}`, "", ""},
		{"", ", missing: skip", "/auth/login", `{"username[]":"alice"}`, "an unambiguous body:username", ""},
		{"", ", missing: skip", "/auth/login", `{}`, "", "address:99"},
		{"", ", ambiguous: charge", "//x/auth/login", `{"username":"alice"}`, "", "address:99 account:99"},
		{"", ", ambiguous: charge", "/auth/login", `{"username[]":"alice"}`, "", "address:99 account:99"},
		{"", ", ambiguous: charge, missing: skip", "/auth/login", `{"username[]":"alice"}`, "", "address:99 account:99"},
		{"", ", shadow: true", "//x/auth/login", `{"username[]":"alice"}`, "", "address:99 account:99"},
		{"ambiguous: charge", "", "//x/auth/login", `{"username":"alice"}`, "", "address:99 account:99"},
		{"ambiguous: charge", ", ambiguous: refuse", "//x/auth/login", `{"username":"alice"}`, "an unambiguous path", ""},
	} {
		e := engine(t, tt.policy+fmt.Sprintf(rules, tt.rule))
		d := e.Decide(t.Context(), post(tt.path, tt.body))
		if d.Missing != tt.missing || said(d) != tt.said || d.Allowed != (tt.missing == "") {
			t.Errorf("%s%s: %s %s: lacks %q, %q; want %q, %q", tt.policy, tt.rule, tt.path, tt.body, d.Missing, said(d), tt.missing, tt.said)
		}
		if again := e.Explain(t.Context(), post(tt.path, tt.body)).Decision.Missing; again != tt.missing {
			t.Errorf("%s%s: %s %s is explained as %q", tt.policy, tt.rule, tt.path, tt.body, again)
		}
	}
	// A body that broke off is nothing that a server could read: it is counted.
	e := engine(t, fmt.Sprintf(rules, ", missing: skip"))
	r := post("/auth/login", "")
	r.Body = func(int64) ([]byte, error) { return nil, io.ErrUnexpectedEOF }
	if d := e.Decide(t.Context(), r); said(d) != "address:99 account:99" {
		t.Errorf("a body that broke off: %+v", d)
	}
	// A rule by address alone charges every reading, and refuses where it is told to.
	for setting, missing := range map[string]string{"": "", "ambiguous: refuse": "an unambiguous path"} {
		e := engine(t, setting+`
rules: [{name: address, match: POST /auth/login, key: [client_ip], limit: 100/day}]`)
		if d := e.Decide(t.Context(), post("//x/auth/login", "")); d.Missing != missing || d.Allowed && said(d) != "address:99" {
			t.Errorf("%q: %+v", setting, d)
		}
	}
}

// Requests that are refused as malformed are not free: they count for the rules that can tell
// whose they are.
func TestMalformedCounts(t *testing.T) {
	e := engine(t, `
rules:
  - {name: address, key: [client_ip], limit: 3/day}
  - {name: path, match: POST /auth/login, key: [client_ip], limit: 100/day}
  - {name: keyed, match: POST /auth/login, key: [api_key], missing: refuse, limit: 100/day}
  - {name: account, match: POST /auth/login, key: ["body:username"], limit: 100/day}`)
	said := func(r *Request) string {
		d := e.Decide(t.Context(), r)
		if d.Allowed {
			t.Errorf("allowed: %+v", d)
		}
		return d.Missing
	}
	login := func(path, body string, headers ...string) *Request {
		return withBody(request("POST", path, "192.0.2.1", headers...), body)
	}
	for _, tt := range []struct {
		r    *Request
		want string
	}{
		{login("/auth/login", `{"username":"a","username":"b"}`, "X-API-Key: k"), "an unambiguous body:username"},
		{login("/x/../auth/login", `{"username":"a"}`, "X-API-Key: k"), "an unambiguous path"},
		{login("/auth/login", `{"username":"a"}`), "api_key"},
		{login("/auth/login", `{"username":"a","username":"b"}`, "X-API-Key: k"), ""}, // a 429
	} {
		if got := said(tt.r); got != tt.want {
			t.Errorf("lacks %q, want %q", got, tt.want)
		}
	}
	d := e.Decide(t.Context(), request("POST", "/auth/login", "192.0.2.1", "X-API-Key: k"))
	if d.Missing != "" || d.Allowed || len(d.Results) == 0 || d.Results[0].Rule != "address" || d.RetryAfter < time.Hour {
		t.Errorf("after that: %+v", d)
	}
	peek := e.Explain(t.Context(), withBody(request("POST", "/auth/login", "192.0.2.1", "X-API-Key: k"), `{"username":"a"}`)).Decision
	for _, r := range peek.Results {
		if want := map[string]int64{"address": 0, "path": 98, "keyed": 99, "account": 100}[r.Rule]; r.Remaining != want {
			t.Errorf("%s has %d left, want %d", r.Rule, r.Remaining, want)
		}
	}
}

// A long name of a host costs no more than one as long as names may be.
func TestLongHost(t *testing.T) {
	e := engine(t, `
rules: [{name: below, hosts: ["*.example.com"], limit: 1/day}]`)
	r := get("/")
	r.Host = strings.Repeat("a.", 40_000) + "example.com:80"
	if d := e.Decide(t.Context(), r); len(d.Results) != 1 {
		t.Errorf("the end of a long host is not read: %+v", d)
	}
}

// Who is over a limit that needs no body does not have it read, and what is refused so has
// charged nothing.
func TestRefusedUnread(t *testing.T) {
	e := engine(t, `
rules:
  - {name: address, key: [client_ip], limit: 2/day}
  - {name: global, limit: 100/day}
  - {name: watched, limit: 1/day, shadow: true}
  - {name: account, match: POST /login, key: ["body:username"], limit: 100/day}`)
	read := 0
	post := func(client string) *Request {
		r := request("POST", "/login", client)
		r.Body = func(int64) ([]byte, error) { read++; return []byte("username=alice"), nil }
		return r
	}
	for range 5 {
		e.Decide(t.Context(), post("192.0.2.1"))
	}
	if read != 2 {
		t.Errorf("the body was read %d times, want 2", read)
	}
	d := e.Decide(t.Context(), post("192.0.2.1"))
	if got, want := said(d), "address:refused global:98"; got != want || d.RetryAfter != d.Results[0].RetryAfter || d.RetryAfter < 11*time.Hour {
		t.Errorf("got %s after %v, want %s", got, d.RetryAfter, want)
	}
	if got, want := said(e.Decide(t.Context(), post("192.0.2.2"))), "address:1 global:97 watched:refused account:97"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
