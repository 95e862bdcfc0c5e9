package synced_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/faultstore"
	"github.com/sluicehq/sluice/internal/seed"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/synced"
)

// The bound is reached, and no more is admitted until it has drained.
func TestWorst(t *testing.T) {
	t.Parallel()
	near(t, 5, func(t *testing.T, f *fleet) {
		p := still(t, "10/day")
		for i := range f.stores { // which have all heard of the key
			if r := f.take(t, i, p, 0, true); r.Origin != sluice.ByStore {
				t.Fatalf("%+v", r)
			}
		}
		passed := int64(0)
		for round := range 20 {
			for i := range f.stores {
				for range 12 {
					r, err := f.try(i, p, 1)
					d := p.Decide(1, r)
					if r.Fits {
						passed++
					}
					if err != nil || r.Origin != sluice.BySync || !r.Fits && (d.Remaining != 0 || d.RetryAfter < 23*time.Hour) {
						t.Fatalf("%+v, %v", r, err)
					}
				}
			}
			if want := 10 + synced.Excess(p, 5); passed != want {
				t.Fatalf("round %d: %d passed, want %d", round, passed, want)
			}
			rounds(1)
		}
	})
}

// What has been taken is told once, whatever becomes of the calls, but for what is not known to have arrived: that may
// have been counted.
func TestToldOnce(t *testing.T) {
	t.Parallel()
	base := seed.Of(t)
	for n := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			f := newFleet(3, newServer(memory.New(), 20*time.Millisecond, steady(base<<8+n)))
			p := still(t, slow)
			var mu sync.Mutex
			passed := int64(0)
			until := time.Now().Add(20 * time.Second)
			var all sync.WaitGroup
			moods := steady(base<<8 + n + 1<<40)
			all.Go(func() {
				for time.Now().Before(until) {
					f.become([]mood{well, well, well, unsent, lost, mute}[moods.IntN(6)])
					time.Sleep(time.Duration(moods.Int64N(int64(time.Second))))
				}
				f.become(well)
			})
			for i := range f.stores {
				own := rand.New(rand.NewPCG(base, n<<8+uint64(i)))
				all.Go(func() {
					for time.Now().Before(until) {
						cost := 1 + own.Int64N(2)
						r, err := f.try(i, p, cost)
						mu.Lock()
						if err == nil && r.Fits {
							passed += cost
						}
						mu.Unlock()
						if err != nil && !notCharged(err) {
							t.Errorf("a call that only asks has failed, and is said to have counted: %v", err)
						}
						time.Sleep(time.Duration(own.Int64N(int64(300 * time.Millisecond))))
					}
				})
			}
			all.Wait()
			f.close()
			arrived, lost := f.heard()
			if used := f.Used(t, "k", p); used != passed-lost || used != arrived || passed < 50 {
				t.Errorf("seed %d: %d were let pass, %d were lost, %d have arrived, and %d are counted", n, passed, lost, arrived, used)
			}
		})
	}
}

// While the store is away what is known is used for 300 ms, and then it is asked. What was taken is told when it is
// back, and what has drained by then is not.
func TestAway(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		limit string
		by    sluice.Algorithm
		told  int64
	}{
		{slow, sluice.FixedWindow, 7},
		{"10/second", sluice.TokenBucket, 1},
	} {
		near(t, 1, func(t *testing.T, f *fleet) {
			p := plan(t, c.limit, c.by)
			f.take(t, 0, p, 1, true)
			rounds(1)
			f.become(unsent)
			passed := 0
			for range 12 {
				switch _, err := f.try(0, p, 1); {
				case err == nil:
					passed++
				case !notCharged(err):
					t.Error(err)
				}
				time.Sleep(50 * time.Millisecond)
			}
			if passed != 6 { // of the 300 ms since the last answer, each 50 ms, but for the first
				t.Errorf("%s: %d passed while the store was away", c.limit, passed)
			}
			calls := f.Calls.Load()
			time.Sleep(time.Second)
			if more := f.Calls.Load() - calls; more > 10 {
				t.Errorf("%s: %d calls of a store that is away, in a second", c.limit, more)
			}
			time.Sleep(5 * time.Second)
			f.become(well)
			rounds(3)
			if told, _ := f.heard(); told != c.told {
				t.Errorf("%s: %d are told, want %d", c.limit, told, c.told)
			}
		})
	}
}

