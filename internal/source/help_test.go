package source_test

import (
	"encoding/json"
	"strings"
	"testing"
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

func contains(text, part string) bool { return strings.Contains(text, part) }
