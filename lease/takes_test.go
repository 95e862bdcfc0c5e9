package lease

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/faultstore"
	"github.com/sluicehq/sluice/internal/seed"
	"github.com/sluicehq/sluice/kernel"
	"github.com/sluicehq/sluice/memory"
)

// Takes of several leased keys, alone and in lists, some with shadows, large costs and peeks: no limit is exceeded, and
// the result of a denied charge never shows that its cost fits or needs no wait.
func TestJointsWithinLimits(t *testing.T) {
	t.Parallel()
	for turn := range uint64(3) {
		leasing(t, 300*time.Microsecond, func(t *testing.T, shared *faultstore.Store, one *Store) {
			rnd := rand.New(rand.NewPCG(seed.Of(t), turn))
			ps := []*sluice.Plan{plan(t, burst(2_000, 400)), plan(t, window(1_200)), plan(t, sliding(1_500))}
			nodes := []*Store{one, New(shared), New(shared)}
			events := make([][]event, 3)
			charges := func() (all []sluice.Charge) {
				for i, p := range ps {
					c := sluice.Charge{Key: fmt.Sprint("k", i), Plan: p, Cost: int64(rnd.IntN(4)), Shadow: rnd.IntN(8) == 0, Consistency: sluice.Leased}
					if rnd.IntN(10) == 0 {
						c.Cost = int64(20 + rnd.IntN(100))
					}
					if rnd.IntN(3) > 0 {
						all = append(all, c)
					}
				}
				return all
			}
			for range 12000 {
				s := nodes[rnd.IntN(3)]
				var calls []sluice.TakeCall
				for range 1 + rnd.IntN(2) {
					if c := charges(); len(c) > 0 {
						calls = append(calls, sluice.TakeCall{Charges: c, Receipts: make([]sluice.Receipt, len(c))})
					}
				}
				if len(calls) == 1 && rnd.IntN(2) == 0 {
					calls[0].Err = s.Take(t.Context(), calls[0].Charges, calls[0].Receipts)
				} else {
					s.TakeEach(t.Context(), calls)
				}
				for _, c := range calls {
					if c.Err != nil {
						t.Fatal(c.Err)
					}
					ok := sluice.Admitted(c.Charges, c.Receipts)
					for i, ch := range c.Charges {
						if d := ch.Plan.Decide(ch.Cost, c.Receipts[i]); !d.Allowed && (d.RetryAfter <= 0 || d.Remaining >= ch.Cost) {
							t.Errorf("a denial of a cost of %d: %+v", ch.Cost, d)
						}
						if n := ch.Key[1] - '0'; ok && c.Receipts[i].Fits && ch.Cost > 0 {
							events[n] = append(events[n], event{c.Receipts[i].Now, ch.Cost})
						}
					}
				}
				time.Sleep(time.Duration(rnd.IntN(1500)) * time.Microsecond)
			}
			for i, p := range ps {
				if over := replay(p, events[i]); over > 0 || len(events[i]) < 500 {
					t.Errorf("%v: over the limit by %d in %d charges", p.Limit, over, len(events[i]))
				}
			}
			for _, n := range nodes {
				n.Close()
			}
		})
	}
}

// In a list, leased charges are decided by lease, and the store decides the others.
func TestEach(t *testing.T) {
	t.Parallel()
	leasing(t, 100*time.Microsecond, func(t *testing.T, shared *faultstore.Store, s *Store) {
		all := plan(t, second(10_000))
		user := plan(t, sluice.Limit{Count: 2, Period: time.Hour})
		warm(t, s, all)
		hot := sluice.Charge{Key: "k", Plan: all, Cost: 1, Consistency: sluice.Leased}
		var calls []sluice.TakeCall
		for i := range 8 {
			charges := [][]sluice.Charge{
				{hot}, {{Key: "a", Plan: user, Cost: 1}}, {hot, {Key: "b", Plan: user, Cost: 1}}, {hot, hot},
			}[i%4]
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
					t.Errorf("round %d, call %d: origin %v", round, i, c.Receipts[0].Origin)
				}
			}
		}
		// Without time to wait, only Takes with leased charges alone are decided.
		calls = calls[:3]
		s.TakeEachWithin(t.Context(), 0, calls)
		for i, c := range calls {
			if (c.Err == nil) != (i == 0) {
				t.Errorf("without a wait, call %d: %v", i, c.Err)
			}
		}
	})
}

// If the demand is so far below the limit that reserved units drain on their way to the process, a decision takes no
// longer than a reservation and a call of the store. This is also true if the level at the server never rises.
func TestDrainsOnTheWay(t *testing.T) {
	t.Parallel()
	ask := func(t *testing.T, shared *faultstore.Store, s *Store, p *sluice.Plan, way time.Duration, cost int64) {
		t.Helper()
		began, calls := time.Now(), shared.Calls.Load()
		if r := take(t, s, p, cost, sluice.Leased); !r.Fits {
			t.Fatalf("%+v", r)
		}
		// A call takes at most three times the mean delay, and at most two more calls raise the level of the bucket.
		if took, n := time.Since(began), shared.Calls.Load()-calls; took > 9*way || n > 4 {
			t.Fatalf("%v, %v away: a decision took %v and %d calls", p.Limit, way, took, n)
		}
	}
	for _, perSecond := range []int64{1_000, 10_000, 1_000_000, 100_000_000} {
		for _, way := range []time.Duration{0, 500 * time.Microsecond, 5 * time.Millisecond} {
			for _, asks := range []int{40, 1_000} {
				leasing(t, way, func(t *testing.T, shared *faultstore.Store, s *Store) {
					p := plan(t, second(perSecond))
					for range 2 * asks {
						ask(t, shared, s, p, way, 1)
						time.Sleep(time.Second / time.Duration(asks))
					}
					if n := shared.Calls.Load(); n > int64(asks)*3/2 {
						t.Errorf("%v, %v away: %d calls for %d decisions", p.Limit, way, n, 2*asks)
					}
				})
			}
		}
	}
	leasing(t, 0, func(t *testing.T, shared *faultstore.Store, s *Store) {
		shared.Set(func(ctx context.Context, c faultstore.Call) error { // a server that forgets each call
			return memory.New().Take(ctx, c.Charges, c.Receipts)
		})
		for n := range int64(100) {
			ask(t, shared, s, plan(t, second(10_000)), 0, 1+n%3)
			time.Sleep(time.Millisecond)
		}
	})
}

