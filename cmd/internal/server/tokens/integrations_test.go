package tokens

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/sluicehq/sluice/internal/testkit"
)

// The first callers are admitted, even several at the same time.
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
				t.Error("the tokens are not loaded yet")
			}
		})
	}
	all.Wait()
}

// A mistake in the file does not invalidate the previous tokens, and the contents of the file are not logged.
func TestSlipInTokens(t *testing.T) {
	path := testkit.File(t, "tokens", fmt.Sprintf("a %x\n", sha256.Sum256([]byte("secret"))))
	var log bytes.Buffer
	tokens := NewIntegrations(path, slog.New(slog.NewTextHandler(&log, nil)))
	if err := os.WriteFile(path, []byte("b plain-text\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		tokens.reread()
	}
	if said := log.String(); !tokens.has("secret") || strings.Count(said, "its previous tokens stay valid") != 1 || strings.Contains(said, "plain-text") {
		t.Errorf("after a mistake in the file: %s", said)
	}
}
