package memory

import (
	"fmt"
	"testing"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/storetest"
)

// sameHash returns a verified store in which all keys and plans have one hash.
func sameHash(t *testing.T) *Seeded {
	s := verified(t)
	s.mask = 0
	return s
}

func verified(t *testing.T) *Seeded {
	return NewSeeded(t, Config{MaxBytes: 8 << 20, Verified: true})
}

func TestVerified(t *testing.T) {
	for name, newStore := range map[string]func(*testing.T) *Seeded{
		"apart":    verified,
		"one hash": sameHash,
	} {
		t.Run(name, func(t *testing.T) {
			storetest.Run(t, func(t *testing.T) sluice.Store { return newStore(t) })
			storetest.RunTimed(t, func(t *testing.T) storetest.TimedStore { return newStore(t) })
			storetest.Differential(t, newStore(t), new(storetest.Model), 30_000, 1)
		})
	}
}

// TestVerifiedBytes holds that what is counted is what there is, and that the bound holds, while
// records of one hash come, drain and are evicted.
func TestVerifiedBytes(t *testing.T) {
	p, err := sluice.NewPlan(sluice.Limit{Count: 10, Period: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	s := sameHash(t)
	s.overflow.max = 20_000
	now, most := int64(1e15), 0
	for n := range 3000 {
		charges, receipts := make([]sluice.Charge, 1+n%3), make([]sluice.Receipt, 1+n%3)
		for i := range charges {
			cost := []int64{1, 2, sluice.All}[(n+i)%5%3]
			charges[i] = sluice.Charge{Key: fmt.Sprint(n*7%400, i), Plan: p, Cost: cost}
		}
		if err := s.TakeAt(t.Context(), now, charges, receipts); err != nil {
			t.Fatal(err)
		}
		now += 700
		if got, want := s.overflow.bytes.Load(), s.countOverflow(); got != want || got > s.overflow.max {
			t.Fatalf("step %d: %d bytes are accounted for, there are %d, and %d are allowed", n, got, want, s.overflow.max)
		}
		most = max(most, s.StatsAt(now).Keys)
	}
	if most < 100 || s.evicted.Load() == 0 {
		t.Errorf("premise: at most %d keys were kept, and %d evicted", most, s.evicted.Load())
	}
}

// TestOneHash holds that a take of keys of one hash, which share what there is, ends.
func TestOneHash(t *testing.T) {
	s := NewSize(0)
	s.mask = 0
	var charges []sluice.Charge
	for i, a := range sluice.Algorithms() {
		p, err := sluice.NewPlan(sluice.Limit{Count: 1000, Period: time.Hour, Algorithm: a})
		if err != nil {
			t.Fatal(err)
		}
		charges = append(charges, sluice.Charge{Key: fmt.Sprint("a", i), Plan: p, Cost: 1}, sluice.Charge{Key: fmt.Sprint("b", i), Plan: p, Cost: 1})
	}
	receipts := make([]sluice.Receipt, len(charges))
	for i := range charges {
		for j := i + 1; j <= len(charges); j++ {
			if err := s.TakeAt(t.Context(), 1e15, charges[i:j], receipts[i:j]); err != nil {
				t.Fatal(err)
			}
			if r := receipts[j-1]; r.Now != 1e15 {
				t.Fatalf("%+v", r)
			}
		}
	}
}
