package main

import (
	"math"
	"runtime/debug"
	"testing"
)

// Memory that is limited is not given away.
func TestMakeRoom(t *testing.T) {
	before := debug.SetMemoryLimit(math.MaxInt64)
	defer debug.SetMemoryLimit(before)
	if n := len(makeRoom()); n != heapRoom {
		t.Errorf("room of %d bytes without a limit", n)
	}
	debug.SetMemoryLimit(64 << 20)
	if n := len(makeRoom()); n != 0 {
		t.Errorf("room of %d bytes within a limit of 64 MiB", n)
	}
}
