package source_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/sluicehq/sluice/cmd/internal/source"
)

func unmarshal(t *testing.T, text string, into any) {
	t.Helper()
	if text == "" {
		return
	}
	if err := json.Unmarshal([]byte(text), into); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
}

func isAway(err error) bool { return errors.Is(err, source.ErrAway) }

// longer is a context for more than a change may take by itself.
func longer(b *testing.B) (context.Context, context.CancelFunc) {
	return context.WithTimeout(b.Context(), time.Hour)
}
