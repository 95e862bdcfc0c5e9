package policy

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/seed"
	"github.com/sluicehq/sluice/memory"
)

// outcomeOf says in a word what a decision is, with what each rule has said.
func outcomeOf(d Decision) string {
	switch {
	case d.Exempt:
		return "exempt"
	case d.Blocked != "":
		return "blocked by " + d.Blocked
	case d.Missing != "":
		return "lacks " + d.Missing
	}
	return said(d)
}

func TestClients(t *testing.T) {
	e := engine(t, `
trusted_proxies: [10.0.0.1]
lists:
  office: [192.0.2.0/25, "2001:db8:1::/48"]
  abusers: [192.0.2.200, "2001:db8:2::7", 198.51.100.0/24, 192.0.2.9]
  nobody: []
rules:
  - {name: internal, clients: [office, 10.0.0.0/8], not_clients: [192.0.2.7], exempt: true}
  - {name: blocked, clients: [nobody, abusers], block: true}
  - {name: strangers, not_clients: [203.0.113.0/24, office], limit: 10/day}
  - {name: guests, clients: [203.0.113.0/24], hosts: [example.com], limit: 10/day}
  - {name: never, clients: [nobody], limit: 10/day}`)
	for _, tt := range []struct{ peer, forwarded, want string }{
		{"192.0.2.1", "", "exempt"},
		{"192.0.2.9", "", "exempt"}, // an exemption comes before a block
		{"::ffff:192.0.2.1", "", "exempt"},
		{"192.0.2.7", "", ""},
		{"192.0.2.128", "", "strangers:9"},
		{"192.0.2.200", "", "blocked by blocked"},
		{"198.51.100.255", "", "blocked by blocked"},
		{"198.51.101.0", "", "strangers:8"},
		{"2001:db8:1:ffff::1", "", "exempt"},
		{"2001:db8:2::7", "", "blocked by blocked"},
		{"2001:db8:2::7%eth0", "", "blocked by blocked"},
		{"2001:db8:2::8", "", "strangers:7"}, // of the same /64
		{"203.0.113.1", "", "guests:9"},
		{"10.0.0.2", "", "exempt"},
		{"10.0.0.1", "203.0.113.1", "guests:8"},
		{"10.0.0.1", "192.0.2.1, 198.51.100.1", "blocked by blocked"},
		{"10.0.0.2", "198.51.100.1", "exempt"}, // whom nobody trusts
	} {
		r := request("GET", "/", tt.peer)
		if tt.forwarded != "" {
			r.Header.Set("X-Forwarded-For", tt.forwarded)
		}
		would := outcomeOf(e.Explain(t.Context(), r).Decision)
		got := outcomeOf(e.Decide(t.Context(), r))
		if got != tt.want && !(got == "" && tt.want == "") {
			t.Errorf("%s %s: %s, want %s", tt.peer, tt.forwarded, got, tt.want)
		}
		if strings.Split(would, ":")[0] != strings.Split(got, ":")[0] {
			t.Errorf("%s %s: %s, explained as %s", tt.peer, tt.forwarded, got, would)
		}
	}
}

// Who has no address is in no list. That exempts nobody.
func TestClientsWithoutAddress(t *testing.T) {
	e := engine(t, `
rules:
  - {name: exempt, not_clients: [192.0.2.0/24], exempt: true}
  - {name: in, clients: ["::/0", 0.0.0.0/0], limit: 10/day}
  - {name: out, not_clients: ["::/0", 0.0.0.0/0], limit: 10/day}`)
	if got := outcomeOf(e.Decide(t.Context(), &Request{Path: "/"})); got != "out:9" {
		t.Errorf("without an address: %s", got)
	}
	if got := outcomeOf(e.Decide(t.Context(), request("GET", "/", "198.51.100.1"))); got != "exempt" {
		t.Errorf("with one: %s", got)
	}
}

