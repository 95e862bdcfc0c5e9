package policy

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluicehq/sluice/memory"
)

// Very many that have ended are not told one by one.
func TestEndedAreBounded(t *testing.T) {
	t.Parallel()
	doc := Document{Rules: []Rule{{Name: "a", Key: []string{"header:X"}, Limit: "1/day"}}, Tiers: Tiers{Subject: "api_key", Default: "free"}}
	for i := range 1000 {
		doc.Overrides = append(doc.Overrides, Override{Rule: "a", Key: map[string]string{"header:X": fmt.Sprint(i)}, Limit: "1/day", Until: "2001-01-01"})
		doc.Subjects = append(doc.Subjects, TierSubject{Subject: fmt.Sprint(i), Tier: "free", Until: "2001-01-01"})
	}
	p := compile(t, doc)
	var last []string
	for _, w := range p.Warnings() {
		if strings.Contains(w.Message, "more") {
			last = append(last, w.String())
		}
	}
	if want := "overrides: 990 more have ended; remove them\nsubjects: 990 more have ended; remove them"; strings.Join(last, "\n") != want || len(p.Warnings()) < 2*maxEnded {
		t.Errorf("%d warnings: %q", len(p.Warnings()), last)
	}
}

func TestParseUntil(t *testing.T) {
	t.Parallel()
	for _, row := range names(t, "ends of overrides") {
		got, err := ParseUntil(row.In)
		if (err != nil) != (row.Want == "none") || err == nil && got.UTC().Format(time.RFC3339) != row.Want {
			t.Errorf("%q: %v, %v, want %s", row.In, got, err, row.Want)
		}
	}
}

// Traces, results and administration tell the override that holds, and where things are from.
func TestOverrideTold(t *testing.T) {
	t.Parallel()
	of := func(user string) map[string]string { return map[string]string{"header:X-User": user} }
	e := NewEngine(memory.New(), compile(t, Document{
		Tiers: Tiers{From: "header:X-Plan", Default: "free"},
		Rules: []Rule{
			{Name: "a", Key: []string{"header:X-User"}, Limit: "5/day", Tiers: map[string]Limits{"pro": {"7/day"}}, Source: "file"},
			{Name: "b", Match: []string{"/never"}, Limit: "5/day", Source: "database"},
			{Name: "c", Block: true, Shadow: true, Source: "database"},
		},
		Overrides: []Override{
			{Rule: "a", Key: of("limited"), Limit: "9/day", Reason: "a launch", By: "support", Until: "2999-01-01", Source: "database"},
			{Rule: "a", Key: of("blocked"), Block: true, Reason: "spam", Until: "2999-01-01", Source: "file"},
			{Rule: "a", Key: of("exempt"), Exempt: true, Source: "database"},
			{Rule: "a", Key: of("same"), Limit: "9/day", Source: "file"},
		},
	}))
	for user, want := range map[string]struct{ why, from, source, peek, reason string }{
		"":        {"every request", "rule", "file", "rule:file", ""},
		"limited": {"every request", "override", "database", "override:database", "a launch"},
		"same":    {"every request", "override", "file", "override:file", ""},
		"blocked": {`an override blocks the subject until the end of 2999-01-01 in UTC, reason "spam"`, "override", "file", "rule:file", "spam"},
		"exempt":  {"an override exempts the subject", "", "", "rule:file", ""},
	} {
		x, s := e.Explain(t.Context(), get("/", "X-User: "+user)), subject(t, e, "a", of(user))
		o, found := s.Override()
		same := !found || reflect.DeepEqual(o, *x.Rules[0].Override) && o.Key["header:X-User"] == user && o.Reason == want.reason
		if found != (user != "") || !same {
			t.Errorf("%s: the override of the subject is %+v, %v, and explained as %+v", user, o, found, x.Rules[0].Override)
		}
		var r Result
		if at := slices.IndexFunc(x.Decision.Results, func(r Result) bool { return r.Rule == "a" }); at >= 0 {
			r = x.Decision.Results[at]
		}
		if x.Rules[0].Why != want.why || r.From != want.from || r.Source != want.source {
			t.Errorf("%s: %s, and %+v", user, x.Rules[0].Why, r)
		}
		// Of a subject that is blocked or exempt the rule's own counts are told.
		if now, err := s.Peek(t.Context()); err != nil || len(now) == 0 || now[0].From+":"+now[0].Source != want.peek {
			t.Errorf("%s: %+v, %v", user, now, err)
		}
		if x.Rules[0].Source != "file" || x.Rules[1].Source != "database" || x.Rules[2].Source != "database" {
			t.Errorf("%s: sources of rules %+v", user, x.Rules)
		}
	}
	x := e.Explain(t.Context(), get("/", "X-Plan: pro"))
	r := x.Decision.Results[0]
	if r.From != "tier:pro" || r.Source != "file" || x.Tier != "pro" || x.TierFrom != "header:X-Plan" || x.TierSubject != nil {
		t.Errorf("%+v, tier %s from %s, %+v", r, x.Tier, x.TierFrom, x.TierSubject)
	}
}
