package testkit

import (
	"runtime"
	"testing"
)

// Allocations returns how often a function allocates, by the best of many calls: the race detector makes pools forget
// now and then.
func Allocations(f func()) float64 {
	n := testing.AllocsPerRun(1, f)
	for range 100 {
		n = min(n, testing.AllocsPerRun(1, f))
	}
	return n
}

// Heap returns how many bytes are in use after a collection.
func Heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
