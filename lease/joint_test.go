package lease

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/memory"
)

// warm asks for a key until it is leased, and what is asked for is known.
func warm(t *testing.T, s *Store, c sluice.Charge) {
	t.Helper()
	var r [1]sluice.Receipt
	for n := range 2000 {
		if err := s.Take(t.Context(), []sluice.Charge{c}, r[:]); err != nil || !r[0].Fits {
			t.Fatal(err, r)
		}
		if n > 400 && r[0].Origin == sluice.ByLease {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatal("it is not leased")
}

// used returns what the shared store has counted.
func used(t *testing.T, m sluice.Store, key string, p *sluice.Plan) int64 {
	t.Helper()
	var r [1]sluice.Receipt
	if err := m.Take(t.Context(), []sluice.Charge{{Key: key, Plan: p}}, r[:]); err != nil {
		t.Fatal(err)
	}
	return r[0].Used
}

// All charges of a Take pass or none: what a lease has spent is put back where the store refuses, and the
// store is charged nothing where a lease refuses.
func TestJoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Minute - time.Duration(time.Now().UnixNano())%time.Minute)
		all := plan(t, sluice.Limit{Algorithm: sluice.FixedWindow, Count: 5_000, Period: time.Second})
		user := plan(t, sluice.Limit{Algorithm: sluice.FixedWindow, Count: 3, Period: time.Hour})
		shared := &far{store: memory.New(), way: 100 * time.Microsecond, dice: newDice(t)}
		s := New(shared)
		defer s.Close()
		warm(t, s, sluice.Charge{Key: "all", Plan: all, Cost: 1, Consistency: sluice.Leased})
		hot := &sluice.Charge{Key: "all", Plan: all}
		p := s.find(s.hash(hot), hot)
		spent := func() int64 {
			p.mu.Lock()
			defer p.mu.Unlock()
			return p.spent()
		}
		before, passed := spent(), int64(0)
		for i := range 600 {
			key := fmt.Sprint("user ", i/6)
			charges := []sluice.Charge{
				{Key: key, Plan: user, Cost: 1},
				{Key: "all", Plan: all, Cost: 1, Consistency: sluice.Leased},
			}
			var r [2]sluice.Receipt
			if err := s.Take(t.Context(), charges, r[:]); err != nil {
				t.Fatal(err)
			}
			if want := i%6 < 3; sluice.Admitted(charges, r[:]) != want || !r[1].Fits {
				t.Fatalf("request %d: %+v", i, r)
			}
			if i%6 < 3 {
				passed++
			}
			if got := used(t, shared.store, key, user); got != int64(min(i%6+1, 3)) {
				t.Fatalf("request %d: the user has used %d", i, got)
			}
		}
		// Some were asked of the store, where nothing was at hand.
		if n := spent() - before; n < passed/2 || n > passed {
			t.Errorf("%d units were spent by lease for %d requests", n, passed)
		}

		// Use up the window, and then one.
		c := []sluice.Charge{{Key: "all", Plan: all, Cost: 1, Consistency: sluice.Leased}}
		var r [2]sluice.Receipt
		for range 10_000 {
			if err := s.Take(t.Context(), c, r[:1]); err != nil {
				t.Fatal(err)
			}
			if !r[0].Fits {
				break
			}
		}
		both := []sluice.Charge{{Key: "new", Plan: user, Cost: 1}, c[0]}
		if err := s.Take(t.Context(), both, r[:]); err != nil || r[1].Fits || !r[0].Fits || sluice.Admitted(both, r[:]) {
			t.Fatalf("%v, %+v", err, r)
		}
		if r[1].Origin != sluice.ByLease {
			t.Errorf("the lease has not refused: %+v", r)
		}
		if d := user.Decide(1, r[0]); d.Remaining != 3 {
			t.Errorf("the other limit says %+v", d)
		}
		if got := used(t, shared.store, "new", user); got != 0 {
			t.Errorf("the other was charged %d", got)
		}
		// A shadow refuses nothing.
		both[1].Shadow = true
		if err := s.Take(t.Context(), both, r[:]); err != nil || r[1].Fits || !r[0].Fits {
			t.Fatalf("%v, %+v", err, r)
		}
		if got := used(t, shared.store, "new", user); got != 1 {
			t.Errorf("beside a shadow the other was charged %d", got)
		}
	})
}

