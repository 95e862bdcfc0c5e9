package kernel_test

import (
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/sluicehq/sluice/internal/plantest"
	"github.com/sluicehq/sluice/internal/seed"
	"github.com/sluicehq/sluice/kernel"
)

var inFlight = plantest.InFlight

const now = plantest.Start

// TestPermitsBytes checks that permits take at most as much memory as Bytes returns, and at least two fifths of it.
func TestPermitsBytes(t *testing.T) {
	for _, n := range []int{1, 8, 9, 14, 15, 100, 897, 1000, 2000, 10_000, 65_536} {
		sets := make([]kernel.Permits, 1+20_000/n)
		p, random := inFlight(t, int64(n)), rand.New(rand.NewPCG(seed.Of(t), 0))
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		reported := 0
		for i := range sets {
			for number := range n {
				sets[i].Step(&p.Plan, now, random.Uint64()|uint64(number), 1)
			}
			reported += sets[i].Bytes()
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		took := int(after.HeapAlloc - before.HeapAlloc)
		if took > reported || took < reported*2/5 {
			t.Errorf("%d permits: %d bytes each, and Bytes returns %d", n, took/len(sets)/n, reported/len(sets)/n)
		}
		runtime.KeepAlive(sets)
	}
}

// TestInFlightSnapshot: a receipt made from a snapshot counts the permits that were held when the snapshot was taken.
func TestInFlightSnapshot(t *testing.T) {
	p := inFlight(t, 3)
	for _, test := range []struct {
		used, cost int64
		fits       bool
	}{{0, 1, true}, {2, 1, true}, {3, 1, false}, {3, 0, true}, {3, -1, true}, {0, 2, false}} {
		s := p.Snapshot(1, kernel.Receipt{Now: now, Used: test.used, Fits: true}, 0)
		want := kernel.Receipt{Now: now + 1, Used: test.used, Fits: test.fits}
		if r, known := s.Receipt(&p.Plan, now+1, test.cost); !known || r != want {
			t.Errorf("%d permits taken, cost %d: %+v, want %+v", test.used, test.cost, r, want)
		}
		if n := s.Remaining(&p.Plan, now+1); n != 3-test.used {
			t.Errorf("%d of 3 permits taken, and %d remain", test.used, n)
		}
	}
}
