package synced_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/seed"
	"github.com/sluicehq/sluice/synced"
)

// slow is a limit by which nothing drains while a test runs: the clock of a bubble begins at midnight.
const slow = "1000/day"

func still(t testing.TB, limit string) *sluice.Plan { return plan(t, limit, sluice.FixedWindow) }

// used returns what the server has counted of a key.
func (s *server) used(t testing.TB, key string, p *sluice.Plan) int64 {
	t.Helper()
	charges := [1]sluice.Charge{{Key: key, Plan: p}}
	var r [1]sluice.Receipt
	if err := s.Take(t.Context(), charges[:], r[:]); err != nil {
		t.Fatal(err)
	}
	return r[0].Used
}

func steady(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 2)) }

// The bound is reached, and no more is admitted by anybody until it has drained.
func TestWorst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sv := newServer(0, steady(1))
		f := newFleet(5, sv)
		defer f.close()
		p := still(t, "10/day")
		for i := range f.stores { // which have all heard of the key
			if r, err := f.take(i, "k", p, 0); err != nil || !r.Fits || r.Origin != sluice.ByStore {
				t.Fatalf("%+v, %v", r, err)
			}
		}
		passed := int64(0)
		for round := range 20 {
			for i := range f.stores {
				for range 12 {
					r, err := f.take(i, "k", p, 1)
					if err != nil || r.Origin != sluice.BySync {
						t.Fatalf("%+v, %v", r, err)
					}
					d := p.Decide(1, r)
					if r.Fits {
						passed++
					} else if d.Remaining != 0 || d.RetryAfter < 23*time.Hour {
						t.Fatalf("refused: %+v", d)
					}
				}
			}
			if want := 10 + synced.Excess(p, 5); passed != want {
				t.Fatalf("round %d: %d passed, want %d", round, passed, want)
			}
			time.Sleep(synced.Every)
			synctest.Wait()
		}
	})
}

// What has been taken is told once, whatever becomes of the calls, but for what nobody knows: that
// may have been counted.
func TestToldOnce(t *testing.T) {
	base := seed.Of(t)
	for n := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			random := steady(base<<8 + n)
			sv := newServer(20*time.Millisecond, random)
			f := newFleet(3, sv)
			p := still(t, slow)
			var mu sync.Mutex
			passed := int64(0)
			until := time.Now().Add(20 * time.Second)
			var all sync.WaitGroup
			moods := steady(base<<8 + n + 1<<40)
			all.Go(func() {
				for time.Now().Before(until) {
					sv.become([]mood{well, well, well, unsent, lost, mute}[moods.IntN(6)])
					time.Sleep(time.Duration(moods.Int64N(int64(time.Second))))
				}
				sv.become(well)
			})
			for i := range f.stores {
				own := rand.New(rand.NewPCG(base, n<<8+uint64(i)))
				all.Go(func() {
					for time.Now().Before(until) {
						cost := 1 + own.Int64N(2)
						r, err := f.take(i, "k", p, cost)
						mu.Lock()
						if err == nil && r.Fits {
							passed += cost
						}
						if err != nil && !notCharged(err) {
							t.Errorf("a call that only asks has failed, and is said to have counted: %v", err)
						}
						mu.Unlock()
						time.Sleep(time.Duration(own.Int64N(int64(300 * time.Millisecond))))
					}
				})
			}
			all.Wait()
			f.close()
			if used := sv.used(t, "k", p); used != passed-sv.lost || used != sv.arrived || passed < 50 {
				t.Errorf("seed %d: %d were let pass, %d were lost, %d have arrived, and %d are counted", n, passed, sv.lost, sv.arrived, used)
			}
		})
	}
}

func notCharged(err error) bool {
	e, ok := errors.AsType[interface {
		error
		NotCharged() bool
	}](err)
	return ok && e.NotCharged()
}

