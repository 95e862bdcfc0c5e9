package policy

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/memory"
)

// odd has values that need to be escaped, folded, shortened or hashed.
var odd = []string{
	"", "a", "alice", "a/b", "{x}", "!", "*", "#", "%41", "%", "ÄÖÜ", "\u202egnp.exe", "a\nb", "a\x00b", "\xff\xfe", "(missing)", " · ", " x ",
	"#" + strings.Repeat("0a", 16), strings.Repeat("k", sluice.MaxKeyPart), strings.Repeat("k", sluice.MaxKeyPart+1), strings.Repeat("é", 200), "192.0.2.9",
}

// oddPolicy returns a policy with rules by all parts of the requests of oddRequest.
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

// SubjectOf returns the subject that was counted under an observed key, and Subject returns the same subject by its
// values.
func TestSubjectOfObserved(t *testing.T) {
	t.Parallel()
	keys, hashed := 0, 0
	for seed := range uint64(25) {
		r := dice{rand.New(rand.NewPCG(seed, 13))}
		p := compile(t, *oddPolicy(r))
		e := NewEngine(memory.New(), p)
		e.Observe(func(ctx context.Context, o *Observation) {
			for i := range o.Decision.Results {
				summary, key := o.Decision.Results[i], strings.Clone(o.Key(i))
				s, err := e.SubjectOf(key)
				if err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
				states, err := s.Peek(ctx)
				at := slices.IndexFunc(states, func(r Result) bool { return r.Plan == summary.Plan && r.Remaining == summary.Remaining })
				if keys++; err != nil || at < 0 || s.Rule() != summary.Rule || s.charged != key {
					t.Fatalf("seed %d: %s is counted under %s, and has %+v, %v; want %+v", seed, key, s.charged, states, err, summary)
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
				named, err := e.Subject(summary.Rule, s.Values())
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

// sameLimits reports whether two subjects have the same limits from the same source.
func sameLimits(a, b *Subject) bool {
	limits, by := a.limits()
	others, byOther := b.limits()
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

// manyOverrides returns overrides of a rule "each" for n subjects.
func manyOverrides(n int, limit string) []Override {
	all := make([]Override, n)
	for i := range all {
		all[i] = Override{Rule: "each", Key: map[string]string{"header:X-User": fmt.Sprintf("user-%06d@example.com", i)}, Limit: limit}
	}
	return all
}

const eachUser = `rules: [{name: each, key: ["header:X-User"], limit: 9/day}, {name: all, limit: 1000000/day}]`

// A hundred thousand overrides are swapped atomically while decisions are made, and the rules are not compiled again.
func TestSwapOverrides(t *testing.T) {
	t.Parallel()
	e := engine(t, eachUser)
	rules := &e.Policy().rules[0]
	old, fresh := manyOverrides(100_000, "50/day"), manyOverrides(100_000, "70/day")
	ok(t, e.SwapOverrides(old))
	r := get("/", "X-User: user-099999@example.com")
	if d := e.Decide(t.Context(), r); d.Results[0].Plan.Limit.Count != 50 || d.Results[0].From != "override" {
		t.Errorf("%+v", d.Results[0])
	}
	done := make(chan error)
	go func() { done <- e.SwapOverrides(fresh) }()
	seen := map[int64]int{}
	for swapped := false; !swapped; {
		select {
		case err := <-done:
			if swapped = true; err != nil {
				t.Fatal(err)
			}
		default:
		}
		seen[e.Decide(t.Context(), r).Results[0].Plan.Limit.Count]++
	}
	if got := e.Decide(t.Context(), r).Results[0].Plan.Limit.Count; got != 70 || len(seen) > 2 || seen[9] > 0 {
		t.Errorf("the limit is %d at last, and was %v meanwhile", got, seen)
	}
	if rules != &e.Policy().rules[0] {
		t.Error("the rules were compiled again")
	}

	bad := append(slices.Clone(old), Override{Rule: "each", Key: map[string]string{"header:X-User": "x"}, Limit: "1/year"}, Override{Rule: "none"})
	var problems Errors
	if err := e.SwapOverrides(bad); !errors.As(err, &problems) || len(problems) != 3 || problems[0].Path != "overrides[100000].limit" {
		t.Errorf("%v", err)
	}
	if got := e.Decide(t.Context(), r).Results[0].Plan.Limit.Count; got != 70 {
		t.Errorf("a bad list has replaced a good one: the limit is %d", got)
	}
	if err := e.SwapOverrides(nil); err != nil || e.Decide(t.Context(), r).Results[0].From != "rule" {
		t.Errorf("without overrides: %v", err)
	}
}

// Blocks outlive a swap, are listed while they last, and are bounded.
func TestBlocks(t *testing.T) {
	virtual(t, func(t *testing.T) {
		e := engine(t, ofSubjects)
		s, other := subjectOf(t, e, "user", map[string]string{"header:X-User": "bob", "client_ip": "192.0.2.1"}), subjectOf(t, e, "all", nil)
		if _, yes := s.Blocked(); yes {
			t.Error("the subject is blocked already")
		}
		end := time.Now().Add(time.Minute)
		ok(t, errors.Join(s.Block(end), other.Block(end.Add(time.Hour))))
		e.Swap(parse(t, ofSubjects))
		if until, yes := s.Blocked(); !yes || !until.Equal(end) {
			t.Errorf("after a swap: blocked %v until %v", yes, until)
		}
		if all := e.Blocks(); len(all) != 2 || all[0].Key != "all/" || all[1].Key != s.Key() || !all[1].Until.Equal(end) {
			t.Errorf("blocks: %v", all)
		}
		time.Sleep(time.Minute)
		if all := e.Blocks(); len(all) != 1 {
			t.Errorf("blocks after the end of one: %v", all)
		}
		if other.Unblock(); len(e.Blocks()) != 0 {
			t.Errorf("blocks: %v", e.Blocks())
		}
		full := make(map[string]int64)
		for i := range maxBlocks - 1 {
			full[fmt.Sprintf("each/%d", i)] = time.Now().Add(time.Hour).UnixMicro()
		}
		e.blocks.Store(&full)
		first, second := s.Block(time.Now().Add(time.Hour)), other.Block(time.Now().Add(time.Hour))
		if first != nil || second == nil || len(e.Blocks()) != maxBlocks {
			t.Errorf("%d blocks: %v, then %v", len(e.Blocks()), first, second)
		}
	})
}
