package policy

import (
	"context"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/memory"
)

// odd are values that have something to escape, to fold, to shorten or to hash.
var odd = []string{
	"", "a", "alice", "a/b", "{x}", "!", "*", "#", "%41", "%", "ÄÖÜ", "\u202egnp.exe", "a\nb", "a\x00b", "\xff\xfe", "(missing)", " · ", " x ",
	"#" + strings.Repeat("0a", 16), strings.Repeat("k", sluice.MaxKeyPart), strings.Repeat("k", sluice.MaxKeyPart+1), strings.Repeat("é", 200), "192.0.2.9",
}

// oddPolicy has rules by all that requests of oddRequest have.
func oddPolicy(r dice) *Document {
	d := &Document{Tiers: Tiers{Subject: "header:X-User", From: "attr:plan"}, Subjects: []TierSubject{{Subject: "alice", Tier: "pro"}}}
	for i := range 3 {
		key := some(r, 0, 4, "client_ip", "header:X-User", "api_key", "attr:user", "query:q", "const:v1", "const:"+strings.Repeat("c", 300), "host", "method", "route")
		d.Rules = append(d.Rules, Rule{
			Name: fmt.Sprint("r", i), Key: key, Together: some(r, 0, len(key), key...), Match: []string{"/{rest...}"},
			Limits: []string{"50/hour", "70/day"}, Tiers: map[string]Limits{"pro": {"90/hour"}},
			ShowKey: pick(r, "", "whole", "short", "hash"),
		})
		if slices.Contains(key, "header:X-User") {
			d.Overrides = append(d.Overrides, Override{Rule: fmt.Sprint("r", i), Key: map[string]string{"header:X-User": pick(r, odd[1:11]...)}, Limit: "33/hour"})
		}
	}
	return d
}

func oddRequest(r dice) *Request {
	q := randomQuery(r).request(r)
	q.Mode, q.ID, q.Cost, q.Body = Charge, "", 0, nil
	for _, name := range []string{"X-User", "X-Api-Key"} {
		if q.Header.Del(name); r.one(2) {
			q.Header[name] = []string{pick(r, odd...)}
		}
	}
	q.Attributes = map[string]string{"user": pick(r, odd...)}
	q.RawQuery = pick(r, "", "q=Alice", "q=%C3%84", "q="+strings.Repeat("z", 300), "q=a%2Fb")
	return q
}

// A key that was observed leads to the subject that was counted, whose values name it.
func TestSubjectOfObserved(t *testing.T) {
	t.Parallel()
	keys, hashed := 0, 0
	for seed := range uint64(25) {
		r := dice{rand.New(rand.NewPCG(seed, 13))}
		p := compile(t, *oddPolicy(r))
		e := NewEngine(memory.New(), p)
		e.Observe(func(ctx context.Context, o *Observation) {
			for i := range o.Decision.Results {
				said, key := o.Decision.Results[i], strings.Clone(o.Key(i))
				s, err := e.SubjectOf(key)
				if err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
				states, err := s.Peek(ctx)
				at := slices.IndexFunc(states, func(r Result) bool { return r.Plan == said.Plan && r.Remaining == said.Remaining })
				if keys++; err != nil || at < 0 || s.Rule() != said.Rule || s.charged != key {
					t.Fatalf("seed %d: %s is counted under %s, and has %+v, %v; want %+v", seed, key, s.charged, states, err, said)
				}
				if parts := s.Hashed(); len(parts) > 0 {
					hashed++
					if long := len(o.Request.Header.Get("X-User")) > sluice.MaxKeyPart; slices.Contains(parts, "header:X-User") && !long {
						t.Fatalf("seed %d: %s has the hashes %q of %q", seed, key, parts, o.Request.Header)
					}
					continue
				}
				sent, value := o.Request.Header.Get("X-User"), s.Values()["header:X-User"]
				if value != "" && value != strings.TrimSpace(sent) {
					t.Fatalf("seed %d: %s has the value %q, and was sent as %q", seed, key, value, sent)
				}
				named, err := e.Subject(said.Rule, s.Values())
				if err != nil || named.charged != s.charged || named.key != s.key || !sameLimits(named, s) || !reflect.DeepEqual(named.values, s.values) {
					t.Fatalf("seed %d: %s has the values %q, which are %+v, %v", seed, key, s.Values(), named, err)
				}
				if again, err := e.SubjectOf(s.Key()); err != nil || !reflect.DeepEqual(again, s) {
					t.Fatalf("seed %d: %s leads to %+v, %v", seed, s.Key(), again, err)
				}
			}
		})
		for range 60 {
			e.Decide(t.Context(), oddRequest(r))
		}
	}
	if keys < 5000 || hashed < 100 {
		t.Errorf("%d keys, %d of them with a hash", keys, hashed)
	}
}

func FuzzSubjectOf(f *testing.F) {
	p := compile(f, *oddPolicy(dice{rand.New(rand.NewPCG(1, 2))}))
	e := NewEngine(memory.New(), p)
	f.Add("r0/a/b")
	f.Add("{a}r1/a%2Fb/!")
	f.Fuzz(func(t *testing.T, key string) {
		if s, err := e.SubjectOf(key); err == nil && key != s.key && key != s.charged && s.spelled == nil {
			t.Errorf("%q leads to %q and %q", key, s.key, s.charged)
		}
		mustShow(t, p.ShownKey(key))
	})
}

// sameLimits reports whether two subjects are held to the same limits.
func sameLimits(a, b *Subject) bool {
	limits, by := a.held()
	others, byOther := b.held()
	return reflect.DeepEqual(limits, others) && by == byOther
}

const ofSubjects = `
tiers: {from: "header:X-Plan"}
rules:
  - {name: open, match: /open, exempt: true}
  - {name: user, key: ["header:X-User", client_ip, "const:v1"], limit: 10/day, tiers: {pro: 20/hour}, together: [client_ip]}
  - {name: all, limit: 100/day}
`

func TestSubjectOfNothing(t *testing.T) {
	t.Parallel()
	e := engine(t, ofSubjects)
	for _, row := range names(t, "keys of no subject") {
		s, err := e.SubjectOf(row.In)
		if is := row.Want == "is one"; (err == nil) != is || !is && !strings.Contains(err.Error(), row.Want) {
			t.Errorf("%s: %+v, %v", row.In, s, err)
		}
	}
	if _, err := e.SubjectOf("all" + strings.Repeat("/", 1000000)); err == nil || len(err.Error()) > 300 {
		t.Errorf("a long key: %.400v", err)
	}
}
