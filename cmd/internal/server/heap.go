package server

import (
	"math"
	"runtime/debug"
)

// ballastSize is the minimum number of bytes that are allocated between two garbage collections.
const ballastSize = 32 << 20

// gcBallast returns memory that the caller must keep alive. The collector runs when the heap has doubled. Without
// this ballast, the heap of a gateway with few connections doubles every few hundred requests, and the collector
// takes 15 % of the CPU time. The ballast is never written, so the operating system does not provide memory for it.
// If a memory limit is set, gcBallast returns nil, because the limit would include the ballast.
func gcBallast() []byte {
	if debug.SetMemoryLimit(-1) < math.MaxInt64 {
		return nil
	}
	return make([]byte, ballastSize)
}
