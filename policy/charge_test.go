package policy

import (
	"strings"
	"testing"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/memory"
)

// Different values have different keys, of a bounded length, whatever their length and content.
func TestKeysOfHostileValues(t *testing.T) {
	t.Parallel()
	store := &testStore{Store: memory.New(), record: true}
	e := NewEngine(store, parse(t, `rules: [{name: a, key: [header:X, header:Y], limit: 9/day}]`))
	values := []string{"", "!", "*", "/", "a/b", "a", "b", "%2F", "\x00", "\xff", "{x}", "#", ":", "\n", "é", strings.Repeat("x", 1<<20), strings.Repeat("x", 1<<20+1)}
	seen := make(map[string][2]string)
	for _, x := range values {
		for _, y := range values {
			r := get("/")
			r.Header["X"], r.Header["Y"] = []string{x}, []string{y}
			e.Decide(t.Context(), r)
			key := store.charges[len(store.charges)-1].Key
			if before, twice := seen[key]; twice && before != [2]string{x, y} {
				t.Fatalf("%.20q and %.20q have the key %q", before, [2]string{x, y}, key)
			}
			seen[key] = [2]string{x, y}
			if len(key) > 300 || strings.Trim(key, "abcdefghijklmnopqrstuvwxyzABCDEF0123456789%/!#:") != "" {
				t.Fatalf("the key is %.400q", key)
			}
		}
	}
	if len(seen) != len(values)*len(values) {
		t.Errorf("%d keys of %d pairs", len(seen), len(values)*len(values))
	}
}

// Rules and limiters of the same name on one store share no count, whatever their keys.
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
	if got, want := summary(e.Decide(t.Context(), get("/", "A: alice", "B: bob"))), "allowed api:96 alice:96 user:98 tagged:97"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
