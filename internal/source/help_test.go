package source_test

import (
	"encoding/json"
	"errors"
	"testing"

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
