package policy

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/sluicehq/sluice/memory"
)

// partial is a policy of one rule that refuses everybody in its share.
func partial(t testing.TB, enforce string, more ...string) *Engine {
	t.Helper()
	rule := `name: user, key: ["header:X-User"], limit: 1/day, ` + strings.Join(more, "")
	if enforce != "" {
		rule += "enforce: " + enforce
	}
	return engine(t, "rules: [{"+rule+"}]\n")
}

// refuses reports whether the rule refuses a user who has used up the limit.
func refuses(t *testing.T, e *Engine, user string) bool {
	t.Helper()
	r := get("/", "X-User: "+user)
	if first := e.Decide(t.Context(), r); !first.Allowed {
		t.Fatalf("the first request of %s is refused: %+v", user, first)
	}
	d := e.Decide(t.Context(), r)
	if d.Results[0].Allowed || d.Results[0].Shadow != d.Allowed {
		t.Fatalf("the second request of %s: %+v", user, d)
	}
	return !d.Allowed
}

// The share of those who are refused is that of the rule, within four standard deviations, and who
// is refused at one share is so at every larger one.
func TestEnforceShare(t *testing.T) {
	const users = 4000
	in := make(map[string]bool)
	for _, tt := range []struct {
		enforce     string
		least, most int
	}{
		{"0.01%", 0, 4}, {"0.5%", 3, 37}, {"10%", 325, 475}, {"12.25%", 408, 572}, {"50%", 1874, 2126}, {"99.99%", 3996, 4000}, {"100%", 4000, 4000}, {"", 4000, 4000},
	} {
		e, n := partial(t, tt.enforce), 0
		for i := range users {
			user := fmt.Sprint("user", i)
			if refuses(t, e, user) {
				n++
				in[user] = true
			} else if in[user] {
				t.Errorf("%s is not refused at %s, and was at less", user, tt.enforce)
			}
		}
		if n < tt.least || n > tt.most {
			t.Errorf("at %s, %d of %d are refused, want %d to %d", tt.enforce, n, users, tt.least, tt.most)
		}
	}
}

// Another rule chooses others, so that nobody is always the first to be refused.
func TestEnforceByRule(t *testing.T) {
	e := engine(t, `
rules:
  - {name: a, key: ["header:X-User"], limit: 1/day, enforce: 50%}
  - {name: b, key: ["header:X-User"], limit: 1/day, enforce: 50%}
`)
	same := 0
	for i := range 1000 {
		d := e.Decide(t.Context(), get("/", fmt.Sprint("X-User: user", i)))
		if d.Results[0].Shadow == d.Results[1].Shadow {
			same++
		}
	}
	if same < 430 || same > 570 {
		t.Errorf("both rules choose alike for %d of 1000", same)
	}
}

// Who is in is always in: over requests, engines, reloads, hash tags and tiers. These are who they are
// for good: in that share of the hashes of "user/a" and so on, by sha256sum.
func TestEnforceIsStable(t *testing.T) {
	in := map[string]bool{}
	for _, more := range []string{"", "together: [\"header:X-User\"], ", "algorithm: fixed_window, ", "on_error: deny, "} {
		e := partial(t, "50%", more)
		for i := range 1000 {
			user := string(rune('a' + i%20))
			d := e.Decide(t.Context(), get("/", "X-User: "+user))
			was, known := in[user]
			if shadow := d.Results[0].Shadow; known && shadow == was {
				t.Fatalf("%s was in: %v, and with %q is: %v", user, was, more, !shadow)
			}
			in[user] = !d.Results[0].Shadow
		}
	}
	for user, want := range map[string]bool{"a": false, "b": true, "c": true, "d": false, "e": false, "f": true, "g": true, "h": true} {
		if in[user] != want {
			t.Errorf("%s is in: %v", user, in[user])
		}
	}
}

// 100% is as if nothing were said.
func TestEnforceAll(t *testing.T) {
	all, none := parse(t, "rules: [{name: user, key: [client_ip], limit: 1/day, enforce: 100%, missing: refuse}]\n"), parse(t, "rules: [{name: user, key: [client_ip], limit: 1/day, missing: refuse}]\n")
	if !reflect.DeepEqual(all.rules, none.rules) {
		t.Errorf("%+v, want %+v", all.rules, none.rules)
	}
}