// A hot key costs a call in 100 ms, and an idle one is forgotten and costs none.
func TestIdle(t *testing.T) {
	t.Parallel()
	near(t, 1, func(t *testing.T, f *fleet) {
		p := still(t, slow)
		for range 100 {
			f.take(t, 0, p, 1, true)
			time.Sleep(10 * time.Millisecond)
		}
		if n := f.Calls.Load(); n > 12 {
			t.Errorf("%d calls for a hundred decisions in a second", n)
		}
		time.Sleep(time.Second)
		calls := f.Calls.Load()
		time.Sleep(time.Minute)
		if n, keys := f.Calls.Load()-calls, f.stores[0].Keys(); n != 0 || keys != 0 {
			t.Errorf("%d calls for an idle key, and %d keys", n, keys)
		}
		if r := f.take(t, 0, p, 1, true); r.Used != 101 || r.Origin != sluice.ByStore {
			t.Errorf("%+v", r)
		}
	})
}

// What is not decided here is passed on, and both are taken or neither.
func TestTogether(t *testing.T) {
	t.Parallel()
	near(t, 2, func(t *testing.T, f *fleet) {
		few, nine, many := still(t, "3/day"), still(t, "9/day"), still(t, slow)
		take := func(process int, here, there sluice.Charge) [2]sluice.Receipt {
			t.Helper()
			here.Consistency, there.Cost = sluice.Synced, 1
			var r [2]sluice.Receipt
			if err := f.stores[process].TakeWithin(t.Context(), time.Second, []sluice.Charge{here, there}, r[:]); err != nil {
				t.Fatal(err)
			}
			return r
		}
		used := func(key string, p *sluice.Plan, want int64) {
			t.Helper()
			if n := f.Used(t, key, p); n != want {
				t.Errorf("%s: %d are counted, want %d", key, n, want)
			}
		}
		here, there := sluice.Charge{Key: "here", Plan: few, Cost: 1}, sluice.Charge{Key: "there", Plan: many}
		for i := range 5 { // it is refused here
			if r := take(0, here, there); r[0].Fits != (i < 3) || !r[1].Fits || r[1].Used != min(int64(i)+1, 3) {
				t.Fatalf("take %d: %+v", i, r)
			}
		}
		here.Shadow = true
		if r := take(0, here, there); r[0].Fits || !r[1].Fits || r[1].Used != 4 {
			t.Errorf("a shadow: %+v", r)
		}
		here, there = sluice.Charge{Key: "a", Plan: many, Cost: 2}, sluice.Charge{Key: "b", Plan: nine}
		for i := range 12 { // the shared store refuses it
			if r := take(1, here, there); !r[0].Fits || r[1].Fits != (i < 9) || r[0].Used != int64(min(i+1, 9))*2 {
				t.Errorf("take %d: %+v", i, r)
			}
			time.Sleep(30 * time.Millisecond)
		}
		f.close()
		used("here", few, 3)
		used("there", many, 4)
		used("a", many, 18)
	})
}

// What is given back is given back at once, here and there.
func TestGiveBack(t *testing.T) {
	t.Parallel()
	near(t, 2, func(t *testing.T, f *fleet) {
		p := still(t, "10/day")
		take := func(process int, cost int64, fits bool, used int64) {
			t.Helper()
			if r := f.take(t, process, p, cost, fits); r.Used != used {
				t.Fatalf("%+v: want %d used", r, used)
			}
		}
		take(0, 6, true, 6)
		take(0, -2, true, 4) // not told yet
		take(0, 7, false, 4)
		rounds(2)
		take(1, 6, true, 10)
		take(1, -8, true, 2) // six of its own, and two that the store knows of
		rounds(2)
		take(0, 8, true, 10)
		take(0, sluice.All, true, 0)
		take(0, 1, true, 1)
		f.close()
		if used := f.Used(t, "k", p); used != 1 {
			t.Errorf("%d are counted, want 1", used)
		}
	})
}

