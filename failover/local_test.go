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
)

func TestAllow(t *testing.T) {
	for _, a := range sluice.Algorithms() {
		bubble(t, failover.Config{}, func(t *testing.T, sv *server, s *failover.Store) {
			p := plan(t, "3/minute", a)
			cut(t, sv, s, refused)
			for range 100 {
				if r := take(t, s, "k", p, sluice.Allow); !r.Fits || !r.Origin.Degraded() || !p.Decide(1, r).Allowed {
					t.Fatalf("%v: %+v", a, r)
				}
			}
		})
	}
}

func TestDeny(t *testing.T) {
	bubble(t, failover.Config{}, func(t *testing.T, sv *server, s *failover.Store) {
		p := plan(t, "3/minute", sluice.FixedWindow)
		cut(t, sv, s, refused)
		for range 100 {
			if r := take(t, s, "k", p, sluice.Deny); r.Fits || !r.Origin.Degraded() || r.Now != time.Now().UnixMicro() {
				t.Fatalf("receipt %+v", r)
			}
		}
		for cost, want := range map[int64]bool{0: false, -1: true, sluice.All: true} {
			if r := charge(t, s, sluice.Charge{Key: "k", Plan: p, Cost: cost, OnError: sluice.Deny}); r[0].Fits != want || !r[0].Origin.Degraded() {
				t.Errorf("cost %d: %+v", cost, r[0])
			}
		}
		mend(t, sv, s)
		if n := sv.used(t, "k", p); n != 0 {
			t.Errorf("%d units were written back of what was denied", n)
		}
	})
}

// Of several charges any that denies wins, and then nothing is charged. Any share
// that is used up refuses, too.
func TestMixed(t *testing.T) {
	bubble(t, failover.Config{}, func(t *testing.T, sv *server, s *failover.Store) {
		p := plan(t, "3/day", sluice.FixedWindow)
		c := func(key string, on sluice.OnError) sluice.Charge {
			return sluice.Charge{Key: key, Plan: p, Cost: 1, OnError: on}
		}
		cut(t, sv, s, refused)
		all := []sluice.Charge{c("l", sluice.Local), c("a", sluice.Allow), c("d", sluice.Deny)}
		for range 10 {
			r := charge(t, s, all...)
			if sluice.Admitted(all, r) || !r[0].Fits || !r[1].Fits || r[2].Fits || !r[0].Origin.Degraded() || !r[1].Origin.Degraded() || !r[2].Origin.Degraded() {
				t.Fatalf("with a charge that denies: %+v", r)
			}
		}
		// A shadow denies nobody, and does not become a charge that passes.
		all[2].Shadow = true
		for i := range 5 {
			r := charge(t, s, all...)
			if admitted := sluice.Admitted(all, r); admitted != (i < 3) || r[0].Fits != (i < 3) || !r[1].Fits || r[2].Fits {
				t.Fatalf("take %d with a shadow that denies: %v, %+v", i, admitted, r)
			}
		}
		mend(t, sv, s)
		for key, want := range map[string]int64{"l": 3, "a": 3, "d": 0} {
			if n := sv.used(t, key, p); n != want {
				t.Errorf("%s: %d units were written back, want %d", key, n, want)
			}
		}
	})
}

// What a share says is what it does: Remaining units fit and not one more, and a refused
// cost fits after its wait and not a tick earlier.
func TestShareKeepsItsWord(t *testing.T) {
	limits := []string{"100/6s", "7/second", "10/9s", "1/second", "999983/30s", "3/2s",
		"1025/32s"} // a log of which divided by two has other ticks
	for _, a := range sluice.Algorithms() {
		t.Run(a.String(), func(t *testing.T) {
			for _, limit := range limits {
				for _, n := range []int{1, 2, 3, 7, 100} {
					t.Run(fmt.Sprintf("%s by %d", strings.ReplaceAll(limit, "/", " per "), n), func(t *testing.T) {
						bubble(t, failover.Config{Instances: n}, func(t *testing.T, sv *server, s *failover.Store) {
							testShare(t, sv, s, plan(t, limit, a), int64(n))
						})
					})
				}
			}
		})
	}
}

