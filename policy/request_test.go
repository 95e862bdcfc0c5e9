package policy

import (
	"cmp"
	"context"
	"math"
	"net/http"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/memory"
)

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

// An override that ended as the Unix epoch began has ended, too.
func TestUntilEpoch(t *testing.T) {
	e := engine(t, `
rules: [{name: each, key: [client_ip], limit: 1/day}]
overrides: [{rule: each, key: {client_ip: 192.0.2.1}, limit: 5/day, until: 1970-01-01}]`)
	if got := e.Decide(t.Context(), get("/")).Results[0].From; got != "rule" || len(e.Policy().Warnings()) != 1 {
		t.Errorf("the limit is from the %s, with warnings %v", got, e.Policy().Warnings())
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

// Rules with patterns do not apply to a request without a path, and the others do.
func TestNoPath(t *testing.T) {
	p, err := Compile(Document{Rules: []Rule{
		{Name: "open", Match: []string{"/{rest...}"}, Exempt: true},
		{Name: "all", Key: []string{"client_ip"}, Limit: "1/hour"},
		{Name: "paths", Match: []string{"/{rest...}"}, Limit: "1/hour"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	e := NewEngine(memory.New(), p)
	r := Request{NoPath: true, Peer: netip.MustParseAddr("192.0.2.1")}
	for i := range 2 {
		d := e.Decide(t.Context(), &r)
		if d.Allowed != (i == 0) || len(d.Results) != 1 || d.Results[0].Rule != "all" {
			t.Errorf("request %d: %+v", i, d)
		}
	}
	var by string
	e.Observe(func(_ context.Context, o *Observation) { by = o.Exempting() })
	if d := e.Decide(t.Context(), &Request{Path: "/", Peer: r.Peer}); !d.Exempt || by != "open" {
		t.Errorf("exempt %v by %q", d.Exempt, by)
	}
	if e.Decide(t.Context(), &r); by != "" {
		t.Errorf("a request that no rule exempts is exempted by %q", by)
	}
}

// Requests are apart for client_ip as Partition says.
func TestPartition(t *testing.T) {
	p, err := Compile(Document{TrustedProxies: []string{"10.0.0.0/8"}, IPv6Prefix: 48})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ peer, forwarded, want string }{
		{"192.0.2.1", "", "192.0.2.1"},
		{"::ffff:192.0.2.1", "198.51.100.1", "192.0.2.1"},
		{"10.0.0.1", "198.51.100.1, 10.0.0.2", "198.51.100.1"},
		{"10.0.0.1", "2001:db8:1:2::3", "2001:db8:1::"},
	} {
		r := Request{Peer: netip.MustParseAddr(tt.peer), Header: http.Header{}}
		if tt.forwarded != "" {
			r.Header.Set("X-Forwarded-For", tt.forwarded)
		}
		if got := p.Partition(&r); got != netip.MustParseAddr(tt.want) {
			t.Errorf("%s for %q is %v, want %s", tt.peer, tt.forwarded, got, tt.want)
		}
	}
	if got := p.Partition(&Request{}); got.IsValid() {
		t.Errorf("nobody is %v", got)
	}
}