// A random policy decides as its conditions do one by one, by the text of their networks.
func TestClientsModel(t *testing.T) {
	seed := seed.Of(t)
	r := rand.New(rand.NewPCG(seed, 1))
	pool := []string{"0.0.0.0/0", "::/0", "10.0.0.0/8", "10.1.0.0/16", "10.1.2.3", "10.1.2.4/30", "2001:db8::/32", "2001:db8::1", "2001:db8::/127", "::ffff:10.1.0.0/112"}
	asked := []string{"10.0.0.1", "10.1.2.3", "10.1.2.7", "10.1.2.8", "11.0.0.0", "2001:db8::", "2001:db8::1", "2001:db8::2", "2001:db9::", "::ffff:10.1.2.3"}
	some := func() (all []string) {
		for range r.IntN(3) {
			all = append(all, pool[r.IntN(len(pool))])
		}
		return all
	}
	has := func(networks []string, a netip.Addr) bool {
		return slices.ContainsFunc(networks, func(s string) bool {
			if s == "::ffff:10.1.0.0/112" {
				s = "10.1.0.0/16"
			}
			if p, err := netip.ParsePrefix(s); err == nil {
				return p.Contains(a.Unmap())
			}
			return netip.MustParseAddr(s) == a.Unmap()
		})
	}
	for range 500 {
		doc := Document{Lists: map[string]List{"a": {Networks: some()}, "b": {Networks: some()}}}
		for i := range 4 {
			rule := Rule{Name: fmt.Sprint("r", i), Clients: some(), NotClients: some(), Exempt: i == 0, Block: i == 1}
			if r.IntN(2) == 0 {
				rule.Clients = append(rule.Clients, "a")
			}
			if r.IntN(2) == 0 {
				rule.NotClients = append(rule.NotClients, "b")
			}
			if i > 1 {
				rule.Limit = "1000/day"
			}
			doc.Rules = append(doc.Rules, rule)
		}
		p, err := Compile(doc)
		if err != nil {
			t.Fatal(err)
		}
		e := NewEngine(memory.New(), p)
		for _, s := range asked {
			a := netip.MustParseAddr(s)
			holds := func(entries []string) bool {
				return slices.ContainsFunc(entries, func(s string) bool {
					if l, known := doc.Lists[s]; known {
						return has(l.Networks, a)
					}
					return has([]string{s}, a)
				})
			}
			var meets []string
			for _, rule := range doc.Rules {
				if (len(rule.Clients) == 0 || holds(rule.Clients)) && !holds(rule.NotClients) {
					meets = append(meets, rule.Name)
				}
			}
			d := e.Decide(t.Context(), request("GET", "/", s))
			var got []string
			for _, res := range d.Results {
				got = append(got, res.Rule)
			}
			want := meets
			if slices.Contains(meets, "r1") {
				want = []string{"r1"}
			}
			if slices.Contains(meets, "r0") {
				want = nil
			}
			if d.Exempt != slices.Contains(meets, "r0") || !slices.Equal(got, want) {
				t.Fatalf("seed %d: %s meets %v, and the decision is %+v\n%+v", seed, s, meets, d, doc)
			}
		}
	}
}

// What is blocked is charged to nobody and has its body left alone; an observer hears of it.
func TestBlockingRule(t *testing.T) {
	e := engine(t, `
lists: {abusers: [192.0.2.0/24]}
rules:
  - {name: account, match: POST /login, key: ["body:username"], limit: 5/day}
  - {name: per-address, key: [client_ip], limit: 5/day}
  - {name: first, clients: [abusers], match: POST /, block: true}
  - {name: second, clients: [192.0.2.1], block: true}
  - {name: watched, match: /login, block: true, shadow: true}`)
	var seen []string
	e.Observe(func(_ context.Context, o *Observation) {
		for i, r := range o.Decision.Results {
			seen = append(seen, fmt.Sprintf("%s %v %v %q %v", r.Rule, r.Allowed, r.Shadow, o.Key(i), r.From))
		}
	})
	post := request("POST", "/login", "192.0.2.1")
	post.Body = func(int64) ([]byte, error) { t.Error("the body was read"); return nil, nil }
	d := e.Decide(t.Context(), post)
	if d.Allowed || d.Blocked != "first" || d.RetryAfter != sluice.Never || d.Missing != "" {
		t.Errorf("%+v", d)
	}
	if want := []string{`first false false "" block`, `second false false "" block`, `watched false true "" block`}; !slices.Equal(seen, want) {
		t.Errorf("observed %q, want %q", seen, want)
	}
	seen = nil
	other := withBody(request("POST", "/login", "203.0.113.1"), `{"username":"alice"}`)
	if d := e.Decide(t.Context(), other); !d.Allowed || said(d) != "account:4 per-address:4 watched:refused" {
		t.Errorf("a shadow: %+v", d)
	}
	if want := []string{`account true false "account/alice" rule`, `per-address true false "per-address/203.0.113.1" rule`, `watched false true "" block`}; !slices.Equal(seen, want) {
		t.Errorf("observed %q, want %q", seen, want)
	}
	s, err := e.Subject("per-address", map[string]string{"client_ip": "192.0.2.1"})
	if err != nil {
		t.Fatal(err)
	}
	if now, err := s.Peek(t.Context()); err != nil || now[0].Remaining != 5 {
		t.Errorf("what was blocked was charged: %+v, %v", now, err)
	}
	if _, err := e.Subject("first", nil); err == nil || !strings.Contains(err.Error(), "blocks") {
		t.Errorf("a subject of a rule that blocks: %v", err)
	}
	// The memory of a decision that was blocked is used again.
	e.DecideInto(t.Context(), post, &d)
	e.DecideInto(t.Context(), request("GET", "/", "203.0.113.1"), &d)
	if !d.Allowed || d.Blocked != "" || said(d) != "per-address:3" || d.Results[0].Plan == nil {
		t.Errorf("used again: %+v", d)
	}
}

