package policy

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/sluicehq/sluice/memory"
)

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
