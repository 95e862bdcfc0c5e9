package sluice_test

import (
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/plantest"
)

var inFlight = plantest.InFlight

const now = start

// TestPlacesBytes holds that places take no more memory than they say, and not much less.
func TestPlacesBytes(t *testing.T) {
	for _, n := range []int{1, 8, 9, 14, 15, 100, 897, 1000, 2000, 10_000, 65_536} {
		sets := make([]sluice.Places, 1+20_000/n)
		p := inFlight(t, int64(n))
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		said := 0
		for i := range sets {
			for number := range n {
				sets[i].Step(p, now, rand.Uint64()|uint64(number), 1)
			}
			said += sets[i].Bytes()
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		took := int(after.HeapAlloc - before.HeapAlloc)
		if took > said || took < said*2/5 {
			t.Errorf("%d places: %d bytes each, and they say %d", n, took/len(sets)/n, said/len(sets)/n)
		}
		runtime.KeepAlive(sets)
	}
}

// TestInFlightShare holds that the shares of places are whole ones, that all of them together are no
// more than there are, unless there are more instances, and that a share says what it has left.
func TestInFlightShare(t *testing.T) {
	for _, test := range []struct{ places, instances, want int64 }{
		{10, 1, 10}, {10, 2, 5}, {10, 3, 3}, {10, 10, 1}, {10, 11, 1}, {1, 4, 1}, {1 << 16, 7, 9362},
	} {
		p := inFlight(t, test.places)
		share := p.Share(test.instances)
		if share.Plan.Capacity != test.want || share.Plan.Fingerprint != p.Fingerprint {
			t.Errorf("%d places by %d: %d each, want %d", test.places, test.instances, share.Plan.Capacity, test.want)
		}
		var s sluice.Places
		for n := range test.want + 1 {
			r := share.Receipt(1, s.Step(share.Plan, now, uint64(n), share.Cost(1)))
			if d := p.Decide(1, r); d.Allowed != (n < test.want) || d.Remaining != max(0, test.want-n-1) {
				t.Errorf("%d places by %d: the %dth is told %+v", test.places, test.instances, n+1, d)
			}
		}
		if r := s.Step(share.Plan, now, 0, share.Cost(-1<<20)); r.Used != test.want-1 {
			t.Errorf("one of %d is given back, and %d are left", test.want, r.Used)
		}
		if r := s.Step(share.Plan, now, 0, share.Cost(sluice.All)); r.Used != 0 {
			t.Errorf("all are given back, and %d are left", r.Used)
		}
	}
}

// TestInFlightSnapshot holds that what was seen of places is told as it was.
func TestInFlightSnapshot(t *testing.T) {
	p := inFlight(t, 3)
	for _, test := range []struct {
		used, cost int64
		fits       bool
	}{{0, 1, true}, {2, 1, true}, {3, 1, false}, {3, 0, true}, {3, -1, true}, {0, 2, false}} {
		s := p.Snapshot(1, sluice.Receipt{Now: now, Used: test.used, Fits: true}, 0)
		want := sluice.Receipt{Now: now + 1, Used: test.used, Fits: test.fits}
		if r, known := s.Receipt(p, now+1, test.cost); !known || r != want {
			t.Errorf("%d were taken, cost %d: %+v, want %+v", test.used, test.cost, r, want)
		}
		if n := s.Remaining(p, now+1); n != 3-test.used {
			t.Errorf("%d of 3 were taken, and %d remain", test.used, n)
		}
	}
}
