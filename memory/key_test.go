package memory_test

import (
	"strings"
	"testing"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/memory"
)

// TestLimiterKey holds that a Limiter and a Take of the key that it makes mean one state.
func TestLimiterKey(t *testing.T) {
	t.Parallel()
	s, limit := memory.NewSize(0), sluice.Limit{Count: 100, Period: 24 * time.Hour, Algorithm: sluice.FixedWindow}
	for _, name := range []string{"", "api", "a/b", strings.Repeat("n", 200)} {
		l, err := sluice.NewLimiter(s, name, limit)
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range []string{"", "192.0.2.117", "a/b", strings.Repeat("k", 128), strings.Repeat("k", 129)} {
			whole := string(append(sluice.AppendKeyPart(nil, name), '!')) + string(sluice.AppendKeyPart(nil, key))
			if name == "" && string(sluice.AppendKeyPart(nil, key)) == key {
				whole = key
			}
			if d, err := l.Take(t.Context(), key, 3); err != nil || d.Remaining != 97 {
				t.Errorf("%.10q, %.10q: %+v, %v", name, key, d, err)
			}
			takes := newTaker(s, l.Plan())
			if takes.one(whole); takes.receipts[0].Used != 4 {
				t.Errorf("%.10q, %.10q: %d are used, want 4", name, key, takes.receipts[0].Used)
			}
			if d, err := l.Peek(t.Context(), key); err != nil || d.Remaining != 96 {
				t.Errorf("%.10q, %.10q: %+v, %v", name, key, d, err)
			}
		}
	}
}
