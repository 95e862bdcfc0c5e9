package policy

import (
	"fmt"
	"reflect"
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

// Traces, results and administration name the source of rules and overrides.
func TestSources(t *testing.T) {
	t.Parallel()
	of := func(user string) map[string]string { return map[string]string{"header:X-User": user} }
	e := NewEngine(memory.New(), compile(t, Document{
		Rules: []Rule{
			{Name: "a", Key: []string{"header:X-User"}, Limit: "5/day", Source: "file"},
			{Name: "b", Match: []string{"/never"}, Limit: "5/day", Source: "database"},
		},
		Overrides: []Override{
			{Rule: "a", Key: of("limited"), Limit: "9/day", Reason: "a launch", By: "support", Until: "2999-01-01", Source: "database"},
			{Rule: "a", Key: of("same"), Limit: "9/day", Source: "file"},
		},
	}))
	for user, want := range map[string]string{"other": "rule:file", "limited": "override:database", "same": "override:file"} {
		x, s := e.Explain(t.Context(), get("/", "X-User: "+user)), subjectOf(t, e, "a", of(user))
		o, found := s.Override()
		if found != (user != "other") || found && !reflect.DeepEqual(o, *x.Rules[0].Override) {
			t.Errorf("%s: the override of the subject is %+v, %v, and explained as %+v", user, o, found, x.Rules[0].Override)
		}
		now, err := s.Peek(t.Context())
		if err != nil || now[0].From+":"+now[0].Source != want || x.Decision.Results[0].From+":"+x.Decision.Results[0].Source != want {
			t.Errorf("%s: %+v, %v, and explained as %+v", user, now, err, x.Decision.Results)
		}
		if x.Rules[0].Source != "file" || x.Rules[1].Source != "database" {
			t.Errorf("%s: sources of rules %+v", user, x.Rules)
		}
	}
}
