//go:build !race

package recent

import (
	"math/rand/v2"
	"runtime"
	"testing"
)

// A ring stays within its memory limit, however many requests it records, and still keeps many of them.
func TestMemory(t *testing.T) {
	const size = 16 << 20
	engine := engineOf(t, decode(t, typical))
	before := heap()
	ring := Watch(engine, size)
	r := rand.New(rand.NewPCG(1, 2))
	requests := 0
	for full := false; !full || requests%100_000 != 0; requests++ {
		q := some(r)
		engine.Decide(t.Context(), &q)
		ring.mu.Lock()
		full = full || len(ring.sealed) == ring.most
		ring.mu.Unlock()
	}
	kept := 0
	for records := newMerger(ring.chunks()); records.next() != nil; {
		kept++
	}
	after := heap()
	t.Logf("the ring keeps %d requests of %d, in %d bytes each", kept, requests, size/kept)
	if took := after - before; took > size+counters {
		t.Errorf("the ring takes %d bytes", took)
	}
	if kept < 400_000 {
		t.Errorf("the ring keeps only %d requests", kept)
	}
	runtime.KeepAlive(ring)
}

// counters is the memory of the test's store.
const counters = 12 << 20
