package failover_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/failover"
	"github.com/sluicehq/sluice/internal/faultstore"
	"github.com/sluicehq/sluice/memory"
)

// A limiter passes on what OnError decides while the store is away.
func TestOnError(t *testing.T) {
	t.Parallel()
	for on, fit := range map[sluice.OnError]int{sluice.Allow: 30, sluice.Deny: 0, sluice.Local: 5} {
		bubble(t, failover.Config{Instances: 2}, func(t *testing.T, sv *faultstore.Store, s *failover.Store) {
			l := limiter(t, s, on)
			if d, err := l.Take(t.Context(), "k", 1); !d.Allowed || d.Origin.Degraded() || err != nil {
				t.Errorf("%v, before: %+v, %v", on, d, err)
			}
			cut(t, sv, s, faultstore.Refused)
			n := 0
			for range 30 {
				d, err := l.Take(t.Context(), "other", 1)
				if err != nil || !d.Origin.Degraded() {
					t.Fatalf("%v: %+v, %v", on, d, err)
				}
				if d.Allowed {
					n++
				}
				if on == sluice.Deny && d != (sluice.Decision{RetryAfter: time.Second, Origin: sluice.ByOnError, Now: time.Now().UnixMicro()}) {
					t.Errorf("%+v", d)
				}
			}
			if n != fit {
				t.Errorf("%v: %d fit, want %d", on, n, fit)
			}
		})
	}
}

