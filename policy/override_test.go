package policy

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/memory"
)

const blocking = `
lists: {office: [192.0.2.99]}
rules:
  - {name: open, match: /open, exempt: true}
  - {name: closed, match: /closed, block: true}
  - {name: watch, key: ["header:X-User"], limit: 9/day, shadow: true}
  - {name: user, key: ["header:X-User", client_ip], limit: 5/day}
  - {name: all, limit: 100/day}
overrides:
  - {rule: user, key: {"header:X-User": mallory}, block: true, until: 2000-01-02, reason: spam, by: support}
  - {rule: user, key: {"header:X-User": mallory, client_ip: 192.0.2.7}, limit: 1/day}
  - {rule: user, key: {"header:X-User": eve}, block: true}
  - {rule: user, key: {"header:X-User": batch}, exempt: true, until: "2000-01-01T01:00:00Z", reason: a migration}
  - {rule: user, key: {client_ip: 198.51.100.0/24}, block: true}
  - {rule: user, key: {client_ip: 198.51.100.7}, exempt: true}
  - {rule: watch, key: {"header:X-User": alice}, block: true}
`

// told returns what a decision has said, with where each result is from.
func told(d Decision) string {
	word := map[bool]string{true: "passes", false: "refused"}[d.Allowed]
	switch {
	case d.Exempt:
		word = "exempt"
	case d.Blocked != "":
		word = "blocked by " + d.Blocked
	case d.Missing != "":
		word = "lacks " + d.Missing
	}
	for _, r := range d.Results {
		word += fmt.Sprintf(", %s %d %s", r.Rule, r.Remaining, r.From)
	}
	return word
}

// What overrides with block and exempt do, beside each other, rules with block and exempt, and
// what the engine blocks.
func TestOverridesBlockAndExempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stored := &recorder{Store: memory.New()}
		e := NewEngine(stored, parse(t, blocking))
		var keys []string
		e.Observe(func(_ context.Context, o *Observation) {
			keys = nil
			for i := range o.Decision.Results {
				keys = append(keys, o.Key(i))
			}
		})
		check := func(path, user, client, want string, wantKeys ...string) {
			t.Helper()
			stored.charges = nil
			r := request("GET", path, client, "X-User: "+user)
			would := e.Explain(t.Context(), r).Decision
			d := e.Decide(t.Context(), r)
			if told(d) != want {
				t.Errorf("%s of %s at %s: %s, want %s", path, user, client, told(d), want)
			}
			if would.Allowed != d.Allowed || would.Blocked != d.Blocked || would.RetryAfter != d.RetryAfter || len(would.Results) != len(d.Results) {
				t.Errorf("%s of %s at %s: explained as %+v, decided %+v", path, user, client, would, d)
			}
			if wantKeys != nil && strings.Join(keys, " ") != strings.Join(wantKeys, " ") {
				t.Errorf("%s of %s at %s: keys %q, want %q", path, user, client, keys, wantKeys)
			}
			if d.Blocked != "" && stored.charges != nil {
				t.Errorf("%s of %s at %s: it is blocked, and charged %v", path, user, client, stored.charges)
			}
		}
		check("/", "bob", "192.0.2.1", "passes, watch 8 rule, user 4 rule, all 99 rule")
		check("/", "mallory", "192.0.2.1", "blocked by user, user 0 override", "user/mallory/192.0.2.1")
		check("/", "mallory", "192.0.2.7", "passes, watch 8 rule, user 0 override, all 98 rule") // who names more parts counts
		check("/open", "mallory", "192.0.2.1", "exempt")                                         // a rule that exempts comes first
		check("/closed", "mallory", "192.0.2.1", "blocked by closed, closed 0 block")
		check("/closed", "batch", "192.0.2.1", "blocked by closed, closed 0 block")
		check("/", "batch", "192.0.2.1", "passes, watch 8 rule, all 97 rule") // the other rules count
		check("/", "bob", "198.51.100.8", "blocked by user, user 0 override", "user/bob/198.51.100.8")
		check("/", "bob", "198.51.100.7", "passes, watch 7 rule, all 96 rule") // an address before its network
		check("/", "eve", "198.51.100.7", "blocked by user, user 0 override")  // earlier parts come first
		check("/", "alice", "192.0.2.1", "passes, user 4 rule, all 95 rule, watch 0 override", "user/alice/192.0.2.1", "all/", "watch/alice")

		if d := e.Decide(t.Context(), get("/", "X-User: mallory")); d.RetryAfter != 48*time.Hour || d.Results[0].RetryAfter != d.RetryAfter {
			t.Errorf("until the end of tomorrow: %+v", d)
		}
		if d := e.Decide(t.Context(), get("/", "X-User: eve")); d.RetryAfter != sluice.Never {
			t.Errorf("for good: %+v", d)
		}
		// What the engine blocks comes before what an override exempts or gives a limit.
		for user, client := range map[string]string{"batch": "192.0.2.1", "mallory": "192.0.2.7"} {
			s, err := e.Subject("user", map[string]string{"header:X-User": user, "client_ip": client})
			if err == nil {
				err = s.Block(time.Now().Add(time.Minute))
			}
			if err != nil {
				t.Fatal(err)
			}
			check("/", user, client, "blocked by user, user 0 block", "user/"+user+"/"+client)
			s.Unblock()
		}
		time.Sleep(time.Hour)
		check("/", "batch", "192.0.2.1", "passes, watch 7 rule, user 4 rule, all 98 rule")
		check("/", "mallory", "192.0.2.1", "blocked by user, user 0 override")
		time.Sleep(47 * time.Hour)
		check("/", "mallory", "192.0.2.1", "passes, watch 8 rule, user 4 rule, all 99 rule")
	})
}