// While the store is away what is known is used for 300 ms, and then it is asked. What was taken is
// told when it is back, and what has drained by then is not.
func TestAway(t *testing.T) {
	for name, c := range map[string]struct {
		limit string
		by    sluice.Algorithm
		away  time.Duration
		told  int64
	}{
		"back soon": {slow, sluice.FixedWindow, 5 * time.Second, 7},
		"drained":   {"10/second", sluice.TokenBucket, 5 * time.Second, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sv := newServer(0, steady(1))
				f := newFleet(1, sv)
				defer f.close()
				p := plan(t, c.limit, c.by)
				take := func() error {
					_, err := f.take(0, "k", p, 1)
					return err
				}
				if err := take(); err != nil {
					t.Fatal(err)
				}
				time.Sleep(synced.Every + time.Millisecond)
				synctest.Wait()
				sv.become(unsent)
				began, passed := time.Now(), 0
				for ; time.Since(began) < 600*time.Millisecond; time.Sleep(50 * time.Millisecond) {
					switch err := take(); {
					case err == nil:
						passed++
					case !notCharged(err):
						t.Error(err)
					}
				}
				if passed != 6 { // of the 300 ms since the last answer, each 50 ms, but for the first
					t.Errorf("%d passed while the store was away", passed)
				}
				calls := sv.count()
				time.Sleep(time.Second)
				if more := sv.count() - calls; more > 10 {
					t.Errorf("%d calls of a store that is away, in a second", more)
				}
				time.Sleep(c.away)
				sv.become(well)
				time.Sleep(3 * synced.Every)
				synctest.Wait()
				if sv.counted() != c.told {
					t.Errorf("%d are told, want %d", sv.counted(), c.told)
				}
			})
		})
	}
}

// Keys that nobody asks for any more are forgotten, and cost no calls.
func TestIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sv := newServer(0, steady(1))
		f := newFleet(1, sv)
		defer f.close()
		p := still(t, slow)
		for range 100 {
			if _, err := f.take(0, "hot", p, 1); err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Millisecond)
		}
		if sv.count() > 12 {
			t.Errorf("%d calls for a hundred decisions in a second", sv.count())
		}
		time.Sleep(time.Second)
		calls := sv.count()
		time.Sleep(time.Minute)
		if sv.count() != calls || f.stores[0].Keys() != 0 {
			t.Errorf("%d calls for a key that nobody asks for, and %d keys", sv.count()-calls, f.stores[0].Keys())
		}
		if r, err := f.take(0, "hot", p, 1); err != nil || r.Used != 101 || r.Origin != sluice.ByStore {
			t.Errorf("%+v, %v", r, err)
		}
	})
}

// Take hands on what is not to be decided here, and both are taken or neither.
func TestTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sv := newServer(0, steady(1))
		s := synced.New(sv)
		defer s.Close()
		few, many := still(t, "3/day"), still(t, slow)
		take := func(a, b *sluice.Plan, shadow bool) [2]sluice.Receipt {
			t.Helper()
			charges := [2]sluice.Charge{
				{Key: "here", Plan: a, Cost: 1, Consistency: sluice.Synced, Shadow: shadow}, {Key: "there", Plan: b, Cost: 1},
			}
			var r [2]sluice.Receipt
			if err := s.TakeWithin(t.Context(), time.Second, charges[:], r[:]); err != nil {
				t.Fatal(err)
			}
			return r
		}
		for i := range 5 {
			if r := take(few, many, false); r[0].Fits != (i < 3) || !r[1].Fits || r[1].Used != min(int64(i)+1, 3) {
				t.Fatalf("take %d: %+v", i, r)
			}
		}
		if r := take(few, many, true); r[0].Fits || !r[1].Fits || r[1].Used != 4 {
			t.Errorf("a shadow: %+v", r)
		}
		time.Sleep(time.Second)
		s.Close()
		if here, there := sv.used(t, "here", few), sv.used(t, "there", many); here != 3 || there != 4 {
			t.Errorf("%d and %d are counted, want 3 and 4", here, there)
		}
		s2 := synced.New(sv)
		defer s2.Close()
		s = s2
		other := still(t, "9/day")
		for i := range 12 { // the shared store refuses
			charges := [2]sluice.Charge{{Key: "a", Plan: many, Cost: 2, Consistency: sluice.Synced}, {Key: "b", Plan: other, Cost: 1}}
			var r [2]sluice.Receipt
			if err := s.TakeWithin(t.Context(), time.Second, charges[:], r[:]); err != nil || !r[0].Fits || r[1].Fits != (i < 9) {
				t.Fatalf("%+v, %v", r, err)
			}
			if want := int64(min(i+1, 9)) * 2; r[0].Used != want {
				t.Errorf("take %d: %d are said to be used here, want %d", i, r[0].Used, want)
			}
			time.Sleep(30 * time.Millisecond)
		}
		s2.Close()
		if used := sv.used(t, "a", many); used != 18 {
			t.Errorf("%d are counted, want 18", used)
		}
	})
}

