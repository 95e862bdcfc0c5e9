package policy

import (
	"testing"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/memory"
)

// Rules and limiters of one name on one store share no count, whatever their keys.
func TestNamesOfRulesAndLimiters(t *testing.T) {
	t.Parallel()
	store := memory.New()
	e := NewEngine(store, parse(t, `
rules:
  - {name: api, limit: 100/day}
  - {name: alice, limit: 100/day}
  - {name: user, key: [header:A, header:B], limit: 100/day}
  - {name: tagged, key: [header:A], together: [header:A], limit: 100/day}`))
	limit := sluice.Limit{Count: 100, Period: 24 * 60 * 60 * 1e9}
	names := []string{"", "api", "alice", "user", "tagged", "user/alice", "{alice}tagged", "/", "!", "user!"}
	keys := []string{"", "alice", "!", "/", "alice/", "/alice", "alice/bob", "alice/!", "api", "api/", "user/alice/bob", "{alice}tagged/alice", "tagged/alice"}
	for _, r := range []*Request{get("/", "A: alice", "B: bob"), get("/", "A: alice"), get("/")} {
		e.Decide(t.Context(), r)
	}
	for _, name := range names {
		l := must(sluice.NewLimiter(store, name, limit))
		for _, key := range keys {
			if d, err := l.Take(t.Context(), key, 1); err != nil || d.Remaining != 99 {
				t.Errorf("limiter %q, key %q: %d remain, %v", name, key, d.Remaining, err)
			}
		}
	}
	if got, want := said(e.Decide(t.Context(), get("/", "A: alice", "B: bob"))), "allowed api:96 alice:96 user:98 tagged:97"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