// A reset of the store is heard of in the next round, and not before.
func TestForgetful(t *testing.T) {
	t.Parallel()
	near(t, 1, func(t *testing.T, f *fleet) {
		p := still(t, "10/day")
		f.take(t, 0, p, 10, true)
		rounds(1)
		f.Restart(memory.New())
		time.Sleep(10 * time.Millisecond)
		f.take(t, 0, p, 1, false)
		rounds(1)
		f.take(t, 0, p, 1, true)
	})
}

// With no time to wait, only what is known is answered.
func TestNoWait(t *testing.T) {
	t.Parallel()
	near(t, 1, func(t *testing.T, f *fleet) {
		charges := [1]sluice.Charge{{Key: "k", Plan: still(t, slow), Cost: 1, Consistency: sluice.Synced}}
		var r [1]sluice.Receipt
		take := func() error { return f.stores[0].TakeWithin(t.Context(), 0, charges[:], r[:]) }
		if err := take(); !notCharged(err) {
			t.Errorf("an unknown key: %v", err)
		}
		f.take(t, 0, charges[0].Plan, 1, true)
		if err := take(); err != nil || !r[0].Fits || r[0].Origin != sluice.BySync {
			t.Errorf("a known key: %+v, %v", r, err)
		}
	})
}

// A key that the store cannot read is said to be unreadable, and the others are counted as ever.
func TestUnreadable(t *testing.T) {
	t.Parallel()
	near(t, 1, func(t *testing.T, f *fleet) {
		p := still(t, slow)
		f.take(t, 0, p, 1, true)
		f.Set(faultstore.Spoil(f.call, "k"))
		time.Sleep(2 * time.Second) // what is told of it has no place
		for range 3 {
			charges := []sluice.Charge{
				{Key: "fine", Plan: p, Cost: 1, Consistency: sluice.Synced}, {Key: "k", Plan: p, Cost: 1, Consistency: sluice.Synced},
			}
			var r [2]sluice.Receipt
			err := f.stores[0].TakeWithin(t.Context(), time.Second, charges, r[:])
			if odd, ok := err.(interface{ Unreadable() []int }); !ok || len(odd.Unreadable()) != 1 || odd.Unreadable()[0] != 1 {
				t.Fatalf("%v", err)
			}
			if err := f.stores[0].TakeWithin(t.Context(), time.Second, charges[:1], r[:1]); err != nil || !r[0].Fits {
				t.Fatalf("%+v, %v", r, err)
			}
		}
		f.close()
		if n := f.Used(t, "fine", p); n != 3 {
			t.Errorf("%d are counted, want 3", n)
		}
	})
}

func TestCan(t *testing.T) {
	for _, c := range []struct {
		limit string
		by    sluice.Algorithm
		can   bool
	}{
		{"100/minute", sluice.TokenBucket, true}, {"1000/second", sluice.TokenBucket, true},
		{"1000/second burst 200", sluice.TokenBucket, true}, {"1000/second burst 199", sluice.TokenBucket, false},
		{"1/day", sluice.TokenBucket, true}, {"1000000000/second", sluice.TokenBucket, true},
		{"100/second", sluice.FixedWindow, true}, {"100/999ms", sluice.FixedWindow, false},
		{"100/second", sluice.SlidingWindowCounter, true}, {"100/999ms", sluice.SlidingWindowCounter, false},
		{"100/minute", sluice.SlidingWindowLog, false},
	} {
		if err := synced.Can(plan(t, c.limit, c.by)); (err == nil) != c.can {
			t.Errorf("%s %v: %v", c.limit, c.by, err)
		}
	}
	// One more for each other: a burst of 100, and 0.5 of a unit that drains within 300 ms.
	for n, want := range map[int]int64{0: 0, 1: 0, 2: 101, 10: 909} {
		if got := synced.Excess(plan(t, "100/minute", sluice.TokenBucket), n); got != want {
			t.Errorf("%d processes: %d too many, want %d", n, got, want)
		}
	}
	if got := synced.Excess(plan(t, "100/minute", sluice.FixedWindow), 3); got != 200 {
		t.Errorf("a window: %d too many", got)
	}
}

