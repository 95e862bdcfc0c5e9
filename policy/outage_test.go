package policy

import (
	"strings"
	"testing"
)

func TestNoStore(t *testing.T) {
	defer func() {
		if s, _ := recover().(string); !strings.Contains(s, "needs a store: memory.New()") {
			t.Errorf("without a store: %q", s)
		}
	}()
	NewEngine(nil, nil)
}
