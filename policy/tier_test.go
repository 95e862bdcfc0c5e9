package policy

import (
	"strings"
	"testing"
)

// A table is swapped whole, beside the overrides, and nothing else of the policy changes.
func TestSwapSubjects(t *testing.T) {
	e := engine(t, `
tiers: {subject: "header:X-User"}
rules: [{name: a, key: ["header:X-User"], limit: 1/day, tiers: {pro: 2/day}}]
overrides: [{rule: a, key: {"header:X-User": o}, limit: 3/day}]
subjects: [{subject: s, tier: pro}]`)
	check := func(user, want string) {
		t.Helper()
		if r := e.Decide(t.Context(), get("/", "X-User: "+user)).Results[0]; r.From != want {
			t.Errorf("%s: %s, want %s", user, r.From, want)
		}
	}
	check("s", "tier:pro")
	if err := e.SwapSubjects([]TierSubject{{Subject: "t", Tier: "pro"}}); err != nil {
		t.Fatal(err)
	}
	check("s", "rule")
	check("t", "tier:pro")
	check("o", "override")
	if err := e.SwapOverrides([]Override{{Rule: "a", Key: map[string]string{"header:X-User": "p"}, Exempt: true}, {Rule: "a", Key: map[string]string{"header:X-User": "q"}, Limit: "9/day"}}); err != nil {
		t.Fatal(err)
	}
	check("t", "tier:pro")
	check("q", "override")
	check("o", "rule")
	err := e.SwapSubjects([]TierSubject{{Subject: "t", Tier: "pro"}, {Subject: "t", Tier: "pro"}})
	if err == nil || !strings.Contains(err.Error(), "subjects[1]: there are two entries for this subject, the first is subjects[0]") {
		t.Errorf("%v", err)
	}
	check("t", "tier:pro")
}
