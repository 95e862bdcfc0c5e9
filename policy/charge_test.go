package policy

import (
	"strings"
	"testing"

	"github.com/sluicehq/sluice/memory"
)

// Values of any length and content give keys of bounded length that differ.
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
