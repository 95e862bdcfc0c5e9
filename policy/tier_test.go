package policy

import (
	"strings"
	"testing"
)

// A table is swapped whole, beside the overrides, and nothing else of the policy changes.
func TestSwapSubjects(t *testing.T) {
	t.Parallel()
	e := engine(t, `
tiers: {subject: "header:X-User"}
rules: [{name: a, key: ["header:X-User"], limit: 100/day, tiers: {pro: 200/day}}]
overrides: [{rule: a, key: {"header:X-User": o}, limit: 300/day}]
subjects: [{subject: s, tier: pro}]`)
	expect := func(want string) {
		t.Helper()
		got := ""
		for _, user := range []string{"s", "t", "o", "q"} {
			got += " " + e.Decide(t.Context(), get("/", "X-User: "+user)).Results[0].From
		}
		if got != " "+want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	expect("tier:pro rule override rule")
	subjects := []TierSubject{{Subject: "t", Tier: "pro"}}
	ok(t, e.SwapSubjects(subjects))
	expect("rule tier:pro override rule")
	ok(t, e.SwapOverrides([]Override{{Rule: "a", Key: map[string]string{"header:X-User": "q"}, Limit: "900/day"}}))
	expect("rule tier:pro rule override")
	err := e.SwapSubjects(append(subjects, subjects...))
	if err == nil || !strings.Contains(err.Error(), "subjects[1]: there are two entries for this subject, the first is subjects[0]") {
		t.Errorf("%v", err)
	}
	expect("rule tier:pro rule override")
}
