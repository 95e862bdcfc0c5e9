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

// A policy in shadow mode denies nothing until the end of the mode, even after overrides or the policy have been
// swapped.
func TestShadowWhole(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"ShadowAll", "2000-01-01T01:00:00Z", ShadowAlways} {
		synctest.Test(t, func(t *testing.T) {
			doc := Document{Shadow: how, Rules: []Rule{
				{Name: "open", Match: []string{"/open"}, Exempt: true},
				{Name: "closed", Match: []string{"/closed"}, Block: true},
				{Name: "key", Key: []string{"header:X-Key"}, Limit: "1/day", Missing: "refuse", Penalty: Penalty{First: "1h"}},
				{Name: "slow", Key: []string{"client_ip"}, Limit: "1/hour burst 1", Algorithm: "leaky_bucket"},
			}, Overrides: []Override{{Rule: "key", Key: map[string]string{"header:X-Key": "bad"}, Block: true}}}
			if how == "ShadowAll" {
				doc.Shadow = ""
			}
			p := compile(t, doc)
			e := NewEngine(memory.New(), p)
			if how == "ShadowAll" {
				e.ShadowAll()
			}
			refused := 0
			e.Observe(func(_ context.Context, o *Observation) {
				for _, r := range o.Decision.Results {
					if r.Shadow != e.Policy().WatchOnly() {
						t.Errorf("%s: %+v", how, r)
					}
					if !r.Allowed {
						refused++
					}
				}
			})
			brought := e.Adhoc("throttle", "bob", p.rules[2].own.limits[0].plan, 0)
			list := []*Request{
				get("/open"), get("/closed", "X-Key: a"), get("/", "X-Key: a"), get("/", "X-Key: a"),
				get("/", "X-Key: bad"), get("/"), {Subject: brought}, {Subject: brought},
			}
			watches := func(when string) {
				ds := make([]Decision, len(list))
				e.DecideEach(t.Context(), list, ds)
				for i, r := range list {
					would := e.Explain(t.Context(), r).Decision
					for _, d := range []Decision{e.Decide(t.Context(), r), ds[i], would} {
						if !d.Allowed || d.Delay > 0 || d.RetryAfter > 0 || d.Blocked != "" || d.Exempt != (r.Path == "/open") {
							t.Errorf("%s, %s, %s: %+v", how, when, r.Path, d)
						}
					}
				}
				if !e.Policy().WatchOnly() {
					t.Errorf("%s, %s: the policy is not in shadow mode", how, when)
				}
			}
			watches("at first")
			if refused < 10 {
				t.Errorf("premise: %d results deny", refused)
			}
			ok(t, e.SwapOverrides([]Override{{Rule: "key", Key: map[string]string{"header:X-Key": "a"}, Block: true}}))
			watches("after other overrides")
			e.Swap(p)
			watches("after a swap")
			s := subjectOf(t, e, "key", map[string]string{"header:X-Key": "a"})
			if err := s.Block(time.Now().Add(time.Hour)); err == nil || !strings.Contains(err.Error(), "the whole policy is in shadow mode") {
				t.Errorf("Block: %v", err)
			}
			many := make([]*Request, maxTogether+1)
			for i := range many {
				many[i] = request("GET", "/", fmt.Sprintf("10.0.%d.%d", i/256, i%256), "X-Key: many")
			}
			if ds := make([]Decision, len(many)); !e.DecideTogether(t.Context(), many, ds) {
				t.Errorf("%s: more parts than can be taken together: %+v", how, ds[0])
			}
			if how == "ShadowAll" {
				if p.WatchOnly() || e.Policy().Shadowed() != e.Policy() || p.rules[2].shadow {
					t.Error("the policy itself has become a shadow")
				}
				e.Swap(parse(t, `rules: [{name: key, key: [client_ip], limit: 1/day}]`))
				list = []*Request{{Subject: s}}
				watches("of a subject whose rule has changed")
				return
			}
			if at, decisionText := e.Policy().ShadowUntil(); !decisionText || how != ShadowAlways && !at.Equal(time.Now().Add(time.Hour)) {
				t.Errorf("%s: until %v", how, at)
			}
			time.Sleep(time.Hour)
			if d := e.Decide(t.Context(), get("/closed", "X-Key: a")); d.Allowed != (how == ShadowAlways) || e.Policy().WatchOnly() != d.Allowed {
				t.Errorf("%s: after an hour %+v", how, d)
			}
		})
	}
}

