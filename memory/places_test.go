package memory

import (
	"fmt"
	"testing"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/plantest"
)

var inFlight = plantest.InFlight

// TestPlacesAreNotEvicted holds that a flood of keys that have used little, of whatever kind, frees
// no place of a key that has most of its places taken, and that places which nobody holds any more
// are room for others.
func TestPlacesAreNotEvicted(t *testing.T) {
	const busy, size = 20, 256 << 10
	for _, refuse := range []bool{false, true} {
		s, now := NewSeeded(t, Config{MaxBytes: size, RefuseNew: refuse}), int64(1e15)
		take := func(key string, p *sluice.Plan, number uint64, cost int64) sluice.Receipt {
			t.Helper()
			var r [1]sluice.Receipt
			if err := s.TakeAt(t.Context(), now, []sluice.Charge{{Key: key, Plan: p, Place: number, Cost: cost}}, r[:]); err != nil {
				t.Fatal(err)
			}
			return r[0]
		}
		little := plantest.Of(t, sluice.Limit{Count: 10, Period: time.Hour, Algorithm: sluice.SlidingWindowLogExact})
		few, most := inFlight(t, 100), inFlight(t, 3)
		flood := func() {
			before := s.evicted.Load()
			for i := range 4000 {
				now++
				take(fmt.Sprint("log", now, i), little, 0, 1)
				take(fmt.Sprint("place", now, i), few, uint64(i), 1)
			}
			if s.evicted.Load() == before {
				t.Error("premise: nothing was evicted")
			}
			if b := s.StatsAt(now).Bytes; b > size {
				t.Errorf("refuse %v: %d bytes, want at most %d", refuse, b, size)
			}
			if got, want := s.overflow.bytes.Load(), s.countOverflow(); got != want {
				t.Errorf("refuse %v: %d bytes are accounted for, and there are %d", refuse, got, want)
			}
		}
		hold := func() (held int) {
			for key := range busy {
				for number := range uint64(2) {
					take(fmt.Sprint("busy", key), most, number, 1)
				}
				if r := take(fmt.Sprint("busy", key), most, 99, 0); r.Used == 2 {
					held++
				}
			}
			return held
		}
		hold()
		flood()
		now += 2e6
		for key := range busy {
			if r := take(fmt.Sprint("busy", key), most, 99, 0); r.Used != 2 {
				t.Errorf("refuse %v: of 2 places that are held a flood has left %d", refuse, r.Used)
			}
		}
		if held := hold(); held != busy {
			t.Errorf("refuse %v: taken again, %d of %d are held", refuse, held, busy)
		}
		now += sluice.PlaceLasts.Microseconds()
		keys := s.StatsAt(now).Keys
		flood()
		for key := range busy {
			if r := take(fmt.Sprint("busy", key), most, 99, 0); r.Used != 0 {
				t.Errorf("refuse %v: nobody holds them, and %d places are taken", refuse, r.Used)
			}
		}
		if refuse && s.refused.Load() > 0 {
			t.Errorf("%d keys were refused, though most that there are have used little: %d", s.refused.Load(), keys)
		}
	}
}

// TestPlacesWithoutRoom holds that a store which refuses new keys says of their places that all are
// taken, and that whoever holds one of a known key goes on.
func TestPlacesWithoutRoom(t *testing.T) {
	s, now, p := NewSeeded(t, Config{MaxBytes: minBytes, RefuseNew: true}), int64(1e15), inFlight(t, 1)
	take := func(charges ...sluice.Charge) []sluice.Receipt {
		t.Helper()
		receipts := make([]sluice.Receipt, len(charges))
		if err := s.TakeAt(t.Context(), now, charges, receipts); err != nil {
			t.Fatal(err)
		}
		return receipts
	}
	place := func(key string, number uint64, cost int64) sluice.Charge {
		return sluice.Charge{Key: key, Plan: p, Place: number, Cost: cost}
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
	want := sluice.Receipt{Now: now, Used: 1}
	if r := take(place("new", 1, 1)); r[0] != want {
		t.Errorf("a new key is told %+v, want %+v", r[0], want)
	}
	if r := take(place("new", 1, 1), sluice.Charge{Key: "unit", Plan: limit, Cost: 1}); r[0] != want || r[1].Used != 0 {
		t.Errorf("a new key beside a unit is told %+v, want %+v and no unit used", r, want)
	}
	if r := take(place("new", 1, -1), place("newer", 1, 0)); !r[0].Fits || !r[1].Fits || r[0].Used != 0 {
		t.Errorf("to look and to give back needs no room: %+v", r)
	}
	now++
	if r := take(place("0", 2, 1)); r[0].Fits || r[0].Used != 1 {
		t.Errorf("a second place of a known key: %+v", r)
	}
	if r := take(place("0", 1, 1)); !r[0].Fits || r[0].Used != 1 {
		t.Errorf("the place of a known key, held for longer: %+v", r)
	}
	if r := take(place("0", 1, -1)); r[0].Used != 0 {
		t.Errorf("the place of a known key, given back: %+v", r)
	}
	for key := range keys / 4 {
		take(place(fmt.Sprint(key), 1, -1))
	}
	now += 10_000 // for as long the search for room is not repeated
	if r := take(place("new", 1, 1)); !r[0].Fits || r[0].Used != 1 {
		t.Errorf("when there is room: %+v", r)
	}
	if got, want := s.overflow.bytes.Load(), s.countOverflow(); got != want {
		t.Errorf("%d bytes are accounted for, and there are %d", got, want)
	}
}
