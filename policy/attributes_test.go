package policy

import (
	"strings"
	"testing"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/memory"
)

func withAttributes(pairs ...string) *Request {
	r := get("/")
	r.Attributes = map[string]string{}
	for _, pair := range pairs {
		name, value, _ := strings.Cut(pair, "=")
		r.Attributes[name] = value
	}
	return r
}

// Attributes are conditions, parts of keys, and tiers.
func TestAttributeConditions(t *testing.T) {
	e := engine(t, `
tiers: {from: attr:plan, default: free}
rules:
  - {name: trial, attributes: {plan: trial}, limit: 10/day}
  - {name: user, key: [attr:user], missing: skip, limit: 20/day, tiers: {trial: 5/day, free: 6/day}}
  - {name: any, attributes: {user: "*"}, limit: 30/day}
  - {name: both, attributes: {user: alice, plan: Trial}, limit: 40/day}
  - {name: staff, attributes: {role: staff}, exempt: true}`)
	for _, c := range []struct{ attributes, want string }{
		{"", ""},
		{"plan=trial", "trial:9"},
		{"plan=trial,user=alice", "trial:8 user:4 any:29"},
		{"plan=trial,user=bob", "trial:7 user:4 any:28"},
		{"plan=Trial,user=carl", "user:19 any:27"},
		{"plan=Trial,user=alice", "user:19 any:26 both:39"},
		{"user=dora", "user:5 any:25"},
		{"user=", ""},
		{"plan=trial,user=x,role=staff", "exempt"},
		{"role=other", ""},
	} {
		d := e.Decide(t.Context(), withAttributes(strings.Split(c.attributes, ",")...))
		got := said(d)
		if d.Exempt {
			got = "exempt"
		}
		if got != c.want || !d.Allowed {
			t.Errorf("%s: %s, want %s", c.attributes, got, c.want)
		}
	}
	// A header is no attribute.
	if d := e.Decide(t.Context(), get("/", "Plan: trial", "User: alice")); said(d) != "" {
		t.Errorf("headers: %s", said(d))
	}
	for attributes, want := range map[string]string{
		"plan=trial,user=erna": "attributes match",
		"user=erna":            `the attribute "plan" is missing or has another value`,
	} {
		if got := e.Explain(t.Context(), withAttributes(strings.Split(attributes, ",")...)).Rules[0].Why; got != want {
			t.Errorf("%s: %s, want %s", attributes, got, want)
		}
	}
}

// A rule that asks for an attribute costs nothing where the attribute is another.
func TestAttributesAllocations(t *testing.T) {
	e := NewEngine(memory.New(), parse(t, "rules: [{name: a, attributes: {plan: trial}, limit: 1/day}, {name: b, limit: 1/day}]"))
	if n, d := allocations(t, e, withAttributes("plan=pro")); n > 0 || len(d.Results) != 1 {
		t.Errorf("a decision allocates %v times: %+v", n, d)
	}
}

// Rules and limiters of one name on one store share no count, whatever their keys.
func TestNamesOfRulesAndLimiters(t *testing.T) {
	store := memory.New()
	e := NewEngine(store, parse(t, `
rules:
  - {name: api, limit: 100/day}
  - {name: alice, limit: 100/day}
  - {name: user, key: [header:A, header:B], limit: 100/day}
  - {name: tagged, key: [header:A], together: [header:A], limit: 100/day}`))
	limit := sluice.Limit{Count: 100, Period: 24 * 60 * 60 * 1e9}
	names := []string{"", "api", "alice", "user", "tagged", "user/alice", "{alice}tagged", "/", "!", "user!"}
	keys := []string{"", "alice", "!", "/", "alice/", "/alice", "alice/bob", "alice/!", "api", "api/", "user/alice/bob", "{alice}tagged/alice", "tagged/alice"}
	for _, r := range []*Request{get("/", "A: alice", "B: bob"), get("/", "A: alice"), get("/")} {
		e.Decide(t.Context(), r)
	}
	for _, name := range names {
		l, err := sluice.NewLimiter(store, name, limit)
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range keys {
			if d, err := l.Take(t.Context(), key, 1); err != nil || d.Remaining != 99 {
				t.Errorf("limiter %q, key %q: %d remain, %v", name, key, d.Remaining, err)
			}
		}
	}
	if got, want := said(e.Decide(t.Context(), get("/", "A: alice", "B: bob"))), "api:96 alice:96 user:98 tagged:97"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