// A rule that blocks whatever comes is warned of, and not one that blocks by an attribute, as a limit
// of 0 of an Envoy configuration does.
func TestBlockingRuleIsWarnedOf(t *testing.T) {
	for conditions, want := range map[string]int{"": 1, "attributes: {limit: none}, ": 0, "headers: {X-A: b}, ": 0} {
		all := parse(t, "rules: [{name: closed, "+conditions+"block: true}]").Warnings()
		if n := strings.Count(fmt.Sprint(all), "the rule blocks every request"); n != want {
			t.Errorf("%q: %v", conditions, all)
		}
	}
}

// One way to read a path is enough to be blocked, and an exemption needs all of them.
func TestBlockReadings(t *testing.T) {
	e := engine(t, `
rules:
  - {name: health, match: GET /health, clients: [192.0.2.0/24], exempt: true}
  - {name: admin, match: /admin/, not_clients: [192.0.2.0/24], block: true}
  - {name: global, limit: 100/day}`)
	for _, tt := range []struct{ path, client, want string }{
		{"/admin/x", "203.0.113.1", "blocked by admin"},
		{"/x/../admin/x", "203.0.113.1", "blocked by admin"},
		{"/%61dmin/x", "203.0.113.1", "blocked by admin"},
		{"//x/admin/y", "203.0.113.1", "blocked by admin"},
		{"/a;b/..;c/%2e%2e/%252f\\x%3f/..;/%5c..%3bq", "203.0.113.1", "blocked by admin"},
		{"/a;b/..;c/%2e%2e/%252f\\x%3f/..;/%5c..%3bq", "192.0.2.1", "global:99"},
		{"/admin/x", "192.0.2.1", "global:98"},
		{"/health", "192.0.2.1", "exempt"},
		{"/x/../health", "192.0.2.1", "global:97"},
		{"/health", "203.0.113.1", "global:96"},
	} {
		if got := outcomeOf(e.Decide(t.Context(), request("GET", tt.path, tt.client))); got != tt.want {
			t.Errorf("%s of %s: %s, want %s", tt.path, tt.client, got, tt.want)
		}
	}
}

