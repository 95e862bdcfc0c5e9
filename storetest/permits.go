package storetest

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/kernel"
)

func inFlight(t testing.TB, permits int64) *sluice.Plan {
	t.Helper()
	p, err := sluice.NewInFlight(permits)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func distinct(t testing.TB, values int64, period time.Duration) *sluice.Plan {
	t.Helper()
	p, err := sluice.NewDistinct(sluice.Limit{Count: values, Period: period})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// ofPermits runs a test twice: with permits in flight and with distinct values.
func ofPermits(t *testing.T, s takes, test func(t *testing.T, s takes, plan func(n int64) *sluice.Plan)) {
	t.Run("in flight", func(t *testing.T) {
		test(t, takes{t, s.store}, func(n int64) *sluice.Plan { return inFlight(t, n) })
	})
	t.Run("distinct", func(t *testing.T) {
		test(t, takes{t, s.store}, func(n int64) *sluice.Plan { return distinct(t, min(n, kernel.MaxDistinct), 30*24*time.Hour) })
	})
}

// testPermits checks that a permit is identified by its number: taking a number again takes no second permit, and
// giving a number back twice frees no other permit.
func testPermits(t *testing.T, s takes) {
	ofPermits(t, s, checkPermits)
}

func checkPermits(t *testing.T, s takes, plan func(n int64) *sluice.Plan) {
	p := plan(2)
	permit := func(number uint64, cost int64) sluice.Charge {
		return sluice.Charge{Key: t.Name(), Plan: p, Permit: number, Cost: cost}
	}
	const most = ^uint64(0)
	for i, step := range []struct {
		number uint64
		cost   int64
		fits   bool
		used   int64
	}{
		{1, 0, true, 0}, {1, 1, true, 1}, {most, 1, true, 2}, {0, 1, false, 2}, {1, 1, true, 2}, {0, 0, true, 2},
		{0, -1, true, 2}, {1, -1, true, 1}, {1, -1, true, 1}, {0, 2, false, 1}, {most - 1, 1, true, 2}, {1, 1, false, 2},
		{most, -5, true, 1}, {0, 1, true, 2}, {7, sluice.All, true, 0}, {7, 1, true, 1}, {8, 1, true, 2}, {7, -1 << 62, true, 1},
	} {
		r, _ := s.all(permit(step.number, step.cost))
		if r[0].Fits != step.fits || r[0].Used != step.used {
			t.Fatalf("step %d, %+v: %+v", i+1, step, r[0])
		}
	}
}

// testPermitsBound checks that plans with different numbers of permits share the permits of a key: a lower limit
// does not end permits.
func testPermitsBound(t *testing.T, s takes) {
	ofPermits(t, s, checkPermitsBound)
}

func checkPermitsBound(t *testing.T, s takes, plan func(n int64) *sluice.Plan) {
	permit := func(permits int64, number uint64, cost int64) sluice.Charge {
		return sluice.Charge{Key: t.Name(), Plan: plan(permits), Permit: number, Cost: cost}
	}
	for i, step := range []struct {
		permits int64
		number  uint64
		cost    int64
		fits    bool
		used    int64
	}{
		{2, 1, 1, true, 1}, {2, 2, 1, true, 2}, {2, 3, 1, false, 2}, {3, 3, 1, true, 3}, {2, 4, 1, false, 3}, {1, 2, 1, true, 3},
		{1, 0, 0, true, 3}, {1, 2, -1, true, 2}, {2, 4, 1, false, 2}, {1, 4, 1, false, 2}, {65536, 4, 1, true, 3}, {1, 0, sluice.All, true, 0}, {1, 4, 1, true, 1},
	} {
		c := permit(step.permits, step.number, step.cost)
		r, _ := s.all(c)
		if left := c.Plan.Decide(step.cost, r[0]).Remaining; r[0].Fits != step.fits || r[0].Used != step.used || left != max(0, c.Plan.Capacity-step.used) {
			t.Fatalf("step %d, %+v: %+v, and %d permits remain", i+1, step, r[0], left)
		}
	}
}

// testPermitsBeside takes permits and units of limits in one Take, and checks that all or none are taken.
func testPermitsBeside(t *testing.T, s takes) {
	ofPermits(t, s, checkPermitsBeside)
}

func checkPermitsBeside(t *testing.T, s takes, plan func(n int64) *sluice.Plan) {
	p := plan(2)
	each(t, still(4), func(t *testing.T, limit *sluice.Plan) {
		s := takes{t, s.store}
		key := t.Name()
		permit := func(number uint64, cost int64) sluice.Charge {
			return sluice.Charge{Key: key, Plan: p, Permit: number, Cost: cost}
		}
		unit := sluice.Charge{Key: key, Plan: limit, Cost: 1}
		expect := func(what string, permits, units int64) {
			t.Helper()
			if r, _ := s.all(permit(99, 0)); r[0].Used != permits {
				t.Fatalf("%s: %d permits are taken, want %d", what, r[0].Used, permits)
			}
			if used := s.used(key, limit); used != units {
				t.Fatalf("%s: %d units are used, want %d", what, used, units)
			}
		}
		s.all(permit(1, 1), unit)
		s.all(unit, permit(2, 1))
		expect("two", 2, 2)
		if r, ok := s.all(unit, permit(3, 1)); ok || !r[0].Fits || r[1].Fits {
			t.Fatalf("a third permit of two: %+v", r)
		}
		expect("after a third permit of two", 2, 2)
		if _, ok := s.all(permit(1, 1), unit); !ok {
			t.Fatal("a permit that is held cannot be taken again")
		}
		expect("after one of them is taken again", 2, 3)
		s.all(permit(2, -1), unit)
		expect("after one is given back, with a unit that fits", 1, 4)
		if r, ok := s.all(permit(3, 1), unit); ok || !r[0].Fits || r[1].Fits {
			t.Fatalf("a permit with a unit that does not fit: %+v", r)
		}
		expect("after a permit with a unit that does not fit", 1, 4)
		if r, ok := s.all(permit(1, -1), unit); ok || !r[0].Fits {
			t.Fatalf("a permit given back with a unit that does not fit: %+v", r)
		}
		expect("after one is given back, with a unit that does not fit", 1, 4)

		other := key + "/other"
		one := sluice.Charge{Key: other, Plan: plan(1), Permit: 1, Cost: 1}
		s.all(one)
		shadow := one
		shadow.Permit, shadow.Shadow = 2, true
		if r, ok := s.all(permit(4, 1), shadow); !ok || r[1].Fits {
			t.Fatalf("a shadow for permits that are all taken: %+v", r)
		}
		expect("after a permit with a shadow that does not fit", 2, 4)
	})
}

// testPermitsOfMany lets many callers take permits. It checks that callers never hold more permits than the limit
// allows, and that no permit is held at the end.
func testPermitsOfMany(t *testing.T, s takes) {
	ofPermits(t, s, checkPermitsOfMany)
}

func checkPermitsOfMany(t *testing.T, s takes, plan func(n int64) *sluice.Plan) {
	const permits = 5
	p := plan(permits)
	var holding, took, refused atomic.Int64
	together(func(caller int) {
		for i := range 60 {
			c := sluice.Charge{Key: t.Name(), Plan: p, Permit: uint64(caller<<32 | i), Cost: 1}
			if _, ok := s.all(c); !ok {
				refused.Add(1)
				continue
			}
			took.Add(1)
			if n := holding.Add(1); n > permits {
				t.Errorf("%d callers hold a permit at once, of a limit of %d", n, permits)
			}
			s.all(c) // extend it
			holding.Add(-1)
			c.Cost = -1
			s.all(c)
		}
	})
	if r, _ := s.all(sluice.Charge{Key: t.Name(), Plan: p}); r[0].Used != 0 {
		t.Errorf("all permits were given back, but %d are held", r[0].Used)
	}
	if took.Load() < permits {
		t.Errorf("%d permits were taken, and %d denied", took.Load(), refused.Load())
	}
	// These callers keep their permits.
	var last sync.Map
	together(func(caller int) {
		c := sluice.Charge{Key: t.Name(), Plan: p, Permit: uint64(caller), Cost: 1}
		if _, ok := s.all(c); ok {
			last.Store(caller, true)
		}
	})
	n := 0
	last.Range(func(any, any) bool { n++; return true })
	if n != permits {
		t.Errorf("%d of %d callers got a permit, of a limit of %d", n, callers, permits)
	}
}

// testLate checks that units that are given back too late have no effect.
func testLate(t *testing.T, s takes) {
	early := func(plan *sluice.Plan, c sluice.Charge) sluice.Charge {
		r, _ := s.all(sluice.Charge{Key: c.Key, Plan: plan})
		c.Until = r[0].Now + 3600e6
		return c
	}
	each(t, still(10), func(t *testing.T, p *sluice.Plan) {
		s := takes{t, s.store}
		c := sluice.Charge{Key: t.Name(), Plan: p, Cost: 6}
		s.all(c)
		for _, cost := range []int64{-2, sluice.All} {
			c.Cost, c.Until = cost, 1
			if r, ok := s.all(c); !ok || p.Decide(0, r[0]).Remaining != 4 {
				t.Errorf("a cost of %d that comes too late: %+v", cost, r)
			}
		}
		other := sluice.Charge{Key: t.Name() + "/other", Plan: p, Cost: 1}
		s.all(c, other)
		expectUsed(t, s, c, 6)
		expectUsed(t, s, other, 1)
		c.Cost = -2
		s.all(early(p, c))
		expectUsed(t, s, c, 4)
		s.all(early(p, c), other)
		expectUsed(t, s, c, 2)
		c.Cost, c.Until = 1, 1
		s.all(c) // a positive cost is never late
		expectUsed(t, s, c, 3)
	})
	p := inFlight(t, 2)
	c := sluice.Charge{Key: t.Name(), Plan: p, Permit: 1, Cost: 1}
	s.all(c)
	c.Cost, c.Until = -1, 1
	if r, _ := s.all(c); r[0].Used != 1 {
		t.Errorf("a permit that is given back too late: %+v", r)
	}
	if r, _ := s.all(early(p, c)); r[0].Used != 0 {
		t.Errorf("a permit that is given back in time: %+v", r)
	}
}

// testPermitsEnd checks that a permit is held for as long as it lasts, and no longer.
func testPermitsEnd(t *testing.T, store TimedStore) {
	p := inFlight(t, 2)
	const start = int64(1_700_000_000_123_457)
	ask := func(now int64, number uint64, cost int64) sluice.Receipt {
		t.Helper()
		r := spoilt(1)
		c := sluice.Charge{Key: t.Name(), Plan: p, Permit: number, Cost: cost}
		if err := store.TakeAt(t.Context(), now, []sluice.Charge{c}, r); err != nil {
			t.Fatal(err)
		}
		return r[0]
	}
	expect := func(now int64, number uint64, cost int64, fits bool, used int64) {
		t.Helper()
		if want := (sluice.Receipt{Receipt: kernel.Receipt{Now: now, Fits: fits, Used: used}}); ask(now, number, cost) != want {
			t.Errorf("permit %d, cost %d, %d µs after the start: the receipt is not %+v", number, cost, now-start, want)
		}
	}
	expect(start, 1, 1, true, 1)
	expect(start+lasts/2, 2, 1, true, 2)
	expect(start+lasts-1, 3, 1, false, 2)
	expect(start+lasts, 3, 0, true, 1)
	expect(start+lasts-1, 3, 0, true, 2) // permit 1 has not expired yet
	expect(start+lasts, 3, 1, true, 2)
	expect(start+lasts-1, 1, 0, true, 2) // permit 1 was dropped by the charge before
	expect(start+lasts+lasts/2-1, 2, 1, true, 2)
	expect(start+2*lasts, 4, 1, true, 2)
	expect(start+3*lasts, 4, 0, true, 0)
	expect(start+3*lasts, 5, 1, true, 1)
	expect(start+2*lasts, 6, 1, true, 2) // the clock steps back
	expect(start+2*lasts-1, 7, 0, true, 1)
	expect(start+2*lasts-1, 7, 1, true, 2)
	expect(start+3*lasts, 7, 0, true, 0)
	expect(start, 8, sluice.All, true, 0)
}
