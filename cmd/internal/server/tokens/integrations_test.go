package tokens

import (
	"crypto/sha256"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// The first callers are let in, also those who come at the same time.
func TestFirstCallers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(path, fmt.Appendf(nil, "a %x\n", sha256.Sum256([]byte("secret"))), 0o600); err != nil {
		t.Fatal(err)
	}
	tokens := NewIntegrations(path, slog.New(slog.DiscardHandler))
	if err := os.Remove(path); err != nil { // the tokens were read before the first caller
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			if !tokens.has("secret") || tokens.has("other") {
				t.Error("the tokens are not known yet")
			}
		})
	}
	all.Wait()
}
