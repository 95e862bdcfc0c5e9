package console

import (
	"fmt"
	"maps"
	"testing"
)

// The editor of a policy of tens of thousands of rules remembers what it has shown.
func TestSeenText(t *testing.T) {
	all := map[string]ruleSeen{}
	for i := range 30_000 {
		all[fmt.Sprint("rule-", i)] = ruleSeen{fmt.Sprintf("%q", fmt.Sprint(i)), []string{"file", "database"}[i%2]}
	}
	for _, want := range []map[string]ruleSeen{{}, all} {
		if got, err := parseSeen(seenText(want)); err != nil || !maps.Equal(got, want) {
			t.Errorf("of %d rules %d came back: %v", len(want), len(got), err)
		}
	}
	for _, text := range []string{"nonsense", "a \"1\";", "a b c d;", ";"} {
		if _, err := parseSeen(text); err == nil {
			t.Errorf("%q is read", text)
		}
	}
}
