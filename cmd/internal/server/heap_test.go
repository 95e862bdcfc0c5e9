package server

import (
	"math"
	"runtime/debug"
	"testing"
)

// With a memory limit, there is no ballast.
func TestGCBallast(t *testing.T) {
	before := debug.SetMemoryLimit(math.MaxInt64)
	defer debug.SetMemoryLimit(before)
	if n := len(gcBallast()); n != ballastSize {
		t.Errorf("ballast of %d bytes without a limit", n)
	}
	debug.SetMemoryLimit(64 << 20)
	if n := len(gcBallast()); n != 0 {
		t.Errorf("ballast of %d bytes within a limit of 64 MiB", n)
	}
}