// What is given back is given back at once, here and there.
func TestGiveBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sv := newServer(0, steady(1))
		f := newFleet(2, sv)
		p := still(t, "10/day")
		take := func(process int, cost int64, fits bool, used int64) {
			t.Helper()
			if r, err := f.take(process, "k", p, cost); err != nil || r.Fits != fits || r.Used != used {
				t.Fatalf("%+v, %v: want %v, %d used", r, err, fits, used)
			}
		}
		take(0, 6, true, 6)
		take(0, -2, true, 4) // not told yet
		take(0, 7, false, 4)
		time.Sleep(2 * synced.Every)
		synctest.Wait()
		take(1, 6, true, 10)
		take(1, -8, true, 2) // six of its own, and two that the store knows of
		time.Sleep(2 * synced.Every)
		synctest.Wait()
		take(0, 8, true, 10)
		take(0, sluice.All, true, 0)
		take(0, 1, true, 1)
		f.close()
		if used := sv.used(t, "k", p); used != 1 {
			t.Errorf("%d are counted, want 1", used)
		}
	})
}

// A store that has lost its states, and one whose clock is set, are believed.
func TestForgetful(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sv := newServer(0, steady(1))
		f := newFleet(1, sv)
		defer f.close()
		p := still(t, "10/day")
		if r, err := f.take(0, "k", p, 10); err != nil || !r.Fits {
			t.Fatal(r, err)
		}
		time.Sleep(synced.Every + time.Millisecond)
		synctest.Wait()
		charges := [1]sluice.Charge{{Key: "k", Plan: p, Cost: sluice.All}}
		var r [1]sluice.Receipt
		if err := sv.Take(context.Background(), charges[:], r[:]); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond)
		if r, err := f.take(0, "k", p, 1); err != nil || r.Fits {
			t.Errorf("%+v, %v", r, err)
		}
		time.Sleep(synced.Every)
		synctest.Wait()
		if r, err := f.take(0, "k", p, 1); err != nil || !r.Fits {
			t.Errorf("%+v, %v: a reset is heard of within %v", r, err, synced.Every)
		}
	})
}

// With no time to wait, only what is known is answered.
func TestNoWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sv := newServer(0, steady(1))
		f := newFleet(1, sv)
		defer f.close()
		charges := [1]sluice.Charge{{Key: "k", Plan: still(t, slow), Cost: 1, Consistency: sluice.Synced}}
		var r [1]sluice.Receipt
		take := func() error { return f.stores[0].TakeWithin(t.Context(), 0, charges[:], r[:]) }
		if err := take(); !notCharged(err) {
			t.Errorf("an unknown key: %v", err)
		}
		if _, err := f.take(0, "k", charges[0].Plan, 1); err != nil {
			t.Fatal(err)
		}
		if err := take(); err != nil || !r[0].Fits || r[0].Origin != sluice.BySync {
			t.Errorf("a known key: %+v, %v", r, err)
		}
	})
}

