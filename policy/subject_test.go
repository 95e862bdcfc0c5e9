package policy

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"
)

// manyOverrides returns overrides of a rule "each" for as many subjects.
func manyOverrides(n int, limit string) []Override {
	all := make([]Override, n)
	for i := range all {
		all[i] = Override{Rule: "each", Key: map[string]string{"header:X-User": fmt.Sprintf("user-%06d@example.com", i)}, Limit: limit}
	}
	return all
}

const eachUser = `rules: [{name: each, key: ["header:X-User"], limit: 9/day}, {name: all, limit: 1000000/day}]`

// A hundred thousand overrides are swapped at once, while decisions are made, and the policy
// stays what it is.
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
			t.Error("it is blocked before")
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