func limiter(t *testing.T, s *failover.Store, on sluice.OnError) *sluice.Limiter {
	t.Helper()
	l, err := sluice.NewLimiter(s, on.String(), sluice.Limit{Count: 10, Period: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	l.OnError = on
	return l
}

// A caller that waits, and is denied without the store, waits for the store and asks now and then.
func TestWaitForTheStore(t *testing.T) {
	t.Parallel()
	bubble(t, failover.Config{}, func(t *testing.T, sv *faultstore.Store, s *failover.Store) {
		l := limiter(t, s, sluice.Deny)
		cut(t, sv, s, faultstore.Refused)
		begin, asked := time.Now(), s.Status().Local
		time.AfterFunc(time.Minute, func() { sv.Set(nil) })
		if err := l.Wait(t.Context(), "k", 1); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begin); took < time.Minute || took > time.Minute+3*time.Second {
			t.Errorf("it has waited %v", took)
		}
		if n := s.Status().Local - asked; n < 30 || n > 63 {
			t.Errorf("it has asked %d times in a minute", n)
		}
	})
}

// Deny refuses what costs something, and nothing of that is written back.
func TestDeny(t *testing.T) {
	t.Parallel()
	bubble(t, failover.Config{}, func(t *testing.T, sv *faultstore.Store, s *failover.Store) {
		p := plan(t, "3/minute", sluice.FixedWindow)
		cut(t, sv, s, faultstore.Refused)
		for cost, fits := range map[int64]bool{1: false, 0: false, -1: true, sluice.All: true} {
			if r := spend(t, s, "k", p, cost, sluice.Deny); r.Fits != fits || !r.Origin.Degraded() || r.Now != time.Now().UnixMicro() {
				t.Errorf("cost %d: %+v", cost, r)
			}
		}
		mend(t, sv, s)
		uses(t, sv, p, map[string]int64{"k": 0})
	})
}

// Of several charges any that denies wins, and then nothing is charged. A share that is used up refuses, too.
func TestMixed(t *testing.T) {
	t.Parallel()
	bubble(t, failover.Config{}, func(t *testing.T, sv *faultstore.Store, s *failover.Store) {
		p := plan(t, "3/day", sluice.FixedWindow)
		cut(t, sv, s, faultstore.Refused)
		all := []sluice.Charge{
			{Key: "l", Plan: p, Cost: 1, OnError: sluice.Local},
			{Key: "a", Plan: p, Cost: 1, OnError: sluice.Allow},
			{Key: "d", Plan: p, Cost: 1, OnError: sluice.Deny},
		}
		step := func(what string, fits bool) {
			t.Helper()
			r := charge(t, s, all...)
			degraded := r[0].Origin.Degraded() && r[1].Origin.Degraded() && r[2].Origin.Degraded()
			if r[0].Fits != fits || !r[1].Fits || r[2].Fits || !degraded || sluice.Admitted(all, r) != (fits && all[2].Shadow) {
				t.Fatalf("%s: %+v", what, r)
			}
		}
		for range 10 {
			step("with a charge that denies", true)
		}
		all[2].Shadow = true // which denies no request, and does not become a charge that passes
		for i := range 5 {
			step(fmt.Sprintf("take %d with a shadow that denies", i), i < 3)
		}
		mend(t, sv, s)
		uses(t, sv, p, map[string]int64{"l": 3, "a": 3, "d": 0})
	})
}

// The receipts of a share are exact: Remaining units fit and not one more, and a refused cost fits after its
// wait and not a tick earlier.
func TestShareKeepsItsWord(t *testing.T) {
	t.Parallel()
	limits := []string{"100/6s", "7/second", "10/9s", "1/second", "999983/30s", "3/2s",
		"1025/32s"} // a log of which divided by two has other ticks
	for _, a := range sluice.Algorithms() {
		t.Run(a.String(), func(t *testing.T) {
			t.Parallel()
			for _, limit := range limits {
				for _, n := range []int{1, 2, 3, 7, 100} {
					t.Run(fmt.Sprintf("%s by %d", strings.ReplaceAll(limit, "/", " per "), n), func(t *testing.T) {
						bubble(t, failover.Config{Instances: n}, func(t *testing.T, sv *faultstore.Store, s *failover.Store) {
							testShare(t, sv, s, plan(t, limit, a), int64(n))
						})
					})
				}
			}
		})
	}
}

func testShare(t *testing.T, sv *faultstore.Store, s *failover.Store, p *sluice.Plan, n int64) {
	cut(t, sv, s, faultstore.Refused)
	ask := func(cost int64) sluice.Decision { return p.Decide(cost, spend(t, s, "k", p, cost, sluice.Local)) }
	share := max(1, p.Capacity/n)
	if d := ask(0); d.Remaining != share {
		t.Fatalf("a fresh share of %d has %d units, want %d", p.Capacity, d.Remaining, share)
	}
	tick := time.Duration(p.Tick) * time.Microsecond
	queue := p.Limit.Algorithm == sluice.LeakyBucket
	exact := p.Limit.Algorithm != sluice.SlidingWindowCounter || n == 1
	rnd := rand.New(rand.NewPCG(uint64(p.Capacity), uint64(n)))
	for range 12 {
		before := ask(0).Remaining
		cost := 1 + rnd.Int64N(max(1, min(share, before+2)))
		if n > 1 && queue {
			before = cost // Remaining is not exact: see recast
		}
		d := ask(cost)
		// fits waits until cost has to fit, and checks that it did not a tick before.
		fits := func(cost int64, has func() bool) {
			time.Sleep(d.RetryAfter - tick)
			if exact && has() {
				t.Fatalf("a cost of %d fits a tick before %v", cost, d.RetryAfter)
			}
			time.Sleep(tick)
			if !has() {
				t.Fatalf("a cost of %d does not fit after %v", cost, d.RetryAfter)
			}
		}
		switch {
		case d.Allowed && cost > before:
			t.Fatalf("%d units fit, and %d were said to remain", cost, before)
		case d.Allowed && queue:
		case d.Allowed:
			if left := ask(0).Remaining; left != d.Remaining {
				t.Fatalf("%d remain, and then %d", d.Remaining, left)
			}
			if d.Remaining == 0 {
				fits(1, func() bool { return ask(0).Remaining > 0 })
			}
		case cost <= before && !queue:
			t.Fatalf("%d units do not fit, and %d were said to remain", cost, before)
		case d.RetryAfter <= 0 || d.RetryAfter == sluice.Never:
			t.Fatalf("a cost of %d of a share of %d is refused for %v", cost, share, d.RetryAfter)
		default:
			fits(cost, func() bool { return ask(cost).Allowed })
		}
		time.Sleep(time.Duration(rnd.Int64N(int64(p.Limit.Period)/p.Limit.Count)/2 + 1).Truncate(time.Microsecond))
	}
	if p.Kernel.Log() {
		d := ask(1)
		if d.ResetAfter <= 0 || d.ResetAfter > 2*p.Limit.Period {
			t.Fatalf("a log in use is said to be empty after %v", d.ResetAfter)
		}
		time.Sleep(d.ResetAfter)
		if left := ask(0).Remaining; left != share {
			t.Fatalf("%d of %d remain when nothing should be used", left, share)
		}
	}
}

// However many instances there are, their shares together are not more than the limit, unless it has less
// than a unit for each.
func TestSharesTogether(t *testing.T) {
	t.Parallel()
	for _, a := range sluice.Algorithms() {
		for _, n := range []int{1, 2, 3, 7} {
			t.Run(fmt.Sprintf("%v by %d", a, n), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					p := plan(t, "6/6s", a)
					var total, atOnce int64
					for range n {
						sv := faultstore.New(memory.New())
						s := open(sv, failover.Config{Instances: n})
						cut(t, sv, s, faultstore.Refused)
						toWindow(6 * time.Second)
						first := admitted(t, s, 8, "k", p)
						atOnce, total = atOnce+first, total+first
						for range 119 {
							time.Sleep(time.Second / 10)
							total += admitted(t, s, 1, "k", p) // more than come back
						}
						s.Close()
					}
					most := max(6, int64(n))
					if a == sluice.LeakyBucket {
						most = max(p.Capacity, int64(n))
					}
					rate := max(12, int64(n)*2)
					if p.Kernel == sluice.Meter {
						rate = 12 // a meter divides a rate, however low
					}
					if atOnce > most || atOnce < most/2 {
						t.Errorf("%d units at once, want about %d and no more", atOnce, most)
					}
					if total > most+rate || total < (most+rate)/3 {
						t.Errorf("%d units in two periods, want about %d and no more", total, most+rate)
					}
				})
			})
		}
	}
}