// Of a list, what is leased is decided here and the rest is one list for the store.
func TestEach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := plan(t, sluice.Limit{Count: 10_000, Period: time.Second})
		user := plan(t, sluice.Limit{Count: 2, Period: time.Hour})
		shared := &far{store: memory.New(), way: 100 * time.Microsecond, dice: newDice(t)}
		s := New(shared)
		defer s.Close()
		hot := sluice.Charge{Key: "all", Plan: all, Cost: 1, Consistency: sluice.Leased}
		warm(t, s, hot)
		var calls []sluice.TakeCall
		for i := range 8 {
			charges := []sluice.Charge{hot}
			switch i % 4 {
			case 1:
				charges = []sluice.Charge{{Key: "a", Plan: user, Cost: 1}}
			case 2:
				charges = []sluice.Charge{hot, {Key: "b", Plan: user, Cost: 1}}
			case 3:
				charges = append(charges, charges[0]) // twice the same
			}
			calls = append(calls, sluice.TakeCall{Charges: charges, Receipts: make([]sluice.Receipt, len(charges))})
		}
		for round := range 2 {
			s.TakeEach(t.Context(), calls)
			for i, c := range calls {
				if i%4 == 3 {
					if c.Err != sluice.ErrDuplicateCharge {
						t.Errorf("call %d: %v", i, c.Err)
					}
					continue
				}
				if c.Err != nil || sluice.Admitted(c.Charges, c.Receipts) != (i%4 == 0 || round == 0) {
					t.Errorf("round %d, call %d: %v, %+v", round, i, c.Err, c.Receipts)
				}
				if want := i%4 != 1; (c.Receipts[0].Origin == sluice.ByLease) != want {
					t.Errorf("round %d, call %d: by %v", round, i, c.Receipts[0].Origin)
				}
			}
		}
		// Without time to wait, only what is leased is decided.
		calls = calls[:3]
		s.TakeEachWithin(t.Context(), 0, calls)
		for i, c := range calls {
			if (c.Err == nil) != (i == 0) {
				t.Errorf("without a wait, call %d: %v", i, c.Err)
			}
		}
	})
}

// What cannot be leased asks the store, and a limit that has changed does not live on.
func TestStrict(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := &far{store: memory.New(), way: 100 * time.Microsecond, dice: newDice(t)}
		s := New(shared)
		defer s.Close()
		var plans []*sluice.Plan
		for _, l := range []sluice.Limit{
			{Algorithm: sluice.LeakyBucket, Count: 1_000, Period: time.Second, Burst: 1_000},
			{Algorithm: sluice.SlidingWindowLog, Count: 1_000, Period: time.Second},
			{Algorithm: sluice.FixedWindow, Count: 100_000, MonthDay: 1},
			{Count: 10, Period: time.Second, Burst: 500}, // too slow
			{Count: 100_000, Period: time.Second, Burst: 100},
		} {
			plans = append(plans, plan(t, l))
		}
		var r [1]sluice.Receipt
		for _, p := range plans {
			for i := range 100 {
				if err := s.Take(t.Context(), []sluice.Charge{{Key: "k", Plan: p, Cost: 1, Consistency: sluice.Leased}}, r[:]); err != nil || r[0].Origin != sluice.ByStore {
					t.Fatalf("%v, take %d: %v, %+v", p.Limit, i, err, r)
				}
			}
		}

		big := plan(t, sluice.Limit{Count: 5_000, Period: time.Second})
		small := plan(t, sluice.Limit{Count: 5_000, Period: time.Second, Burst: 100})
		if big.Fingerprint != small.Fingerprint {
			t.Fatal("they do not share a state")
		}
		warm(t, s, sluice.Charge{Key: "k", Plan: big, Cost: 1, Consistency: sluice.Leased})
		if err := s.Take(t.Context(), []sluice.Charge{{Key: "k", Plan: small, Cost: 1, Consistency: sluice.Leased}}, r[:]); err != nil || r[0].Origin != sluice.ByStore {
			t.Errorf("after the limit has changed: %v, %+v", err, r)
		}
	})
}

// What a killed process has reserved drains, and what it could have had goes to the others.
func TestKilled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := plan(t, sluice.Limit{Count: 4_000, Period: time.Second, Burst: 1_000})
		shared := &far{store: memory.New(), way: 200 * time.Microsecond, dice: newDice(t)}
		a, b := New(shared), New(shared)
		defer b.Close()
		var r [1]sluice.Receipt
		take := func(s *Store) bool {
			if err := s.Take(t.Context(), []sluice.Charge{{Key: "k", Plan: p, Cost: 1, Consistency: sluice.Leased}}, r[:]); err != nil {
				t.Fatal(err)
			}
			return r[0].Fits
		}
		second := func(stores ...*Store) (n int64) {
			for end := time.Now().Add(time.Second); time.Now().Before(end); time.Sleep(100 * time.Microsecond) {
				for _, s := range stores {
					if take(s) {
						n++
					}
				}
			}
			return n
		}
		second(a, b)
		if n := second(a, b); n < 3_900 || n > 4_600 {
			t.Errorf("two processes admit %d in a second, of 4,000", n)
		}
		// From one moment to the next, one of them asks no more.
		time.Sleep(Horizon)
		if n := second(b); n < 3_950 || n > 5_050 {
			t.Errorf("the one that is left admits %d in a second, of 4,000", n)
		}
		if n := second(b); n < 3_950 || n > 4_050 {
			t.Errorf("the one that is left admits %d in the second after that, of 4,000", n)
		}
		a.closed.Store(true) // as the dead are
	})
}
