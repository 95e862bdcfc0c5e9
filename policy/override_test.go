package policy

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/sluicehq/sluice/memory"
)

// Traces, results and administration tell the override that holds, and where things are from.
func TestOverrideTold(t *testing.T) {
	doc := Document{
		Tiers: Tiers{From: "header:X-Plan", Default: "free"},
		Rules: []Rule{
			{Name: "a", Key: []string{"header:X-User"}, Limit: "5/day", Tiers: map[string]Limits{"pro": {"7/day"}}, Source: "file"},
			{Name: "b", Match: []string{"/never"}, Limit: "5/day", Source: "database"},
			{Name: "c", Block: true, Shadow: true, Source: "database"},
		},
		Overrides: []Override{
			{Rule: "a", Key: map[string]string{"header:X-User": "limited"}, Limit: "9/day", Reason: "a launch", By: "support", Until: "2999-01-01", Source: "database"},
			{Rule: "a", Key: map[string]string{"header:X-User": "blocked"}, Block: true, Reason: "spam", Until: "2999-01-01", Source: "file"},
			{Rule: "a", Key: map[string]string{"header:X-User": "exempt"}, Exempt: true, Source: "database"},
			{Rule: "a", Key: map[string]string{"header:X-User": "same"}, Limit: "9/day", Source: "file"},
		},
	}
	p, err := Compile(doc)
	if err != nil {
		t.Fatal(err)
	}
	e := NewEngine(memory.New(), p)
	for user, want := range map[string]string{
		"":        "every request|rule file 5/day",
		"limited": "every request|override database 9/day",
		"same":    "every request|override file 9/day",
		"blocked": `an override blocks the subject until the end of 2999-01-01 in UTC, reason "spam"|override file`,
		"exempt":  "an override exempts the subject|",
	} {
		x := e.Explain(t.Context(), get("/", "X-User: "+user))
		got := x.Rules[0].Why + "|"
		for _, r := range x.Decision.Results {
			if r.Rule == "a" {
				got += r.From + " " + r.Source
			}
			if r.Plan != nil {
				got += fmt.Sprintf(" %d/day", r.Plan.Limit.Count)
			}
		}
		if got != want {
			t.Errorf("%s: %s, want %s", user, got, want)
		}
		var of *Override
		for i := range doc.Overrides {
			if doc.Overrides[i].Key["header:X-User"] == user {
				of = &doc.Overrides[i]
			}
		}
		if (of == nil) != (x.Rules[0].Override == nil) || of != nil && !reflect.DeepEqual(*of, *x.Rules[0].Override) {
			t.Errorf("%s: the override is told as %+v", user, x.Rules[0].Override)
		}
		s := subject(t, e, "a", map[string]string{"header:X-User": user})
		if o, found := s.Override(); found != (of != nil) || found && !reflect.DeepEqual(o, *of) {
			t.Errorf("%s: the override of the subject is %+v, %v", user, o, found)
		}
		// Of who is blocked or exempt the rule's own counts are told.
		if now, err := s.Peek(t.Context()); err != nil || len(now) == 0 || of != nil && of.Limit != "" && (len(now) != 1 || now[0].Source != of.Source) {
			t.Errorf("%s: %+v, %v", user, now, err)
		}
		if x.Rules[0].Source != "file" || x.Rules[1].Source != "database" || x.Rules[2].Source != "database" {
			t.Errorf("%s: sources of rules %+v", user, x.Rules)
		}
	}
	x := e.Explain(t.Context(), get("/", "X-Plan: pro"))
	if x.TierSubject != nil {
		t.Errorf("the header says the tier, and not %+v", x.TierSubject)
	}
	if r := x.Decision.Results[0]; r.From != "tier:pro" || r.Source != "file" || x.Tier != "pro" || x.TierFrom != "header:X-Plan" {
		t.Errorf("%+v, tier %s from %s", r, x.Tier, x.TierFrom)
	}
}

// Very many that have ended are not told one by one.
func TestEndedAreBounded(t *testing.T) {
	doc := Document{Rules: []Rule{{Name: "a", Key: []string{"header:X"}, Limit: "1/day"}}, Tiers: Tiers{Subject: "api_key", Default: "free"}}
	for i := range 1000 {
		doc.Overrides = append(doc.Overrides, Override{Rule: "a", Key: map[string]string{"header:X": fmt.Sprint(i)}, Limit: "1/day", Until: "2001-01-01"})
		doc.Subjects = append(doc.Subjects, TierSubject{Subject: fmt.Sprint(i), Tier: "free", Until: "2001-01-01"})
	}
	p, err := Compile(doc)
	if err != nil {
		t.Fatal(err)
	}
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