func TestEnforceMistakes(t *testing.T) {
	for enforce, want := range map[string]string{
		"10":                     "not a percentage",
		"ten%":                   "not a percentage",
		"-1%":                    "not a percentage",
		"+1%":                    "not a percentage",
		"1.234%":                 "not a percentage",
		"1.%":                    "not a percentage",
		".5%":                    "not a percentage",
		"1e1%":                   "not a percentage",
		"\"10 %\"":               "not a percentage",
		"0%":                     "above 0 %",
		"0.00%":                  "above 0 %",
		"100.01%":                "at most 100 %",
		"1000%":                  "not a percentage",
		"10%, shadow: true":      "a shadow is enforced for nobody",
		"10%, key: []":           "no subjects",
		strings.Repeat("9", 999): "not a percentage",
	} {
		rule := "{name: user, limit: 1/day, key: [client_ip], enforce: " + enforce + "}"
		if strings.Contains(enforce, "key") {
			rule = "{name: user, limit: 1/day, enforce: 10%}"
		}
		_, err := Parse("p.yaml", []byte("version: 1\nrules:\n  - "+rule+"\n"))
		if err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "p.yaml:3: rule \"user\": ") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %s", enforce, err, want)
		}
	}
	for _, kind := range []string{"block", "exempt"} {
		if _, err := Parse("p.yaml", []byte("version: 1\nrules: [{name: a, match: /a, "+kind+": true, enforce: 10%, show_key: hash}]\n")); err == nil || !strings.Contains(err.Error(), "has no enforce") || !strings.Contains(err.Error(), "has no show_key") {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

// Of what is not enforced for them, subjects are told, and administration says so.
func TestEnforceIsTold(t *testing.T) {
	e := engine(t, `
rules:
  - {name: user, key: ["header:X-User"], limit: 1/day, enforce: 12.5%}
overrides:
  - {rule: user, key: {"header:X-User": barred-1}, block: true}
  - {rule: user, key: {"header:X-User": barred-2}, block: true}
`)
	seen := map[bool]int{}
	for i := range 40 {
		user := fmt.Sprint("user", i)
		shadow := !refuses(t, e, user)
		trace := e.Explain(t.Context(), get("/", "X-User: "+user))
		want := "every request, enforced for 12.5 %: this subject is"
		if shadow {
			want += " not"
		}
		if r := trace.Rules[0]; r.Why != want || r.Enforced != "12.5 %" || r.Watched != shadow || r.Results[0].Shadow != shadow {
			t.Errorf("%s: %+v, want %s", user, r, want)
		}
		s := subject(t, e, "user", map[string]string{"header:X-User": user})
		states, err := s.Peek(t.Context())
		if err != nil || states[0].Shadow != shadow {
			t.Errorf("%s: %+v, %v", user, states, err)
		}
		err = s.Block(time.Now().Add(time.Hour))
		if shadow != (err != nil && strings.Contains(err.Error(), "enforced for 12.5 % of its subjects")) {
			t.Errorf("to block %s: %v", user, err)
		}
		if d := e.Decide(t.Context(), get("/", "X-User: "+user)); d.Allowed != shadow || (d.Blocked == "") != shadow {
			t.Errorf("%s is blocked: %+v", user, d)
		}
		seen[shadow]++
	}
	if seen[true] < 20 || seen[false] < 1 {
		t.Errorf("premise: %v", seen)
	}
	for _, user := range []string{"barred-1", "barred-2"} {
		r := get("/", "X-User: "+user)
		d, trace := e.Decide(t.Context(), r), e.Explain(t.Context(), r)
		s := subject(t, e, "user", map[string]string{"header:X-User": user})
		if d.Allowed != s.shadow || d.Results[0].Shadow != s.shadow || d.Results[0].Allowed || trace.Rules[0].Watched != s.shadow || strings.Contains(trace.Rules[0].Why, "would block") != s.shadow {
			t.Errorf("%s: %+v, %+v", user, d, trace.Rules[0])
		}
	}
}

// An outage refuses only those for whom the rule is enforced.
func TestEnforceInAnOutage(t *testing.T) {
	in := partial(t, "50%", "on_error: deny, ")
	p := in.Policy()
	away := NewEngine(brokenStore{err: errors.New("away")}, p)
	seen := map[bool]int{}
	for i := range 40 {
		user := fmt.Sprint("user", i)
		enforced := refuses(t, in, user)
		seen[enforced]++
		if d := away.Decide(t.Context(), get("/", "X-User: "+user)); d.Allowed == enforced || d.Unavailable != enforced || !d.Degraded {
			t.Errorf("%s, enforced %v: %+v", user, enforced, d)
		}
	}
	if seen[true] < 5 || seen[false] < 5 {
		t.Errorf("premise: %v", seen)
	}
}

// As malformed a rule with a share refuses nobody, and observers are told.
func TestPardoned(t *testing.T) {
	for _, how := range []string{"shadow: true", "enforce: 99.99%", "whole"} {
		field := how
		if how == "whole" {
			field = "description: whole"
		}
		e := engine(t, `
rules:
  - {name: key, match: /key, key: ["header:X-Key"], limit: 5/day, missing: refuse, `+field+`}
  - {name: body, match: POST /login, key: ["body:user"], limit: 5/day, `+field+`}
  - {name: other, match: /other, key: [client_ip], limit: 5/day, `+field+`}
`)
		if how == "whole" {
			e.ShadowAll()
		}
		pardoned := "none"
		e.Observe(func(_ context.Context, o *Observation) { pardoned = o.Pardoned() })
		for _, tt := range []struct {
			r    *Request
			want string
		}{
			{get("/key"), "header:X-Key"},
			{get("/key", "X-Key: a", "X-Key: b"), "an unambiguous header:X-Key"},
			{get("/key", "X-Key: a"), ""},
			{get("/other"), ""},
			{withBody(request("POST", "/login", "192.0.2.1"), `{"user":"a","user":"b"}`), "an unambiguous body:user"},
			{withBody(request("POST", "/login", "192.0.2.1"), `{"user":"a"}`), ""},
			{withBody(request("POST", "/x/..%2flogin", "192.0.2.1"), `{"user":"a"}`), "an unambiguous path"},
			{get("/" + strings.Repeat("%252f..%255c;a/../", 200) + "other"), "an unambiguous path"},
		} {
			d := e.Decide(t.Context(), tt.r)
			if !d.Allowed || d.Missing != "" || pardoned != tt.want {
				t.Errorf("%s: %s: pardoned %q, want %q: %+v", how, tt.r.Path, pardoned, tt.want, d)
			}
		}
		if why := e.Explain(t.Context(), get("/key")).Rules[0].Why; !strings.HasPrefix(why, "skipped: the request lacks header:X-Key, and would be refused for it (only watched") {
			t.Errorf("%s: %s", how, why)
		}
	}
}

// What another rule exempts is not refused as malformed, and nothing is overlooked.
func TestPardonedExempt(t *testing.T) {
	e := engine(t, `
rules:
  - {name: login, match: POST /login, key: ["body:user"], limit: 5/day, shadow: true}
  - {name: office, clients: [192.0.2.0/24], exempt: true}
`)
	pardoned := map[bool]string{}
	e.Observe(func(_ context.Context, o *Observation) { pardoned[o.Decision.Exempt] = o.Pardoned() })
	for _, client := range []string{"192.0.2.1", "198.51.100.1"} {
		e.Decide(t.Context(), withBody(request("POST", "/x/..%2flogin", client), `{"user":"a"}`))
	}
	if pardoned[true] != "" || pardoned[false] != "an unambiguous path" {
		t.Errorf("%v", pardoned)
	}
}

// A policy that is a shadow as a whole refuses nothing, whatever comes into force.
func TestShadowAll(t *testing.T) {
	const rules = `
rules:
  - {name: open, match: /open, exempt: true}
  - {name: closed, match: /closed, block: true}
  - {name: key, key: ["header:X-Key"], limit: 1/day, missing: refuse, penalty: 1h}
  - {name: slow, key: [client_ip], limit: 1/hour burst 1, algorithm: leaky_bucket}
overrides:
  - {rule: key, key: {"header:X-Key": bad}, block: true}
`
	p := parse(t, rules)
	e := NewEngine(memory.New(), p)
	e.ShadowAll()
	refused, told := 0, 0
	e.Observe(func(_ context.Context, o *Observation) {
		for _, r := range o.Decision.Results {
			if !r.Shadow {
				t.Errorf("%+v is no shadow", r)
			}
			if !r.Allowed {
				refused++
			}
		}
		told++
	})
	ask := func(what string, r *Request) {
		t.Helper()
		for range 5 {
			d := e.Decide(t.Context(), r)
			if would := e.Explain(t.Context(), r).Decision; !d.Allowed || d.Delay > 0 || d.RetryAfter > 0 || d.Blocked != "" || d.Exempt != (what == "open") || !would.Allowed {
				t.Errorf("%s: %+v, and %+v", what, d, would)
			}
		}
	}
	all := func() {
		t.Helper()
		ask("open", get("/open"))
		ask("closed", get("/closed", "X-Key: a"))
		ask("key", get("/", "X-Key: a"))
		ask("override", get("/", "X-Key: bad"))
		ask("nothing", get("/"))
	}
	all()
	if refused < 20 {
		t.Errorf("premise: %d results would refuse", refused)
	}
	if err := e.SwapOverrides([]Override{{Rule: "key", Key: map[string]string{"header:X-Key": "a"}, Block: true}}); err != nil {
		t.Fatal(err)
	}
	all()
	e.Swap(p)
	all()
	if !e.Policy().WatchOnly() || p.WatchOnly() || e.Policy().Shadowed() != e.Policy() || p.rules[2].shadow {
		t.Error("the policy itself has become a shadow")
	}
	s := subject(t, e, "key", map[string]string{"header:X-Key": "a"})
	if err := s.Block(time.Now().Add(time.Hour)); err == nil || !strings.Contains(err.Error(), "the whole policy only watches") {
		t.Errorf("to block: %v", err)
	}

	// What callers bring is watched, too, and a subject whose rule has changed is let pass.
	brought := e.Adhoc("throttle", "bob", p.rules[2].own.limits[0].plan, 0)
	ask("adhoc", &Request{Subject: brought})
	e.Swap(parse(t, `rules: [{name: key, key: [client_ip], limit: 1/day}]`+"\n"))
	ask("changed key", &Request{Subject: s})

	// So is a request of more parts than can be taken together.
	reqs, ds := []*Request(nil), make([]Decision, maxTogether+1)
	for i := range ds {
		reqs = append(reqs, request("GET", "/", fmt.Sprintf("10.0.%d.%d", i/256, i%256)))
	}
	if !e.DecideTogether(t.Context(), reqs, ds) {
		t.Errorf("%+v", ds[0])
	}
}
