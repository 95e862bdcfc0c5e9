package lease

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/memory"
)

// fill leaves so much room in the shared store.
func fill(t *testing.T, m sluice.Store, key string, p *sluice.Plan, room int64) {
	t.Helper()
	var r [1]sluice.Receipt
	for _, cost := range []func() int64{
		func() int64 { return 0 },
		func() int64 { return p.Decide(0, r[0]).Remaining - room },
	} {
		if err := m.Take(t.Context(), []sluice.Charge{{Key: key, Plan: p, Cost: max(0, cost())}}, r[:]); err != nil || !r[0].Fits {
			t.Fatalf("%v, %+v", err, r)
		}
	}
}

// A cost that is more than what is free is refused at once, and fits after the wait that it is told, if
// nobody else asks. One that is less passes.
func TestRefusalKeepsItsWord(t *testing.T) {
	for _, l := range []sluice.Limit{
		{Algorithm: sluice.SlidingWindowCounter, Count: 10_000, Period: time.Minute},
		{Algorithm: sluice.SlidingWindowCounter, Count: 1_000, Period: time.Second},
		{Algorithm: sluice.FixedWindow, Count: 10_000, Period: time.Minute},
		{Count: 1_000, Period: time.Second},
		{Count: 1_000, Period: time.Second, Burst: 90},
	} {
		for _, joint := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(time.Minute - time.Duration(time.Now().UnixNano())%time.Minute) // the beginning of a window
				p := plan(t, l)
				most := largest(p, horizon(p))
				shared := &far{store: memory.New(), way: 500 * time.Microsecond, dice: newDice(t)}
				s := New(shared)
				defer s.Close()
				warm(t, s, sluice.Charge{Key: "k", Plan: p, Cost: 1, Consistency: sluice.Leased})
				fill(t, shared.store, "k", p, most-1)
				take := func(cost int64) sluice.Decision {
					t.Helper()
					charges := []sluice.Charge{{Key: "k", Plan: p, Cost: cost, Consistency: sluice.Leased}}
					if joint {
						charges = append(charges, sluice.Charge{Key: "other", Plan: p, Cost: 0})
					}
					r := make([]sluice.Receipt, len(charges))
					began, calls := time.Now(), shared.calls.Load()
					if err := s.Take(t.Context(), charges, r); err != nil {
						t.Fatal(err)
					}
					if took, n := time.Since(began), shared.calls.Load()-calls; took > 20*time.Millisecond || n > 6 {
						t.Errorf("%v: a cost of %d took %v and %d calls", l, cost, took, n)
					}
					return p.Decide(cost, r[0])
				}
				d := take(most)
				for n := 0; d.Allowed && n < 1000; n++ {
					d = take(most)
				}
				if d.Allowed || d.RetryAfter <= 0 || d.RetryAfter == sluice.Never {
					t.Fatalf("%v: at the limit it says %+v", l, d)
				}
				for again := 0; again < 2; again++ { // until the wait is by what is known
					d = take(most)
				}
				if p.Kernel == sluice.Window && p.Limit.Algorithm == sluice.FixedWindow {
					if one := take(1); !one.Allowed {
						t.Errorf("%v: one unit of the %d that are free: %+v", l, most-1, one)
					}
				}
				if !d.Allowed {
					time.Sleep(d.RetryAfter + 2*time.Millisecond) // clocks that do not run alike
					if after := take(most); !after.Allowed {
						t.Errorf("%v, joint %v: after %v it says %+v", l, joint, d.RetryAfter, after)
					}
				}
			})
		}
	}
}

// Where this process has spent what it has reserved, and the window has room, nobody is told to wait.
func TestLastOfBatch(t *testing.T) {
	for _, a := range []sluice.Algorithm{sluice.FixedWindow, sluice.SlidingWindowCounter, sluice.TokenBucket} {
		p := plan(t, sluice.Limit{Algorithm: a, Count: 1_000, Period: time.Second})
		for used, want := range map[int64]int64{10: 1, 1_000: 0} {
			now := int64(1e15)
			receipt := sluice.Receipt{Now: now, Used: used * max(1, p.Unit), Fits: true}
			if p.Kernel == sluice.Window {
				receipt.Tick, _, _ = p.WindowAt(now)
			}
			b := granted(p, 5, 0, &receipt, 0, 1)
			var r sluice.Receipt
			b.admit(&r, now, 0)
			if d := p.Decide(1, r); d.Remaining != want || (d.RetryAfter > 0) != (want == 0) {
				t.Errorf("%v, where %d of 1,000 are used: the last unit of a batch says %+v", a, used, d)
			}
		}
	}
}

// A queue is not leased, though it counts in the same state as a bucket that is.
func TestQueueBesideBucket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bucket := plan(t, sluice.Limit{Count: 5_000, Period: time.Second, Burst: 1_000})
		queue := plan(t, sluice.Limit{Algorithm: sluice.LeakyBucket, Count: 5_000, Period: time.Second, Burst: 1_000})
		if bucket.Fingerprint != queue.Fingerprint {
			t.Fatal("they do not share a state")
		}
		s := New(&far{store: memory.New(), way: 100 * time.Microsecond, dice: newDice(t)})
		defer s.Close()
		warm(t, s, sluice.Charge{Key: "k", Plan: bucket, Cost: 1, Consistency: sluice.Leased})
		var r [1]sluice.Receipt
		if err := s.Take(t.Context(), []sluice.Charge{{Key: "k", Plan: queue, Cost: 1, Consistency: sluice.Leased}}, r[:]); err != nil || r[0].Origin != sluice.ByStore {
			t.Errorf("%v, %+v", err, r)
		}
	})
}
