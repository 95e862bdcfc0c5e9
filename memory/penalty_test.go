package memory

import (
	"fmt"
	"testing"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/plantest"
)

// TestPenaltyIsNotEvicted holds that a flood of keys that have used little frees nobody from a
// penalty, and that one which is over, and only remembered, is room for others.
func TestPenaltyIsNotEvicted(t *testing.T) {
	for _, refuse := range []bool{false, true} {
		lock := plantest.Lock(t, sluice.Penalty{First: time.Hour, Factor: 2})
		limit := plantest.Of(t, sluice.Limit{Count: 1, Period: time.Hour})
		little := plantest.Of(t, sluice.Limit{Count: 10, Period: time.Hour, Algorithm: sluice.SlidingWindowLogExact})
		s, now := NewSeeded(t, Config{MaxBytes: minBytes, RefuseNew: refuse}), int64(1e15)
		take := func(charges ...sluice.Charge) []sluice.Receipt {
			receipts := make([]sluice.Receipt, len(charges))
			if err := s.TakeAt(t.Context(), now, charges, receipts); err != nil {
				t.Fatal(err)
			}
			return receipts
		}
		flood := func() {
			before := s.evicted.Load()
			for i := range 3000 {
				now++
				take(sluice.Charge{Key: fmt.Sprint(now, i), Plan: little, Cost: 1})
			}
			if s.evicted.Load() == before {
				t.Error("premise: nothing was evicted")
			}
		}
		for i := range 20 {
			key := fmt.Sprint("guilty", i)
			take(sluice.Charge{Key: key, Plan: limit, Cost: 2}, sluice.Charge{Key: key, Plan: lock, Cost: 1})
		}
		count := func() (locked, remembered int) {
			for i := range 20 {
				r := take(sluice.Charge{Key: fmt.Sprint("guilty", i), Plan: lock, Cost: 1})[0]
				if !r.Fits {
					locked++
				}
				if r.Used > 0 {
					remembered++
				}
			}
			return locked, remembered
		}
		flood()
		if locked, _ := count(); locked != 20 {
			t.Errorf("refuse %v: of 20 penalties a flood has left %d", refuse, locked)
		}
		now += 3600e6
		if locked, remembered := count(); locked != 0 || remembered != 20 {
			t.Errorf("refuse %v: after an hour %d are locked out and %d remembered, want 0 and 20", refuse, locked, remembered)
		}
		flood()
		if _, remembered := count(); remembered != 0 {
			t.Errorf("refuse %v: a flood has left %d penalties that are over", refuse, remembered)
		}
		if got, want := s.overflow.bytes.Load(), s.countOverflow(); got != want {
			t.Errorf("refuse %v: %d bytes are accounted for, and there are %d", refuse, got, want)
		}
	}
}

// TestPenaltyWithoutRoom holds that a key without a penalty needs no room for one.
func TestPenaltyWithoutRoom(t *testing.T) {
	lock := plantest.Lock(t, sluice.Penalty{First: time.Hour})
	limit := plantest.Of(t, sluice.Limit{Count: 1, Period: time.Hour})
	s, now := NewSeeded(t, Config{MaxBytes: minBytes, RefuseNew: true}), int64(1e15)
	take := func(key string, cost int64) bool {
		charges, receipts := []sluice.Charge{{Key: key, Plan: limit, Cost: cost}, {Key: key, Plan: lock, Cost: 1}}, make([]sluice.Receipt, 2)
		if err := s.TakeAt(t.Context(), now, charges, receipts); err != nil {
			t.Fatal(err)
		}
		return sluice.Admitted(charges, receipts)
	}
	for i := range 1000 {
		take(fmt.Sprint("guilty", i), 2)
	}
	if s.evicted.Load() == 0 {
		t.Fatal("premise: there is room for all penalties")
	}
	if !take("new", 1) || s.refused.Load() > 0 {
		t.Errorf("a new key was refused, and %d in all, for want of room for a penalty that it does not have", s.refused.Load())
	}
}
