package source_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/sluicehq/sluice/internal/source"
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

func benchOpen(b *testing.B, url string) *source.Database {
	b.Helper()
	db, err := source.Open(url, slog.New(slog.DiscardHandler))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = db.Close() })
	return db
}

// longer is a context for more than a change may take by itself.
func longer(b *testing.B) (context.Context, context.CancelFunc) {
	return context.WithTimeout(b.Context(), time.Hour)
}
