package server

import (
	"math"
	"runtime/debug"
)

// ballastSize is how much garbage is not collected yet, however little memory is in use.
const ballastSize = 32 << 20

// gcBallast returns memory that the caller has to keep alive. Nothing is written to it, so the system does
// not back it. The collector runs when the heap has doubled: without ballast, that is every few hundred
// requests of a gateway with few connections, which costs 15 % of its CPU time. With a memory limit, which
// counts the ballast, it returns nil.
func gcBallast() []byte {
	if debug.SetMemoryLimit(-1) < math.MaxInt64 {
		return nil
	}
	return make([]byte, ballastSize)
}