func TestExplainClients(t *testing.T) {
	e := engine(t, `
lists: {office: [192.0.2.0/24], abusers: [198.51.100.0/24]}
rules:
  - {name: internal, clients: [office, 10.0.0.0/8], exempt: true}
  - {name: blocked, match: GET /, clients: [abusers], block: true}
  - {name: watched, not_clients: [203.0.113.7], block: true, shadow: true}
  - {name: guests, match: GET /, clients: [203.0.113.0/24, "2001:db8::/32"], not_clients: [203.0.113.8], limit: 5/day}
  - {name: others, not_clients: [203.0.113.0/25, office], limit: 5/day}
  - {name: all, limit: 5/day}`)
	for client, want := range map[string][]string{
		"10.1.2.3": {"+exempts the request, client 10.1.2.3 is in 10.0.0.0/8", `rule "internal" exempts the request`, `rule "internal" exempts the request`,
			`rule "internal" exempts the request`, `rule "internal" exempts the request`, `rule "internal" exempts the request`},
		"198.51.100.1": {`client 198.51.100.1 is not in "office" or "10.0.0.0/8"`, "+blocks the request, client 198.51.100.1 is in abusers",
			`+would block the request (only watched: a shadow never refuses), client 198.51.100.1 is not in "203.0.113.7/32"`, `rule "blocked" blocks the request`, `rule "blocked" blocks the request`, `rule "blocked" blocks the request`},
		"203.0.113.7": {`client 203.0.113.7 is not in "office" or "10.0.0.0/8"`, `client 203.0.113.7 is not in "abusers"`, "client 203.0.113.7 is in 203.0.113.7/32",
			`+match "GET /", client 203.0.113.7 is in 203.0.113.0/24, client 203.0.113.7 is not in "203.0.113.8/32"`, "client 203.0.113.7 is in 203.0.113.0/25", "+every request"},
		"203.0.113.200": {`client 203.0.113.200 is not in "office" or "10.0.0.0/8"`, `client 203.0.113.200 is not in "abusers"`,
			`+would block the request (only watched: a shadow never refuses), client 203.0.113.200 is not in "203.0.113.7/32"`,
			`+match "GET /", client 203.0.113.200 is in 203.0.113.0/24, client 203.0.113.200 is not in "203.0.113.8/32"`,
			`+client 203.0.113.200 is not in "office" or "203.0.113.0/25"`, "+every request"},
	} {
		trace := e.Explain(t.Context(), request("GET", "/", client))
		for i, r := range trace.Rules {
			got := r.Why
			if r.Applies {
				got = "+" + got
			}
			if got != want[i] {
				t.Errorf("%s: %s: %s\nwant %s", client, r.Rule, got, want[i])
			}
			if counts := r.Applies && i > 2; (len(r.Results) > 0) != counts || counts && r.Results[0].Rule != r.Rule {
				t.Errorf("%s: %s has the results %+v", client, r.Rule, r.Results)
			}
		}
	}
}

// A document that nobody has read the files of is no policy.
func TestListOfFile(t *testing.T) {
	doc := Document{Lists: map[string]List{"abusers": {File: "abusers.txt"}}, Rules: []Rule{{Name: "a", Clients: []string{"abusers"}, Block: true}}}
	if _, err := Compile(doc); err == nil || !strings.Contains(err.Error(), `list "abusers" is in the file "abusers.txt", which nobody has read`) {
		t.Errorf("%v", err)
	}
	doc.Lists["abusers"] = List{File: "abusers.txt", Networks: []string{}}
	if _, err := Compile(doc); err != nil {
		t.Error(err)
	}
}

func TestListJSON(t *testing.T) {
	for text, wrong := range map[string]bool{
		`[]`: false, `["10.0.0.0/8"]`: false, `{"file":"a.txt"}`: false,
		`{}`: true, `{"file":""}`: true, `"10.0.0.0/8"`: true, `[1]`: true,
	} {
		var l List
		err := json.Unmarshal([]byte(text), &l)
		if (err != nil) != wrong {
			t.Errorf("%s: %v", text, err)
		}
		if again, _ := json.Marshal(l); !wrong && string(again) != text {
			t.Errorf("%s became %s", text, again)
		}
	}
}

// A file that is no list is not complained about a million times.
func TestManyBadEntries(t *testing.T) {
	doc := Document{Lists: map[string]List{"a": {Networks: slices.Repeat([]string{"nonsense"}, 1000)}}}
	_, err := Compile(doc)
	if all, _ := err.(Errors); len(all) != maxBadEntries {
		t.Errorf("%d problems", len(all))
	}
}

// BenchmarkClients decides about requests that a rule exempts, by a list of 100,000 networks.
func BenchmarkClients(b *testing.B) {
	var abusers []string
	for i := range 100_000 {
		abusers = append(abusers, netip.AddrFrom4([4]byte{byte(i>>16) + 1, byte(i >> 8), byte(i), 8}).String())
	}
	p, err := Compile(Document{Lists: map[string]List{"abusers": {Networks: abusers}}, Rules: []Rule{
		{Name: "blocked", Clients: []string{"abusers"}, Block: true}, {Name: "others", Exempt: true},
	}})
	if err != nil {
		b.Fatal(err)
	}
	e, r, d := NewEngine(memory.New(), p), get("/"), Decision{}
	b.ReportAllocs()
	for b.Loop() {
		if e.DecideInto(b.Context(), r, &d); !d.Exempt {
			b.Fatal(d)
		}
	}
}