// A cost that does not fit is denied at once, and fits after the wait of its receipt, if no other process takes units.
// In a fixed window, a smaller cost fits meanwhile.
func TestRefusalKeepsItsWord(t *testing.T) {
	t.Parallel()
	for _, l := range []sluice.Limit{
		{Algorithm: sluice.SlidingWindowCounter, Count: 10_000, Period: time.Minute},
		{Algorithm: sluice.FixedWindow, Count: 10_000, Period: time.Minute},
		sliding(1_000), second(1_000), burst(1_000, 90),
	} {
		for _, joint := range []bool{false, true} {
			leasing(t, 500*time.Microsecond, func(t *testing.T, shared *faultstore.Store, s *Store) {
				p := plan(t, l)
				most := largest(p, horizon(p))
				warm(t, s, p)
				if room := p.Capacity - shared.Used(t, "k", p); room >= most { // leave one unit less than the cost
					charges := []sluice.Charge{{Key: "k", Plan: p, Cost: room - most + 1}}
					if err := shared.Take(t.Context(), charges, make([]sluice.Receipt, 1)); err != nil {
						t.Fatal(err)
					}
				}
				ask := func(cost int64) sluice.Decision {
					t.Helper()
					charges := []sluice.Charge{{Key: "k", Plan: p, Cost: cost, Consistency: sluice.Leased}}
					if joint {
						charges = append(charges, sluice.Charge{Key: "other", Plan: p, Cost: 0})
					}
					r := make([]sluice.Receipt, len(charges))
					began, calls := time.Now(), shared.Calls.Load()
					if err := s.Take(t.Context(), charges, r); err != nil {
						t.Fatal(err)
					}
					if took, n := time.Since(began), shared.Calls.Load()-calls; took > 20*time.Millisecond || n > 6 {
						t.Errorf("%v: a cost of %d took %v and %d calls", l, cost, took, n)
					}
					return p.Decide(cost, r[0])
				}
				d := ask(most)
				for n := 0; d.Allowed && n < 1000; n++ {
					d = ask(most)
				}
				if d.Allowed || d.RetryAfter <= 0 || d.RetryAfter == sluice.Never {
					t.Fatalf("%v: at the limit: %+v", l, d)
				}
				ask(most)
				d = ask(most) // by now, the process knows the wait
				if one := ask(1); l.Algorithm == sluice.FixedWindow && !one.Allowed {
					t.Errorf("%v: one unit of the %d that are free: %+v", l, most-1, one)
				}
				if !d.Allowed {
					time.Sleep(d.RetryAfter + 2*time.Millisecond) // and more: the speeds of clocks differ
					if after := ask(most); !after.Allowed {
						t.Errorf("%v, joint %v: after %v: %+v", l, joint, d.RetryAfter, after)
					}
				}
			})
		}
	}
}

// The receipt of the last unit of a batch has a wait only if the limit is used up.
func TestLastOfBatch(t *testing.T) {
	for _, l := range []sluice.Limit{window(1_000), sliding(1_000), second(1_000)} {
		p := plan(t, l)
		for used, want := range map[int64]int64{10: 1, 1_000: 0} {
			now := int64(1e15)
			receipt := sluice.Receipt{Receipt: kernel.Receipt{Now: now, Used: used * max(1, p.Unit), Fits: true}}
			if p.Kernel == kernel.Window {
				receipt.Tick, _, _ = p.WindowAt(now)
			}
			b := granted(p, 5, 0, &receipt, 0, 1)
			var r sluice.Receipt
			b.admit(&r, now, 0)
			if d := p.Decide(1, r); d.Remaining != want || (d.RetryAfter > 0) != (want == 0) {
				t.Errorf("%v, with %d of 1,000 used: the last unit of a batch has %+v", l, used, d)
			}
		}
	}
}

func TestHistories(t *testing.T) {
	t.Parallel()
	fresh := func() faultstore.TakerAt { return memory.New() }
	faultstore.Play(t, "testdata/histories.txt", fresh, func(_ *testing.T, sv *faultstore.Store, _ map[string]string) faultstore.Subject {
		s := New(sv)
		take := func(wait time.Duration, charges []sluice.Charge, receipts []sluice.Receipt) error {
			return s.TakeWithin(context.Background(), wait, charges, receipts)
		}
		return faultstore.Subject{Takes: []func(time.Duration, []sluice.Charge, []sluice.Receipt) error{take}, Close: s.Close}
	})
}
