// Package seed chooses the seeds of random tests. The seed is always the same unless it is set, so that a test
// starts to fail only because of a change.
package seed

import (
	"os"
	"strconv"
	"testing"
)

// Of returns the value of SLUICE_SEED, or 1 if it is not set. If the test fails, it prints the seed.
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