// A limit of less than a unit for each instance is divided by rate all the same.
func TestSmallShares(t *testing.T) {
	t.Parallel()
	bubble(t, failover.Config{Instances: 20}, func(t *testing.T, sv *faultstore.Store, s *failover.Store) {
		p := plan(t, "2/second", sluice.TokenBucket)
		cut(t, sv, s, faultstore.Refused)
		n := int64(0)
		for range 1000 {
			n += admitted(t, s, 1, "k", p)
			time.Sleep(100 * time.Millisecond)
		}
		if n < 10 || n > 11 { // one at first, and one every ten seconds
			t.Errorf("%d units have passed in 100 s, want 10 or 11", n)
		}
	})
}

// From the first failure on there is one share, even before the circuit opens.
func TestShareBeforeTheCircuitOpens(t *testing.T) {
	t.Parallel()
	for name, f := range faults {
		bubble(t, failover.Config{}, func(t *testing.T, sv *faultstore.Store, s *failover.Store) {
			p := plan(t, "3/day", sluice.FixedWindow)
			sv.Set(f)
			n := int64(0)
			for range 20 {
				n += admitted(t, s, 1, "k", p)
				time.Sleep(90 * time.Millisecond)
			}
			if n != 3 {
				t.Errorf("%s: %d units have passed, want 3", name, n)
			}
		})
	}
}

// Queued requests leave at the rate of the share.
func TestShareOfAQueue(t *testing.T) {
	t.Parallel()
	bubble(t, failover.Config{Instances: 3}, func(t *testing.T, sv *faultstore.Store, s *failover.Store) {
		p := plan(t, "10/second burst 30", sluice.LeakyBucket)
		cut(t, sv, s, faultstore.Refused)
		ask := func() sluice.Decision { return p.Decide(1, take(t, s, "k", p, sluice.Local)) }
		for i := range 10 {
			if d := ask(); !d.Allowed || d.Delay != time.Duration(i)*300*time.Millisecond {
				t.Errorf("request %d: %+v", i, d)
			}
		}
		if d := ask(); d.Allowed || d.RetryAfter != 300*time.Millisecond {
			t.Errorf("with a full queue: %+v", d)
		}
		spend(t, s, "k", p, -1, sluice.Local)
		if d := ask(); !d.Allowed || d.Delay != 2700*time.Millisecond {
			t.Errorf("after one has left: %+v", d)
		}
	})
}

// A share of a month starts again with the next month, and what was used in the month before is not written
// back into it.
func TestShareOfAMonth(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		midnight := time.Date(2000, 1, 2, 0, 0, 0, 0, time.UTC) // a day after a bubble begins
		time.Sleep(time.Until(midnight) - 10*time.Second)
		sv := faultstore.New(memory.New())
		s := open(sv, failover.Config{Instances: 2})
		defer s.Close()
		p := plan(t, "20/month from 2", sluice.FixedWindow)
		cut(t, sv, s, faultstore.Refused)
		if n := admitted(t, s, 30, "k", p); n != 10 {
			t.Errorf("%d pass, want 10", n)
		}
		r := take(t, s, "k", p, sluice.Local)
		if d := p.Decide(1, r); d.Allowed || r.Now+d.RetryAfter.Microseconds() != midnight.UnixMicro() {
			t.Errorf("once the share is used up: %+v", d)
		}
		time.Sleep(time.Until(midnight) - time.Microsecond)
		if n := admitted(t, s, 30, "k", p); n != 0 {
			t.Errorf("a microsecond before the next month %d pass", n)
		}
		time.Sleep(time.Microsecond)
		if n := admitted(t, s, 4, "k", p); n != 4 {
			t.Errorf("in the next month %d pass, want 4", n)
		}
		mend(t, sv, s)
		uses(t, sv, p, map[string]int64{"k": 4})
	})
}

