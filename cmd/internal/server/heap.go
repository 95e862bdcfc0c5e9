package server

import (
	"math"
	"runtime/debug"
)

// At least ballastSize bytes are allocated between two collections, however little memory is in use.
const ballastSize = 32 << 20

// gcBallast returns memory that the caller has to keep alive. Nothing is written to this memory, so the system does
// not back it. The collector runs when the heap has doubled. Without ballast, the heap of a gateway with few
// connections doubles every few hundred requests, and the collector takes 15 % of the CPU time. With a memory
// limit, which would include the ballast, gcBallast returns nil.
func gcBallast() []byte {
	if debug.SetMemoryLimit(-1) < math.MaxInt64 {
		return nil
	}
	return make([]byte, ballastSize)
}