func BenchmarkTake(b *testing.B) {
	f := newFleet(1, newServer(memory.New(), 0, steady(1)))
	defer f.close()
	for name, s := range map[string]interface {
		TakeWithin(context.Context, time.Duration, []sluice.Charge, []sluice.Receipt) error
	}{"here": f.stores[0], "memory": f} {
		b.Run(name, func(b *testing.B) {
			charges := []sluice.Charge{{Key: "k", Plan: still(b, "1000000000/minute"), Cost: 1, Consistency: sluice.Synced}}
			r := make([]sluice.Receipt, 1)
			b.ReportAllocs()
			for b.Loop() {
				if err := s.TakeWithin(b.Context(), time.Second, charges, r); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// at sleeps until so long after a bubble has begun.
func at(began time.Time, d time.Duration) { time.Sleep(time.Until(began.Add(d))) }

// While something is being told, the store is asked and counts it once, whether it has heard of it by then or not.
func TestAskedWhileTelling(t *testing.T) {
	t.Parallel()
	for _, way := range [][2]time.Duration{{400 * time.Millisecond, 0}, {0, 400 * time.Millisecond}} {
		near(t, 1, func(t *testing.T, f *fleet) {
			began, p := time.Now(), still(t, "10/day")
			f.slow(way[0], way[1])
			f.take(t, 0, p, 5, true)
			at(began, 450*time.Millisecond) // what was heard at 0 is too old, and it is told since 100
			if r := f.take(t, 0, p, 6, false); r.Origin != sluice.ByStore {
				t.Errorf("%v: while it is told: %+v", way, r)
			}
			at(began, 510*time.Millisecond)
			synctest.Wait()
			if r := f.take(t, 0, p, 5, true); r.Used != 10 || r.Origin != sluice.BySync {
				t.Errorf("%v: when it is told: %+v", way, r)
			}
		})
	}
}

// What was taken in a fixed window is over with it, whether it has been told by then, is on its way, or is not.
func TestWindowEnds(t *testing.T) {
	t.Parallel()
	for name, there := range map[string]time.Duration{"not told": 0, "on its way": 60 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				at(began, 50*time.Millisecond) // so that it is told at 950 and 1050
				f := newFleet(2, newServer(memory.New(), 0, steady(1)))
				defer f.close()
				p := plan(t, "10/second", sluice.FixedWindow)
				f.slow(there, 0)
				at(began, 910*time.Millisecond)
				f.take(t, 0, p, 0, true)
				if there == 0 {
					at(began, 960*time.Millisecond)
				}
				f.take(t, 0, p, 10, true)
				at(began, 1020*time.Millisecond)
				f.slow(0, 1)
				f.take(t, 0, p, 10, true)
				f.take(t, 0, p, 1, false)
				at(began, 1300*time.Millisecond)
				synctest.Wait()
				if used := f.Used(t, "k", p); used != 10 {
					t.Errorf("%d are counted in the window", used)
				}
				f.take(t, 1, p, 1, false)
			})
		})
	}
}

// A store that has not answered is asked before it is told of more, so that little is lost.
func TestLittleIsLost(t *testing.T) {
	t.Parallel()
	near(t, 1, func(t *testing.T, f *fleet) {
		began, p := time.Now(), still(t, slow)
		f.take(t, 0, p, 1, true)
		at(began, 150*time.Millisecond)
		f.become(lost)
		f.take(t, 0, p, 2, true) // told at 200, and lost
		at(began, 300*time.Millisecond)
		f.take(t, 0, p, 4, true)
		at(began, 4*time.Second)
		f.become(well)
		at(began, 6*time.Second)
		synctest.Wait()
		if _, lost := f.heard(); f.Used(t, "k", p) != 5 || lost != 2 {
			t.Errorf("%d are counted, and %d were lost, want 5 and 2", f.Used(t, "k", p), lost)
		}
	})
}