// A share begins where the shared store was when last seen.
func TestSeed(t *testing.T) {
	t.Parallel()
	for _, a := range sluice.Algorithms() {
		for _, n := range []int{1, 2, 3} {
			bubble(t, failover.Config{Instances: n}, func(t *testing.T, sv *faultstore.Store, s *failover.Store) {
				p := hundred(t, a)
				toWindow(time.Hour)
				admitted(t, s, 70, "some", p)
				admitted(t, s, 100, "all", p)
				if r := take(t, s, "all", p, sluice.Local); r.Fits || r.Origin.Degraded() {
					t.Fatalf("%v: unit 101: %+v", a, r)
				}
				cut(t, sv, s, faultstore.Refused)
				for key, left := range map[string]int64{"some": 30, "all": 0, "none": 100} {
					got, want := admitted(t, s, 200, key, p), left/int64(n)
					// The circuit takes a moment to open, in which a meter drains a little.
					if got != want && (p.Kernel != sluice.Meter || got != want+1) {
						t.Errorf("%v by %d: %s has %d units, want %d", a, n, key, got, want)
					}
				}
			})
		}
	}
}

// A share begins with the newest state, and not with that of the answer that came last.
func TestSeedOfTheNewest(t *testing.T) {
	t.Parallel()
	bubble(t, failover.Config{}, func(t *testing.T, sv *faultstore.Store, s *failover.Store) {
		p := plan(t, "100/day", sluice.FixedWindow)
		var delay atomic.Int64
		sv.Set(func(_ context.Context, c faultstore.Call) error {
			err := c.Take()
			time.Sleep(time.Duration(delay.Load()))
			return err
		})
		delay.Store(int64(20 * time.Millisecond))
		var wg sync.WaitGroup
		wg.Go(func() { take(t, s, "k", p, sluice.Local) })
		time.Sleep(10 * time.Millisecond)
		delay.Store(0)
		spend(t, s, "k", p, 99, sluice.Local)
		wg.Wait()
		cut(t, sv, s, faultstore.Refused)
		if n := admitted(t, s, 1, "k", p); n != 0 {
			t.Error("unit 101 is admitted")
		}
	})
}

// A state is remembered that the server has reported after its clock was set back.
func TestSeedOfAnEarlierClock(t *testing.T) {
	t.Parallel()
	bubble(t, failover.Config{}, func(t *testing.T, sv *faultstore.Store, s *failover.Store) {
		p := plan(t, "10/day", sluice.TokenBucket)
		take(t, s, "k", p, sluice.Local)
		sv.Set(func(_ context.Context, c faultstore.Call) error {
			err := c.Take()
			c.Receipts[0].Now -= time.Hour.Microseconds()
			return err
		})
		admitted(t, s, 8, "k", p)
		cut(t, sv, s, faultstore.Refused)
		if n := admitted(t, s, 3, "k", p); n != 1 {
			t.Errorf("%d are admitted after 9 of 10, want 1", n)
		}
	})
}

// A limit that changes while the store is away keeps what was used of it.
func TestLimitChanges(t *testing.T) {
	t.Parallel()
	bubble(t, failover.Config{Instances: 2}, func(t *testing.T, sv *faultstore.Store, s *failover.Store) {
		small, large := plan(t, "10/day", sluice.FixedWindow), plan(t, "20/day", sluice.FixedWindow)
		cut(t, sv, s, faultstore.Refused)
		for i, p := range []*sluice.Plan{small, large, small} {
			if n, want := admitted(t, s, 30, "k", p), []int64{5, 5, 0}[i]; n != want {
				t.Errorf("step %d: %d units have passed, want %d", i, n, want)
			}
		}
	})
}

