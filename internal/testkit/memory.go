package testkit

import (
	"runtime"
	"testing"
)

// Allocations returns the number of allocations of a call of f: the lowest of many calls, because the race detector
// makes pools drop objects at random.
func Allocations(f func()) float64 {
	n := testing.AllocsPerRun(1, f)
	for range 100 {
		n = min(n, testing.AllocsPerRun(1, f))
	}
	return n
}

// Heap returns how many bytes of the heap are in use after a garbage collection.
func Heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
