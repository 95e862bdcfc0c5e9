package main

import (
	"crypto/sha256"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// Whoever asks first, and those who ask while the file is read for the first time, are let in.
func TestFirstToAsk(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(path, fmt.Appendf(nil, "a %x\n", sha256.Sum256([]byte("secret"))), 0o600); err != nil {
		t.Fatal(err)
	}
	tokens := newDoorTokens(path, slog.New(slog.DiscardHandler))
	if err := os.Remove(path); err != nil { // what is known does not come from the first question
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			if !tokens.have("secret") || tokens.have("other") {
				t.Error("the tokens are not known yet")
			}
		})
	}
	all.Wait()
}