func testShare(t *testing.T, sv *server, s *failover.Store, p *sluice.Plan, n int64) {
	cut(t, sv, s, refused)
	ask := func(cost int64) sluice.Decision {
		c := sluice.Charge{Key: "k", Plan: p, Cost: cost, OnError: sluice.Local}
		return p.Decide(cost, charge(t, s, c)[0])
	}
	share := max(1, p.Capacity/n)
	if d := ask(0); d.Remaining != share {
		t.Fatalf("a fresh share of %d has %d units, want %d", p.Capacity, d.Remaining, share)
	}
	tick := time.Duration(p.Tick) * time.Microsecond
	rnd := rand.New(rand.NewPCG(uint64(p.Capacity), uint64(n)))
	for range 12 {
		before := ask(0).Remaining
		cost := 1 + rnd.Int64N(max(1, min(share, before+2)))
		if n > 1 && p.Limit.Algorithm == sluice.LeakyBucket {
			before = cost // Remaining is not exact: see recast
		}
		d := ask(cost)
		exact := p.Limit.Algorithm != sluice.SlidingWindowCounter || n == 1
		switch {
		case d.Allowed && cost > before:
			t.Fatalf("%d units fit, and %d were said to remain", cost, before)
		case d.Allowed:
			if p.Limit.Algorithm == sluice.LeakyBucket {
				break
			}
			if left := ask(0).Remaining; left != d.Remaining {
				t.Fatalf("%d remain, and then %d", d.Remaining, left)
			}
			if d.Remaining == 0 {
				time.Sleep(d.RetryAfter - tick)
				if exact && ask(0).Remaining != 0 {
					t.Fatalf("there is a unit a tick before %v", d.RetryAfter)
				}
				time.Sleep(tick)
				if ask(0).Remaining == 0 {
					t.Fatalf("there is no unit after %v", d.RetryAfter)
				}
			}
		case cost <= before && p.Limit.Algorithm != sluice.LeakyBucket:
			t.Fatalf("%d units do not fit, and %d were said to remain", cost, before)
		case d.RetryAfter <= 0 || d.RetryAfter == sluice.Never:
			t.Fatalf("a cost of %d of a share of %d is refused for %v", cost, share, d.RetryAfter)
		default:
			time.Sleep(d.RetryAfter - tick)
			if exact && ask(cost).Allowed {
				t.Fatalf("a cost of %d fits a tick before %v", cost, d.RetryAfter)
			}
			time.Sleep(tick)
			if !ask(cost).Allowed {
				t.Fatalf("a cost of %d does not fit after %v", cost, d.RetryAfter)
			}
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

// However many instances there are, their shares together are not more than the limit,
// unless it has less than a unit for each.
func TestSharesTogether(t *testing.T) {
	for _, a := range sluice.Algorithms() {
		for _, n := range []int{1, 2, 3, 7, 25} {
			t.Run(fmt.Sprintf("%v by %d", a, n), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					p := plan(t, "20/6s", a)
					var total, atOnce int64
					for range n {
						sv := newServer()
						s := failover.New(prompt{sv}, failover.Config{Instances: n, Logger: quiet()})
						cut(t, sv, s, refused)
						time.Sleep(6*time.Second - time.Duration(time.Now().UnixNano())%(6*time.Second))
						for tenth := range 120 {
							for range 25 - 21*min(tenth, 1) { // then more than come back
								if take(t, s, "k", p, sluice.Local).Fits {
									total++
									if tenth == 0 {
										atOnce++
									}
								}
							}
							time.Sleep(time.Second / 10)
						}
						s.Close()
					}
					most := max(20, int64(n))
					if a == sluice.LeakyBucket {
						most = max(p.Capacity, int64(n))
					}
					rate := max(40, int64(n)*2)
					if p.Kernel == sluice.Meter {
						rate = 40 // a meter divides a rate, however low
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

// A limit with less than a unit for each is divided by rate all the same.
func TestSmallShares(t *testing.T) {
	const n = 20
	bubble(t, failover.Config{Instances: n}, func(t *testing.T, sv *server, s *failover.Store) {
		p := plan(t, "2/second", sluice.TokenBucket)
		cut(t, sv, s, refused)
		passed := 0
		for range 1000 {
			if take(t, s, "k", p, sluice.Local).Fits {
				passed++
			}
			time.Sleep(100 * time.Millisecond)
		}
		// One to begin with, and one every ten seconds.
		if passed < 10 || passed > 11 {
			t.Errorf("%d units have passed in 100 s, want 10 or 11", passed)
		}
	})
}

// From the first failure on there is one share, though the circuit is not open yet.
func TestShareBeforeTheCircuitOpens(t *testing.T) {
	for name, f := range map[string]fault{"frozen": frozen, "refused": refused, "not sent": unsent} {
		t.Run(name, func(t *testing.T) {
			bubble(t, failover.Config{}, func(t *testing.T, sv *server, s *failover.Store) {
				p := plan(t, "3/day", sluice.FixedWindow)
				sv.set(f)
				passed := 0
				for range 20 {
					if take(t, s, "k", p, sluice.Local).Fits {
						passed++
					}
					time.Sleep(90 * time.Millisecond)
				}
				if passed != 3 {
					t.Errorf("%d units have passed, want 3", passed)
				}
			})
		})
	}
}

// Queued requests leave at the rate of the share.
func TestShareOfAQueue(t *testing.T) {
	bubble(t, failover.Config{Instances: 3}, func(t *testing.T, sv *server, s *failover.Store) {
		p := plan(t, "10/second burst 30", sluice.LeakyBucket)
		cut(t, sv, s, refused)
		for i := range 10 {
			r := take(t, s, "k", p, sluice.Local)
			if d := p.Decide(1, r); !d.Allowed || d.Delay != time.Duration(i)*300*time.Millisecond {
				t.Errorf("request %d: %+v", i, d)
			}
		}
		if d := p.Decide(1, take(t, s, "k", p, sluice.Local)); d.Allowed || d.RetryAfter != 300*time.Millisecond {
			t.Errorf("with a full queue: %+v", d)
		}
		refund := sluice.Charge{Key: "k", Plan: p, Cost: -1, OnError: sluice.Local}
		charge(t, s, refund)
		if d := p.Decide(1, take(t, s, "k", p, sluice.Local)); !d.Allowed || d.Delay != 2700*time.Millisecond {
			t.Errorf("after one has left: %+v", d)
		}
	})
}

// A share begins where the shared store was when last seen.
func TestSeed(t *testing.T) {
	for _, a := range sluice.Algorithms() {
		for _, n := range []int{1, 2, 3} {
			t.Run(fmt.Sprintf("%v by %d", a, n), func(t *testing.T) {
				bubble(t, failover.Config{Instances: n}, func(t *testing.T, sv *server, s *failover.Store) {
					p := plan(t, "100/hour", a)
					if a == sluice.LeakyBucket {
						p = plan(t, "100/hour burst 100", a)
					}
					time.Sleep(time.Hour - time.Duration(time.Now().UnixNano())%time.Hour)
					for range 70 {
						take(t, s, "some", p, sluice.Local)
					}
					for range 100 {
						take(t, s, "all", p, sluice.Local)
					}
					if r := take(t, s, "all", p, sluice.Local); r.Fits || r.Origin.Degraded() {
						t.Fatalf("unit 101: %+v", r)
					}
					cut(t, sv, s, refused)
					for key, left := range map[string]int64{"some": 30, "all": 0, "none": 100} {
						var got int64
						for range 200 {
							if take(t, s, key, p, sluice.Local).Fits {
								got++
							}
						}
						// The circuit takes a moment to open, in which a meter drains a little.
						if want := left / int64(n); got != want && (p.Kernel != sluice.Meter || got != want+1) {
							t.Errorf("%s: %d units, want %d", key, got, want)
						}
					}
				})
			})
		}
	}
}

// What counts is the newest state, and not the answer that came last.
func TestSeedOfTheNewest(t *testing.T) {
	bubble(t, failover.Config{}, func(t *testing.T, sv *server, s *failover.Store) {
		p := plan(t, "100/day", sluice.FixedWindow)
		var delay atomic.Int64
		sv.set(func(_ context.Context, _ []sluice.Charge, take func() error) error {
			err := take()
			time.Sleep(time.Duration(delay.Load()))
			return err
		})
		delay.Store(int64(20 * time.Millisecond))
		var wg sync.WaitGroup
		wg.Go(func() { take(t, s, "k", p, sluice.Local) })
		time.Sleep(10 * time.Millisecond)
		delay.Store(0)
		charge(t, s, sluice.Charge{Key: "k", Plan: p, Cost: 99, OnError: sluice.Local})
		wg.Wait()
		cut(t, sv, s, refused)
		if r := take(t, s, "k", p, sluice.Local); r.Fits {
			t.Errorf("unit 101: %+v", r)
		}
	})
}

// A limit that changes while the store is away keeps what was used of it.
func TestLimitChanges(t *testing.T) {
	bubble(t, failover.Config{Instances: 2}, func(t *testing.T, sv *server, s *failover.Store) {
		small, large := plan(t, "10/day", sluice.FixedWindow), plan(t, "20/day", sluice.FixedWindow)
		cut(t, sv, s, refused)
		passed := 0
		for i, p := range []*sluice.Plan{small, large, small} {
			for range 30 {
				if take(t, s, "k", p, sluice.Local).Fits {
					passed++
				}
			}
			if want := []int{5, 10, 10}[i]; passed != want {
				t.Errorf("%d units have passed, want %d", passed, want)
			}
		}
	})
}

// Keys without end cost bounded memory, and are limited all the same.
func TestManyKeys(t *testing.T) {
	bubble(t, failover.Config{}, func(t *testing.T, sv *server, s *failover.Store) {
		p := plan(t, "2/minute", sluice.TokenBucket)
		cut(t, sv, s, refused)
		const bound = 1 << 16
		for i := range bound + 1000 {
			take(t, s, fmt.Sprint("flood", i), p, sluice.Local)
		}
		if n := s.Status().Owing; n != bound {
			t.Errorf("%d keys are remembered, want %d", n, bound)
		}
		for _, key := range []string{"late", strings.Repeat("long", 1000)} {
			for i := range 4 {
				if r := take(t, s, key, p, sluice.Local); r.Fits != (i < 2) {
					t.Errorf("take %d of %.10s: %+v", i, key, r)
				}
			}
		}
		// What says nothing any more makes room.
		time.Sleep(2 * time.Minute)
		take(t, s, "new", p, sluice.Local)
		if n := s.Status().Owing; n > 2 {
			t.Errorf("%d keys are remembered after they have expired", n)
		}
	})
}

// A request that is denied takes nothing, and is told of the other charges what their shares
// are like. One whose outcome is unknown is told the same, of each charge its own.
func TestReceiptsOfSeveral(t *testing.T) {
	bubble(t, failover.Config{}, func(t *testing.T, sv *server, s *failover.Store) {
		small, large := plan(t, "5/day", sluice.FixedWindow), plan(t, "100/day", sluice.SlidingWindowLog)
		charges := []sluice.Charge{
			{Key: "small", Plan: small, Cost: 2, OnError: sluice.Local},
			{Key: "large", Plan: large, Cost: 3, OnError: sluice.Allow},
		}
		look := func(step string, used [2]int64, origins ...sluice.Origin) {
			t.Helper()
			for i, r := range charge(t, s, charges...) {
				if r.Origin != origins[i] || i < 2 && (!r.Fits || r.Used != used[i]) || i == 2 && (r.Fits || r.Used != 0) {
					t.Errorf("%s, charge %d: %+v, want %d used, by %v", step, i, r, used[i%2], origins[i])
				}
			}
		}
		sv.set(frozen)
		look("unknown", [2]int64{2, 3}, sluice.ByLocalShare, sluice.ByOnError)
		cut(t, sv, s, unsent)
		look("away", [2]int64{4, 6}, sluice.ByLocalShare, sluice.ByOnError)
		charges = append(charges, sluice.Charge{Key: "denied", Plan: small, Cost: 1, OnError: sluice.Deny})
		for range 3 {
			look("denied", [2]int64{4, 6}, sluice.ByLocalShare, sluice.ByOnError, sluice.ByOnError)
		}
		if d := small.Decide(1, charge(t, s, charges...)[2]); d != (sluice.Decision{RetryAfter: time.Second, Origin: sluice.ByOnError, Now: d.Now}) {
			t.Errorf("denied: %+v", d)
		}
	})
}