// Any number of keys costs bounded memory, and all are limited.
func TestManyKeys(t *testing.T) {
	t.Parallel()
	bubble(t, failover.Config{}, func(t *testing.T, sv *faultstore.Store, s *failover.Store) {
		p := plan(t, "2/minute", sluice.TokenBucket)
		cut(t, sv, s, faultstore.Refused)
		const bound = 1 << 16
		for i := range bound + 1000 {
			take(t, s, fmt.Sprint("flood", i), p, sluice.Local)
		}
		if n := s.Status().Owing; n != bound {
			t.Errorf("%d keys are remembered, want %d", n, bound)
		}
		for _, key := range []string{"late", strings.Repeat("long", 1000)} {
			if n := admitted(t, s, 4, key, p); n != 2 {
				t.Errorf("%.10s: %d are admitted, want 2", key, n)
			}
		}
		// Keys whose units have come back make room.
		time.Sleep(2 * time.Minute)
		take(t, s, "new", p, sluice.Local)
		if n := s.Status().Owing; n > 2 {
			t.Errorf("%d keys are remembered after they have expired", n)
		}
	})
}

// A request that is denied takes nothing, and its receipts show the shares of the other charges as they are.
// So do those of a request of which it is unknown whether it was charged.
func TestReceiptsOfSeveral(t *testing.T) {
	t.Parallel()
	bubble(t, failover.Config{}, func(t *testing.T, sv *faultstore.Store, s *failover.Store) {
		small, large := plan(t, "5/day", sluice.FixedWindow), plan(t, "100/day", sluice.SlidingWindowLog)
		charges := []sluice.Charge{
			{Key: "small", Plan: small, Cost: 2, OnError: sluice.Local},
			{Key: "large", Plan: large, Cost: 3, OnError: sluice.Allow},
		}
		origins := []sluice.Origin{sluice.ByLocalShare, sluice.ByOnError, sluice.ByOnError}
		look := func(step string, used ...int64) {
			t.Helper()
			for i, r := range charge(t, s, charges...) {
				if r.Origin != origins[i] || r.Used != used[i] || r.Fits != (i < 2) {
					t.Errorf("%s, charge %d: %+v, want %d used, by %v", step, i, r, used[i], origins[i])
				}
			}
		}
		sv.Set(faultstore.Frozen)
		look("unknown", 2, 3)
		cut(t, sv, s, faultstore.Unsent)
		look("away", 4, 6)
		charges = append(charges, sluice.Charge{Key: "denied", Plan: small, Cost: 1, OnError: sluice.Deny})
		for range 3 {
			look("denied", 4, 6, 0)
		}
	})
}

// Penalties are kept in the share: they are neither taken over from the shared store nor written back.
func TestPenalty(t *testing.T) {
	t.Parallel()
	lock, err := sluice.Penalty{First: time.Minute, Factor: 2}.Plan()
	if err != nil {
		t.Fatal(err)
	}
	plans := []*sluice.Plan{plan(t, "100/second", sluice.TokenBucket), plan(t, "10/day", sluice.TokenBucket), lock}
	for on, want := range map[sluice.OnError]int{sluice.Allow: 30, sluice.Deny: 0, sluice.Local: 5} {
		bubble(t, failover.Config{Instances: 2}, func(t *testing.T, sv *faultstore.Store, s *failover.Store) {
			take := func(cost int64) (locked sluice.Receipt, ok bool) {
				t.Helper()
				var charges []sluice.Charge
				for _, p := range plans {
					charges = append(charges, sluice.Charge{Key: "k", Plan: p, Cost: cost, OnError: on})
				}
				charges[2].Cost = min(cost, 1)
				receipts := charge(t, s, charges...)
				return receipts[2], sluice.Admitted(charges, receipts)
			}
			cut(t, sv, s, faultstore.Refused)
			n := 0
			for range 30 {
				r, ok := take(1)
				if d := lock.Decide(1, r); ok {
					n++
				} else if on == sluice.Local && (!d.Locked || d.RetryAfter != time.Minute) {
					t.Errorf("%v: the lock says %+v, want a minute", on, d)
				}
			}
			if n != want {
				t.Errorf("%v: %d pass, want %d", on, n, want)
			}
			if on != sluice.Local {
				return
			}
			time.Sleep(59 * time.Second)
			if _, ok := take(1); ok {
				t.Error("a request passes during the penalty")
			}
			take(sluice.All)
			if r, ok := take(1); !ok || r.Used != 0 {
				t.Errorf("lifted: %+v", r)
			}
			for range 5 { // of a limit whose units have come back meanwhile
				take(1)
			}
			mend(t, sv, s)
			if r, ok := take(1); !ok || r.Used != 0 || r.Origin.Degraded() {
				t.Errorf("with the store: %+v, want nothing of the penalty", r)
			}
		})
	}
}