// partly returns an engine with one rule, which is enforced for a percentage of the users.
func partly(t testing.TB, enforce string, more ...string) *Engine {
	t.Helper()
	rule := `name: user, key: ["header:X-User"], limit: 1/day, ` + strings.Join(more, "")
	if enforce != "" {
		rule += "enforce: " + enforce
	}
	return engine(t, "rules: [{"+rule+"}]\n")
}

// refuses reports whether the rule denies the second request of a user, which is above the limit.
func refuses(t *testing.T, e *Engine, user string) bool {
	t.Helper()
	r := get("/", "X-User: "+user)
	if first := e.Decide(t.Context(), r); !first.Allowed {
		t.Fatalf("the first request of %s is denied: %+v", user, first)
	}
	d := e.Decide(t.Context(), r)
	if d.Results[0].Allowed || d.Results[0].Shadow != d.Allowed {
		t.Fatalf("the second request of %s: %+v", user, d)
	}
	return !d.Allowed
}

// The percentage of denied users is the rollout percentage of the rule, within four standard deviations. Users that are
// denied at one percentage are also denied at every larger one.
func TestEnforceShare(t *testing.T) {
	t.Parallel()
	const users = 4000
	in := make(map[string]bool)
	for _, tt := range []struct {
		enforce     string
		least, most int
	}{
		{"0.01%", 0, 4}, {"0.5%", 3, 37}, {"10%", 325, 475}, {"12.25%", 408, 572}, {"50%", 1874, 2126}, {"99.99%", 3996, 4000}, {"100%", 4000, 4000}, {"", 4000, 4000},
	} {
		e, n := partly(t, tt.enforce), 0
		for i := range users {
			user := fmt.Sprint("user", i)
			if refuses(t, e, user) {
				n++
				in[user] = true
			} else if in[user] {
				t.Errorf("%s is not denied at %s, and was at less", user, tt.enforce)
			}
		}
		if n < tt.least || n > tt.most {
			t.Errorf("at %s, %d of %d are denied, want %d to %d", tt.enforce, n, users, tt.least, tt.most)
		}
	}
}

// Each rule chooses other users, so no user is always the first to be denied.
func TestEnforceByRule(t *testing.T) {
	t.Parallel()
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
		t.Errorf("both rules choose the same for %d of 1000 users", same)
	}
}

// A rule is always enforced for the same users: for all requests and engines, with or without hash tags, and with other
// settings of the rule. The expected values are by sha256sum of "user/a" and so on, and must never change.
func TestEnforceIsStable(t *testing.T) {
	t.Parallel()
	in := map[string]bool{}
	for _, more := range []string{"", "together: [\"header:X-User\"], ", "algorithm: fixed_window, ", "on_error: deny, "} {
		e := partly(t, "50%", more)
		for i := range 1000 {
			user := string(rune('a' + i%20))
			d := e.Decide(t.Context(), get("/", "X-User: "+user))
			was, known := in[user]
			if shadow := d.Results[0].Shadow; known && shadow == was {
				t.Fatalf("enforced for %s: %v, and with %q: %v", user, was, more, !shadow)
			}
			in[user] = !d.Results[0].Shadow
		}
	}
	for user, want := range map[string]bool{"a": false, "b": true, "c": true, "d": false, "e": false, "f": true, "g": true, "h": true} {
		if in[user] != want {
			t.Errorf("enforced for %s: %v", user, in[user])
		}
	}
}
