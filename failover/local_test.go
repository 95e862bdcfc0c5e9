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

// A caller that waits, and is denied without the store, waits for the store and asks now and then.
func TestWaitForTheStore(t *testing.T) {
	t.Parallel()
	bubble(t, failover.Config{}, func(t *testing.T, sv *faultstore.Store, s *failover.Store) {
		l, err := sluice.NewLimiter(s, "api", sluice.Limit{Count: 10, Period: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		l.OnError = sluice.Deny
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
