// Package policytest makes policies and engines for the tests of integrations.
package policytest

import (
	"context"
	"strings"
	"testing"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/plantest"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/policyfile"
)

// Parse returns the policy of a text, in which "version: 1" may be missing. The policy of an empty text has no
// rules.
func Parse(t testing.TB, text string) *policy.Policy {
	t.Helper()
	if strings.TrimSpace(text) == "" {
		text = "rules: []"
	}
	if !strings.HasPrefix(strings.TrimSpace(text), "version:") {
		text = "version: 1\n" + text
	}
	p, err := policyfile.Parse("test.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Engine returns an engine that counts in memory.
func Engine(t testing.TB, text string) *policy.Engine {
	t.Helper()
	return policy.NewEngine(memory.New(), Parse(t, text))
}

// Remaining returns how many units remain of the limit of a rule without a key.
func Remaining(t testing.TB, e *policy.Engine, rule string) int64 {
	t.Helper()
	s, err := e.Subject(rule, nil)
	if err != nil {
		t.Fatal(err)
	}
	results, err := s.Peek(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return results[0].Remaining
}

// Load returns the state of the only automatic limit.
func Load(t testing.TB, e *policy.Engine) policy.LoadState {
	t.Helper()
	all := e.Loads()
	if len(all) != 1 {
		t.Fatalf("the engine has %d automatic limits, want one", len(all))
	}
	return all[0]
}

// Limiter returns a limiter of a limit such as "1/second burst 3 as leaky_bucket".
func Limiter(t testing.TB, store sluice.Store, limit string) *sluice.Limiter {
	t.Helper()
	l, err := sluice.NewLimiter(store, "", plantest.Limit(t, limit))
	if err != nil {
		t.Fatal(err)
	}
	return l
}
