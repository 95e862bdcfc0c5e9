package policy_test

import (
	"context"
	"math"
	"testing"

	"github.com/sluicehq/sluice/internal/policytest"
	"github.com/sluicehq/sluice/policy"
)

func remainingA(t *testing.T, e *policy.Engine) int64 {
	s, err := e.Subject("a", nil)
	if err != nil {
		t.Fatal(err)
	}
	r, err := s.Peek(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return r[0].Remaining
}

func TestHostileNumbers(t *testing.T) {
	for _, one := range []struct {
		name    string
		numbers map[string]int64
	}{
		{"two huge", map[string]int64{"usage.prompt_tokens": math.MaxInt64, "usage.completion_tokens": math.MaxInt64}},
		{"huge+1", map[string]int64{"usage.prompt_tokens": math.MaxInt64, "usage.completion_tokens": 1}},
		{"huge+101", map[string]int64{"usage.prompt_tokens": math.MaxInt64, "usage.completion_tokens": 101}},
		{"misspelled", map[string]int64{"usage.totaltokens": 5000}},
		{"none", map[string]int64{}},
	} {
		e := policytest.Engine(t, "version: 1\nrules: [{name: a, limit: 10000/day, algorithm: fixed_window, cost: {tokens: total, estimate: {output: 100}}}]")
		for range 50 {
			e.Decide(context.Background(), &policy.Request{Method: "POST", Path: "/"})
		}
		before := remainingA(t, e)
		d := e.Decide(context.Background(), &policy.Request{Method: "POST", Path: "/"})
		e.Settle(context.Background(), d, policy.Outcome{Status: 200, Numbers: one.numbers})
		if got := remainingA(t, e); got > before-100 {
			t.Errorf("%s: %d before, %d after: gave back %d of 100", one.name, before, got, got-before+100)
		}
	}
}
