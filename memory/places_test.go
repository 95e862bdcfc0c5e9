package memory

import (
	"fmt"
	"testing"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/plantest"
	"github.com/sluicehq/sluice/kernel"
)

var inFlight = plantest.InFlight

// TestHeldIsNotEvicted checks that a flood of little used keys of any kind ends no penalty, and frees no permit of a
// key that has most of its permits taken; and that ended penalties and expired permits make room for others.
func TestHeldIsNotEvicted(t *testing.T) {
	t.Parallel()
	const busy, size = 20, 256 << 10
	lock, limit := plantest.Lock(t, sluice.Penalty{First: time.Hour, Factor: 2}), plantest.Plan(t, "1/hour")
	places, few := inFlight(t, 3), inFlight(t, 100)
	little := plantest.Plan(t, "10/hour as sliding_window_log_exact")
	for _, test := range []struct {
		name string
		hold func(key string) []sluice.Charge // returns charges that start a penalty or take a permit
		look sluice.Charge
		over time.Duration
	}{
		{"penalty", func(key string) []sluice.Charge {
			return []sluice.Charge{{Key: key, Plan: limit, Cost: 2}, {Key: key, Plan: lock, Cost: 1}}
		}, sluice.Charge{Plan: lock}, 25 * time.Hour},
		{"places", func(key string) []sluice.Charge {
			return []sluice.Charge{{Key: key, Plan: places, Permit: 1, Cost: 1}}
		}, sluice.Charge{Plan: places}, kernel.PermitLasts},
	} {
		for _, refuse := range []bool{false, true} {
			s, now := NewSeeded(t, Config{MaxBytes: size, RefuseNew: refuse}), int64(1e15)
			flood := func() {
				before := s.evicted.Load()
				for i := range 2500 {
					now++
					plantest.OneAt(t, s, now, fmt.Sprint("log", now, i), little, 1)
					plantest.TakeAt(t, s, now, sluice.Charge{Key: fmt.Sprint("place", now, i), Plan: few, Permit: uint64(i), Cost: 1})
				}
				if s.evicted.Load() == before {
					t.Error("premise: nothing was evicted")
				}
				if b := s.StatsAt(now).Bytes; b > size {
					t.Errorf("%s, refuse %v: %d bytes, want at most %d", test.name, refuse, b, size)
				}
				if got, want := s.overflow.bytes.Load(), s.countOverflow(); got != want {
					t.Errorf("%s, refuse %v: the store counts %d bytes in the overflow, want %d", test.name, refuse, got, want)
				}
			}
			held := func() (n int) {
				for i := range busy {
					test.look.Key = fmt.Sprint("busy", i)
					if plantest.TakeAt(t, s, now, test.look)[0].Used > 0 {
						n++
					}
				}
				return n
			}
			for i := range busy {
				charges := test.hold(fmt.Sprint("busy", i))
				plantest.TakeAt(t, s, now, charges...)
				if charges[0].Plan == places {
					charges[0].Permit = 2
					plantest.TakeAt(t, s, now, charges...)
				}
			}
			flood()
			if n := held(); n != busy {
				t.Errorf("%s, refuse %v: after a flood, %d of %d are left", test.name, refuse, n, busy)
			}
			now += test.over.Microseconds()
			flood()
			if n := held(); n != 0 {
				t.Errorf("%s, refuse %v: %d are left after their end", test.name, refuse, n)
			}
			if refuse && s.refused.Load() > 0 {
				t.Errorf("%s: %d keys were refused, although most keys in the store have used little", test.name, s.refused.Load())
			}
		}
	}
}

// TestPenaltyWithoutRoom checks that a key without a penalty needs no room for one.
func TestPenaltyWithoutRoom(t *testing.T) {
	t.Parallel()
	lock := plantest.Lock(t, sluice.Penalty{First: time.Hour})
	limit := plantest.Of(t, sluice.Limit{Count: 1, Period: time.Hour})
	s, now := NewSeeded(t, Config{MaxBytes: minBytes, RefuseNew: true}), int64(1e15)
	take := func(key string, cost int64) bool {
		charges := []sluice.Charge{{Key: key, Plan: limit, Cost: cost}, {Key: key, Plan: lock, Cost: 1}}
		return sluice.Admitted(charges, plantest.TakeAt(t, s, now, charges...))
	}
	for i := range 1000 {
		take(fmt.Sprint("guilty", i), 2)
	}
	if s.evicted.Load() == 0 {
		t.Fatal("premise: there is room for all penalties")
	}
	if !take("new", 1) || s.refused.Load() > 0 {
		t.Errorf("a new key without a penalty was refused, or %d keys, want none", s.refused.Load())
	}
}

// TestPlacesWithoutRoom checks that a store that refuses new keys reports all their permits as taken, and that
// permits of known keys can still be extended.
func TestPlacesWithoutRoom(t *testing.T) {
	t.Parallel()
	s, now, p := NewSeeded(t, Config{MaxBytes: minBytes, RefuseNew: true}), int64(1e15), inFlight(t, 1)
	take := func(charges ...sluice.Charge) []sluice.Receipt {
		t.Helper()
		return plantest.TakeAt(t, s, now, charges...)
	}
	place := func(key string, number uint64, cost int64) sluice.Charge {
		return sluice.Charge{Key: key, Plan: p, Permit: number, Cost: cost}
	}
	keys := 0
	for ; s.refused.Load() == 0 && keys < 10_000; keys++ {
		take(place(fmt.Sprint(keys), 1, 1))
	}
	if keys < 20 || keys == 10_000 {
		t.Fatalf("premise: there was room for %d keys", keys)
	}
	if s.evicted.Load() > 0 {
		t.Errorf("%d were evicted", s.evicted.Load())
	}
	limit := plantest.Of(t, sluice.Limit{Count: 5, Period: time.Hour})
	want := sluice.Receipt{Receipt: kernel.Receipt{Now: now, Used: 1}}
	if r := take(place("new", 1, 1)); r[0] != want {
		t.Errorf("a new key: %+v, want %+v", r[0], want)
	}
	if r := take(place("new", 1, 1), sluice.Charge{Key: "unit", Plan: limit, Cost: 1}); r[0] != want || r[1].Used != 0 {
		t.Errorf("a new key and a unit of another limit: %+v, want %+v and no unit used", r, want)
	}
	if r := take(place("new", 1, -1), place("newer", 1, 0)); !r[0].Fits || !r[1].Fits || r[0].Used != 0 {
		t.Errorf("a peek and a refund, which need no room: %+v", r)
	}
	now++
	if r := take(place("0", 2, 1)); r[0].Fits || r[0].Used != 1 {
		t.Errorf("a second permit of a known key: %+v", r)
	}
	if r := take(place("0", 1, 1)); !r[0].Fits || r[0].Used != 1 {
		t.Errorf("an extended permit of a known key: %+v", r)
	}
	if r := take(place("0", 1, -1)); r[0].Used != 0 {
		t.Errorf("a released permit of a known key: %+v", r)
	}
	for key := range keys / 4 {
		take(place(fmt.Sprint(key), 1, -1))
	}
	now += 10_000 // from then on, the store searches for room again
	if r := take(place("new", 1, 1)); !r[0].Fits || r[0].Used != 1 {
		t.Errorf("when there is room: %+v", r)
	}
	if got, want := s.overflow.bytes.Load(), s.countOverflow(); got != want {
		t.Errorf("the store counts %d bytes in the overflow, want %d", got, want)
	}
}