// A block by an override holds while the store is away, before a body is read, and of a request
// that is malformed.
func TestOverridesBlockEarly(t *testing.T) {
	e := NewEngine(unanswering{}, parse(t, `
rules:
  - {name: name, key: [body:user], limit: 9/day}
  - {name: each, key: [client_ip], limit: 9/day}
  - {name: needs, key: ["header:X-Key"], missing: refuse, limit: 9/day}
overrides:
  - {rule: each, key: {client_ip: 192.0.2.1}, block: true}`))
	r := get("/", "X-Key: a")
	r.Body = func(int64) ([]byte, error) { t.Error("the body is read"); return nil, nil }
	for what, r := range map[string]*Request{"with a body": r, "malformed": get("/")} {
		if d := e.Decide(t.Context(), r); told(d) != "blocked by each, each 0 override" || d.Err != nil {
			t.Errorf("%s: %s, %v", what, told(d), d.Err)
		}
	}
}

// unanswering is a store that never answers.
type unanswering struct{}

func (unanswering) Take(context.Context, []sluice.Charge, []sluice.Receipt) error {
	return errors.New("broken")
}

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

// What an override can say once, and nothing else.
func TestOverrideMistakes(t *testing.T) {
	for text, want := range map[string]string{
		"block: true, exempt: true":      "rule \"\": an override either exempts or blocks",
		"block: true, limit: 1/day":      "an override with block or exempt has no limit; remove one of them",
		"exempt: true, limits: [1/day]":  "an override with block or exempt has no limit",
		"until: 2030-01-01":              "the override has no limit",
		"block: true, until: 2030-02-30": "which is not a time; write it as in 2027-01-31T12:00:00Z, or 2027-01-31 for the end of that day in UTC",
	} {
		_, err := Parse("p.yaml", []byte("version: 1\nrules: [{name: a, key: [client_ip], limit: 1/day}]\noverrides: [{rule: a, key: {client_ip: 192.0.2.1}, "+text+"}]"))
		if err == nil || !strings.Contains(err.Error(), strings.TrimPrefix(want, "rule \"\": ")) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	for text, want := range map[string]string{
		"key: {client_ip: '*'}, block: true":  "the override blocks everybody; change the rule instead",
		"key: {client_ip: '*'}, exempt: true": "the override exempts everybody; change the rule instead",
	} {
		p := parse(t, "rules: [{name: a, key: [client_ip], limit: 1/day}]\noverrides: [{rule: a, "+text+"}]")
		if all := p.Warnings(); len(all) != 1 || !strings.Contains(all[0].String(), want) {
			t.Errorf("%s: %v, want %s", text, all, want)
		}
	}
}

func TestParseUntil(t *testing.T) {
	for text, want := range map[string]string{
		"2027-01-31":                "2027-02-01T00:00:00Z",
		"2028-02-28":                "2028-02-29T00:00:00Z",
		"1969-12-31":                "1970-01-01T00:00:00Z",
		"2027-01-31T12:00:00Z":      "2027-01-31T12:00:00Z",
		"2027-01-31T12:00:00+02:00": "2027-01-31T10:00:00Z",
		"2027-01-31T12:00:00":       "",
		"31.1.2027":                 "",
		"":                          "",
	} {
		got, err := ParseUntil(text)
		if (err != nil) != (want == "") || err == nil && got.UTC().Format(time.RFC3339) != want {
			t.Errorf("%q: %v, %v, want %q", text, got, err, want)
		}
	}
	// The beginning of the epoch is a time, and not for ever.
	p := parse(t, "rules: [{name: a, key: [client_ip], limit: 1/day}]\noverrides: [{rule: a, key: {client_ip: 192.0.2.1}, block: true, until: 1969-12-31}]")
	if d := NewEngine(memory.New(), p).Decide(t.Context(), get("/")); !d.Allowed || len(p.Warnings()) != 1 {
		t.Errorf("%+v, %v", d, p.Warnings())
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
