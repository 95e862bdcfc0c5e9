package server

import (
	"math"
	"runtime/debug"
)

// ballastSize is how much garbage there may be before it is collected, whatever little is in
// use.
const ballastSize = 32 << 20

// gcBallast returns memory that nothing is written to, so that the system does not back
// it, and that has to be kept alive. The collector runs when the heap has doubled, and a
// gateway with a few connections has so small a heap that it would be collected every few
// hundred requests. Who has set a memory limit wants every byte of it: then it is nil.
func gcBallast() []byte {
	if debug.SetMemoryLimit(-1) < math.MaxInt64 {
		return nil
	}
	return make([]byte, ballastSize)
}