func TestCan(t *testing.T) {
	for limit, can := range map[string]bool{
		"100/minute": true, "1000/second": true, "1000/second burst 200": true, "1000/second burst 199": false, "1/day": true,
		"1000000000/second": true,
	} {
		if err := synced.Can(plan(t, limit, sluice.TokenBucket)); (err == nil) != can {
			t.Errorf("%s: %v", limit, err)
		}
	}
	for limit, can := range map[string]bool{"100/minute": true, "100/second": true, "100/999ms": false} {
		for _, a := range []sluice.Algorithm{sluice.FixedWindow, sluice.SlidingWindowCounter} {
			if err := synced.Can(plan(t, limit, a)); (err == nil) != can {
				t.Errorf("%s %v: %v", limit, a, err)
			}
		}
	}
	if synced.Can(plan(t, "100/minute", sluice.SlidingWindowLog)) == nil {
		t.Error("a log is counted here")
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
	sv := newServer(0, steady(1))
	f := newFleet(1, sv)
	defer f.close()
	p := still(b, "1000000000/minute")
	charges, r := []sluice.Charge{{Key: "k", Plan: p, Cost: 1, Consistency: sluice.Synced}}, make([]sluice.Receipt, 1)
	b.Run("here", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := f.stores[0].TakeWithin(b.Context(), time.Second, charges, r); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("memory", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := sv.Take(b.Context(), charges, r); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// at sleeps until so long after a bubble has begun.
func at(began time.Time, d time.Duration) { time.Sleep(time.Until(began.Add(d))) }

// While something is being told, whoever asks the store counts it once, whether the store has heard of
// it by then or not.
func TestAskedWhileTelling(t *testing.T) {
	for name, c := range map[string]struct{ there, back time.Duration }{
		"not there yet": {400 * time.Millisecond, 0},
		"there":         {0, 400 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sv := newServer(0, steady(1))
				f := newFleet(1, sv)
				defer f.close()
				began, p := time.Now(), still(t, "10/day")
				sv.slow(c.there, c.back)
				if r, err := f.take(0, "k", p, 5); err != nil || !r.Fits {
					t.Fatal(r, err)
				}
				at(began, 450*time.Millisecond) // what was heard at 0 is too old, and it is told since 100
				if r, err := f.take(0, "k", p, 6); err != nil || r.Fits || r.Origin != sluice.ByStore {
					t.Errorf("while it is told: %+v, %v", r, err)
				}
				at(began, 510*time.Millisecond)
				synctest.Wait()
				if r, err := f.take(0, "k", p, 5); err != nil || !r.Fits || r.Used != 10 || r.Origin != sluice.BySync {
					t.Errorf("when it is told: %+v, %v", r, err)
				}
			})
		})
	}
}

// What was taken in a fixed window is over with it, whether it has been told by then, is on its way,
// or is not.
func TestWindowEnds(t *testing.T) {
	for name, there := range map[string]time.Duration{"not told": 0, "on its way": 60 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began, sv := time.Now(), newServer(0, steady(1))
				at(began, 50*time.Millisecond) // so that it is told at 950 and 1050
				f := newFleet(2, sv)
				defer f.close()
				p := plan(t, "10/second", sluice.FixedWindow)
				take := func(process int, cost int64, fits bool) {
					t.Helper()
					if r, err := f.take(process, "k", p, cost); err != nil || r.Fits != fits {
						t.Errorf("%v: %+v, %v", time.Since(began), r, err)
					}
				}
				sv.slow(there, 0)
				at(began, 910*time.Millisecond)
				take(0, 0, true)
				if there == 0 {
					at(began, 960*time.Millisecond)
				}
				take(0, 10, true)
				at(began, 1020*time.Millisecond)
				sv.slow(0, 1)
				take(0, 10, true)
				take(0, 1, false)
				at(began, 1300*time.Millisecond)
				synctest.Wait()
				if used := sv.used(t, "k", p); used != 10 {
					t.Errorf("%d are counted in the window", used)
				}
				take(1, 1, false)
			})
		})
	}
}

// Of a store that has not answered little is told, so that little is lost: it is asked first.
func TestLittleIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sv := newServer(0, steady(1))
		f := newFleet(1, sv)
		defer f.close()
		began, p := time.Now(), still(t, slow)
		take := func(cost int64) {
			t.Helper()
			if r, err := f.take(0, "k", p, cost); err != nil || !r.Fits {
				t.Fatal(r, err)
			}
		}
		take(1)
		at(began, 150*time.Millisecond)
		sv.become(lost)
		take(2) // told at 200, and lost
		at(began, 300*time.Millisecond)
		take(4)
		at(began, 4*time.Second)
		sv.become(well)
		at(began, 6*time.Second)
		synctest.Wait()
		if used := sv.used(t, "k", p); used != 5 || sv.lost != 2 {
			t.Errorf("%d are counted, and %d were lost, want 5 and 2", used, sv.lost)
		}
	})
}
