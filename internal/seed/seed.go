// Package seed chooses the seeds of random tests: always the same unless set otherwise, so that a test
// fails only because of a change.
package seed

import (
	"os"
	"strconv"
	"testing"
)

// Of returns SLUICE_SEED, or 1, and has a test that fails print it.
func Of(t testing.TB) uint64 {
	t.Helper()
	seed := uint64(1)
	if text := os.Getenv("SLUICE_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("SLUICE_SEED: %v", err)
		}
	}
	t.Logf("SLUICE_SEED=%d", seed)
	return seed
}
