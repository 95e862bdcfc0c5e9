package failover_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/failover"
)

// What was consumed is written back: all of it, but not more than a burst, and not what
// has come back by itself since.
func TestWriteBack(t *testing.T) {
	for _, a := range sluice.Algorithms() {
		for _, on := range []sluice.OnError{sluice.Local, sluice.Allow} {
			t.Run(fmt.Sprint(a, " ", on), func(t *testing.T) {
				bubble(t, failover.Config{}, func(t *testing.T, sv *server, s *failover.Store) {
					p := plan(t, "100/hour", a)
					if a == sluice.LeakyBucket {
						p = plan(t, "100/hour burst 100", a)
					}
					short := plan(t, "10/second", a)
					time.Sleep(time.Hour - time.Duration(time.Now().UnixNano())%time.Hour)
					for range 20 {
						take(t, s, "before", p, on)
					}
					cut(t, sv, s, refused)
					for range 10 {
						take(t, s, "before", p, on)
						take(t, s, "short", short, on)
					}
					for range 150 {
						take(t, s, "much", p, on)
					}
					charge(t, s, sluice.Charge{Key: "back", Plan: p, Cost: 9, OnError: on})
					charge(t, s, sluice.Charge{Key: "back", Plan: p, Cost: -5, OnError: on})
					charge(t, s, sluice.Charge{Key: "peeked", Plan: p, OnError: on})
					time.Sleep(3 * time.Second)
					calls := sv.calls.Load()
					mend(t, sv, s)
					if n := sv.calls.Load() - calls; n != 3 {
						t.Errorf("%d calls to write three keys back", n)
					}
					if n := s.Status().WrittenBack; n != 3 {
						t.Errorf("%d keys written back, want 3", n)
					}
					for key, want := range map[string]int64{"before": 30, "much": 100, "back": 4, "peeked": 0} {
						if n := sv.used(t, key, p); n != want {
							t.Errorf("%s: %d units are used, want %d", key, n, want)
						}
					}
					if n := sv.used(t, "short", short); n != 0 {
						t.Errorf("%d units were written back whose time has passed", n)
					}
					if r := take(t, s, "much", p, on); r.Fits || r.Origin.Degraded() {
						t.Errorf("after the outage: %+v", r)
					}
				})
			})
		}
	}
}

// A debt that does not fit beside what others have used is written as far as it does.
func TestWriteBackWhatFits(t *testing.T) {
	bubble(t, failover.Config{}, func(t *testing.T, sv *server, s *failover.Store) {
		p := plan(t, "100/day", sluice.FixedWindow)
		cut(t, sv, s, refused)
		for range 60 {
			take(t, s, "k", p, sluice.Local)
		}
		var r [1]sluice.Receipt
		if err := sv.Store.Take(t.Context(), []sluice.Charge{{Key: "k", Plan: p, Cost: 70}}, r[:]); err != nil || !r[0].Fits {
			t.Fatal(err, r)
		}
		mend(t, sv, s)
		if n := sv.used(t, "k", p); n != 100 {
			t.Errorf("%d units are used, want all 100", n)
		}
	})
}

// At most 500 keys a second, however many there are; and all of them in the end.
func TestWriteBackRate(t *testing.T) {
	bubble(t, failover.Config{}, func(t *testing.T, sv *server, s *failover.Store) {
		const keys = 3000
		p := plan(t, "10/day", sluice.FixedWindow)
		cut(t, sv, s, refused)
		for i := range keys {
			take(t, s, fmt.Sprint("k", i), p, sluice.Local)
		}
		var mu sync.Mutex
		var written []time.Time
		sv.set(func(_ context.Context, charges []sluice.Charge, take func() error) error {
			mu.Lock()
			defer mu.Unlock()
			for _, c := range charges {
				if c.Plan == p {
					written = append(written, time.Now())
				}
			}
			return take()
		})
		for range 1000 {
			if s.Status().Owing == 0 {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(time.Second)
		if len(written) != keys {
			t.Fatalf("%d keys were written, want %d", len(written), keys)
		}
		first := 0
		for i, at := range written {
			for at.Sub(written[first]) >= time.Second {
				first++
			}
			if n := i - first + 1; n > 500 {
				t.Fatalf("%d keys were written within a second", n)
			}
		}
		if took := written[keys-1].Sub(written[0]); took > 8*time.Second {
			t.Errorf("it took %v", took)
		}
		for i := range keys {
			if n := sv.used(t, fmt.Sprint("k", i), p); n != 1 {
				t.Fatalf("key %d: %d units", i, n)
			}
		}
	})
}

// What may have been charged is not charged again: not the decisions whose answer was
// lost, nor a debt.
func TestWriteBackOnce(t *testing.T) {
	bubble(t, failover.Config{}, func(t *testing.T, sv *server, s *failover.Store) {
		p := plan(t, "1000/day", sluice.FixedWindow)
		// The store freezes after it has charged: the first wave is in it.
		sv.set(func(ctx context.Context, _ []sluice.Charge, take func() error) error {
			err := take()
			if err == nil {
				<-ctx.Done()
				err = ctx.Err()
			}
			return err
		})
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() { take(t, s, "k", p, sluice.Local) })
		}
		wg.Wait()
		if !s.Status().Degraded() {
			t.Fatal("the circuit is closed after 100 lost answers")
		}
		for range 50 {
			take(t, s, "k", p, sluice.Local)
		}
		// On return the answer to the debt is lost, too.
		var lost atomic.Bool
		sv.set(func(ctx context.Context, charges []sluice.Charge, take func() error) error {
			err := take()
			if charges[0].Plan == p && lost.CompareAndSwap(false, true) {
				<-ctx.Done()
				return ctx.Err()
			}
			return err
		})
		until(t, 10*time.Second, "settles", func() bool { st := s.Status(); return !st.Degraded() && st.Owing == 0 })
		time.Sleep(3 * time.Second)
		if n := sv.used(t, "k", p); n != 150 || !lost.Load() {
			t.Errorf("%d units are charged, want 150", n)
		}
	})
}

// A debt that certainly did not arrive is sent again.
func TestWriteBackAgain(t *testing.T) {
	bubble(t, failover.Config{}, func(t *testing.T, sv *server, s *failover.Store) {
		p := plan(t, "1000/day", sluice.FixedWindow)
		cut(t, sv, s, refused)
		for range 50 {
			take(t, s, "k", p, sluice.Local)
		}
		var tries atomic.Int64
		sv.set(func(ctx context.Context, charges []sluice.Charge, take func() error) error {
			if charges[0].Plan == p && tries.Load() < 3 {
				tries.Add(1)
				return notSent{}
			}
			return take()
		})
		until(t, 10*time.Second, "settles", func() bool { return s.Status().WrittenBack == 1 })
		if n := sv.used(t, "k", p); n != 50 || tries.Load() != 3 {
			t.Errorf("%d units are charged after %d tries, want 50", n, tries.Load())
		}
	})
}

// A key that is used up locally stays so: until its debt is written, and in the next
// outage, even if the shared store was never asked in between.
func TestUsedUpStaysSo(t *testing.T) {
	bubble(t, failover.Config{}, func(t *testing.T, sv *server, s *failover.Store) {
		p := plan(t, "100/day", sluice.FixedWindow)
		names := make([]string, 200) // which takes four turns to write back
		for i := range names {
			names[i] = fmt.Sprint("k", i)
		}
		ask := func(when string) {
			t.Helper()
			for _, k := range names {
				if r := take(t, s, k, p, sluice.Local); r.Fits {
					t.Fatalf("%s: %s is admitted again: %+v", when, k, r)
				}
			}
		}
		cut(t, sv, s, refused)
		for _, k := range names {
			charge(t, s, sluice.Charge{Key: k, Plan: p, Cost: 100, OnError: sluice.Local})
		}
		ask("away")
		sv.set(nil)
		for s.Status().Degraded() {
			time.Sleep(time.Millisecond)
		}
		for range 300 {
			ask("on return")
			time.Sleep(time.Millisecond)
		}
		mend(t, sv, s)
		cut(t, sv, s, refused)
		ask("away again")
	})
}

// Many callers, and an outage that comes and goes: in the end the shared store has counted
// what was admitted, whoever has decided. The limit is reached, and what an outage admits
// beyond it is no more than the decisions under way when it began.
func TestOutagesUnderLoad(t *testing.T) {
	bubble(t, failover.Config{}, func(t *testing.T, sv *server, s *failover.Store) {
		const limit, callers = 20000, 8
		p := plan(t, fmt.Sprintf("%d/day", limit), sluice.FixedWindow)
		var admitted [4]atomic.Int64
		stop := make(chan struct{})
		var wg sync.WaitGroup
		for caller := range callers {
			wg.Go(func() {
				for n := caller; ; n++ {
					select {
					case <-stop:
						return
					case <-time.After(time.Millisecond):
					}
					k := n % len(admitted)
					if take(t, s, fmt.Sprint("k", k), p, sluice.Local).Fits {
						admitted[k].Add(1)
					}
				}
			})
		}
		for range 10 {
			time.Sleep(700 * time.Millisecond)
			sv.set(unsent)
			time.Sleep(700 * time.Millisecond)
			sv.set(nil)
		}
		close(stop)
		wg.Wait()
		mend(t, sv, s)
		for k := range admitted {
			n, used := admitted[k].Load(), sv.used(t, fmt.Sprint("k", k), p)
			if used != min(n, limit) || n < limit || n > limit+callers {
				t.Errorf("k%d: %d admitted, %d counted", k, n, used)
			}
		}
	})
}

// outage is a run of some instances with keys under load, and an outage in the middle.
type outage struct {
	limit    string
	fault    fault
	keys     int
	interval time.Duration // between two requests of a key to an instance
	length   time.Duration
	before   []int // which instances have requests before, during and after the outage
	during   []int
	after    []int
}

// instances returns how many there are: the highest number that occurs.
func (o outage) instances() int {
	return 1 + slices.Max(slices.Concat(o.before, o.during, o.after))
}

// excess runs it and returns the most that any key was admitted beyond what one exact
// limiter would have: its burst and its rate from the first request to the last.
func (o outage) excess(t *testing.T, p *sluice.Plan) int64 {
	sv := newServer()
	stores := make([]*failover.Store, o.instances())
	for i := range stores {
		stores[i] = failover.New(prompt{sv}, failover.Config{Instances: len(stores), Logger: quiet()})
		defer stores[i].Close()
	}
	admitted := make([]int64, o.keys)
	names := make([]string, o.keys)
	for k := range names {
		names[k] = fmt.Sprint("key", k)
	}
	if p.Kernel != sluice.Meter { // all of it in one window
		time.Sleep(p.Limit.Period - time.Duration(time.Now().UnixNano())%p.Limit.Period)
	}
	start := time.Now()
	load := func(length time.Duration, instances []int) {
		for end := time.Now().Add(length); time.Now().Before(end); time.Sleep(o.interval) {
			var wg sync.WaitGroup
			for _, i := range instances {
				wg.Go(func() {
					// With a frozen store a caller waits, and its next request comes all
					// the same: here in the next round.
					for k := range names {
						var r [1]sluice.Receipt
						charges := []sluice.Charge{{Key: names[k], Plan: p, Cost: 1, OnError: sluice.Local}}
						if err := stores[i].Take(t.Context(), charges, r[:]); err != nil {
							t.Error(err)
						}
						if r[0].Fits {
							mu.Lock()
							admitted[k]++
							mu.Unlock()
						}
					}
				})
			}
			wg.Wait()
		}
	}
	load(3*time.Second, o.before)
	sv.set(o.fault)
	load(o.length, o.during)
	sv.set(nil)
	load(6*time.Second, o.after)
	for i, s := range stores {
		if st := s.Status(); st.Local == 0 && slices.Contains(o.during, i) || st.Degraded() || st.Owing > 0 {
			t.Errorf("instance %d: %+v", i, st)
		}
	}
	elapsed := time.Since(start)
	exact := p.Capacity + int64(elapsed)*p.Limit.Count/int64(p.Limit.Period)
	if p.Kernel != sluice.Meter {
		exact = p.Capacity * (int64(elapsed/p.Limit.Period) + 1)
	}
	var worst int64
	for _, n := range admitted {
		if n < exact/2 {
			t.Errorf("a key under load was admitted %d times, an exact limiter would have %d", n, exact)
		}
		worst = max(worst, n-exact)
	}
	t.Logf("%d admitted at the most, %d by an exact limiter: %d too many, a burst is %d", worst+exact, exact, worst, p.Capacity)
	return worst
}

var mu sync.Mutex

// Whatever the two instances do, a key is admitted at most one burst too much.
func TestOverAdmission(t *testing.T) {
	both := []int{0, 1}
	const every = 10 * time.Millisecond
	for name, o := range map[string]outage{
		"both":          {"100/second burst 100", refused, 5, every, 5 * time.Second, both, both, both},
		"frozen":        {"100/second burst 100", frozen, 1, every, 5 * time.Second, both, both, both},
		"unseen":        {"10/second burst 200", refused, 5, every, 5 * time.Second, []int{0}, []int{1}, both},
		"back":          {"10/second burst 200", refused, 5, every, 5 * time.Second, []int{0}, both, []int{0}},
		"long":          {"10/second burst 200", unsent, 5, every, 15 * time.Second, both, both, both},
		"short":         {"20/second burst 100", refused, 5, every, 700 * time.Millisecond, both, both, both},
		"many keys":     {"5/second burst 50", refused, 300, 100 * time.Millisecond, 5 * time.Second, both, both, both},
		"window":        {"1000/minute", refused, 5, every, 5 * time.Second, both, both, both},
		"unseen window": {"500/minute", refused, 5, every, 5 * time.Second, []int{0}, []int{1}, both},
		"frozen window": {"1000/minute", frozen, 1, every, 5 * time.Second, both, both, both},
	} {
		algorithms := []sluice.Algorithm{sluice.TokenBucket}
		if !strings.Contains(o.limit, "burst") {
			algorithms = []sluice.Algorithm{sluice.FixedWindow, sluice.SlidingWindowLog}
		}
		for _, a := range algorithms {
			t.Run(fmt.Sprint(name, " ", a), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					p := plan(t, o.limit, a)
					if over := o.excess(t, p); over > p.Capacity {
						t.Errorf("%d units too many, more than a burst", over)
					}
				})
			})
		}
	}
}

// Any number of instances, whichever of them see a key before, in and after an outage,
// admit no more than the documented formula says.
func TestOverAdmissionFormula(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	kinds := []sluice.Algorithm{sluice.TokenBucket, sluice.FixedWindow, sluice.SlidingWindowLog, sluice.SlidingWindowCounter}
	worst := 0.0
	for i := range 16 {
		instances := 2 + i%4
		some := func() []int { return rng.Perm(instances)[:1+rng.IntN(instances)] }
		a, rate, burst := kinds[rng.IntN(len(kinds))], float64(10+rng.IntN(50)), float64(50+rng.IntN(200))
		limit := fmt.Sprintf("%v/second burst %v", rate, burst)
		if a != sluice.TokenBucket {
			limit, rate = fmt.Sprintf("%v/minute", burst), burst/60
		}
		o := outage{
			limit: limit, fault: []fault{refused, unsent, frozen}[rng.IntN(3)], keys: 1 + rng.IntN(3),
			interval: 10 * time.Millisecond, length: time.Duration(200+rng.IntN(12000)) * time.Millisecond,
			before: append(some(), instances-1), during: some(), after: some(),
		}
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				over := float64(o.excess(t, plan(t, o.limit, a)))
				others := 1 - 1/float64(instances)
				// Half a second, and a unit of each instance under way.
				most := others*burst + others*min(burst, rate*o.length.Seconds()) + rate/2 + float64(instances)
				if over > most {
					t.Errorf("%v %+v: %v units too many, the formula says %.1f", a, o, over, most)
				}
				worst = max(worst, over/burst)
			})
		})
	}
	t.Logf("at the worst %.2f bursts too many", worst)
}

// A key whose decisions are asked in vain, of a store that answers others, has one share
// and not a new one each time that the others are seen to succeed.
func TestUnansweredKey(t *testing.T) {
	bubble(t, failover.Config{}, func(t *testing.T, sv *server, s *failover.Store) {
		p := plan(t, "10/hour", sluice.TokenBucket)
		sv.set(func(ctx context.Context, charges []sluice.Charge, take func() error) error {
			if charges[0].Key == "slow" {
				return frozen(ctx, nil, nil)
			}
			return take()
		})
		ask := func(n int) (passed int) {
			for range n {
				for i := range 5 {
					take(t, s, fmt.Sprint("fast", i), p, sluice.Local)
				}
				if take(t, s, "slow", p, sluice.Local).Fits {
					passed++
				}
				time.Sleep(200 * time.Millisecond)
			}
			return passed
		}
		if n := ask(100); n != 10 {
			t.Errorf("%d of 100 were admitted in vain, want 10: %+v", n, s.Status())
		}
		// What time gives back is the share's, too: one unit in six minutes.
		time.Sleep(30 * time.Minute)
		if n := ask(100); n != 5 {
			t.Errorf("%d of 100 were admitted half an hour later, want 5: %+v", n, s.Status())
		}
		// An answer ends it.
		sv.set(nil)
		if n := ask(100); n != 10 {
			t.Errorf("%d of 100 were admitted by the store, want 10", n)
		}
		if n := sv.used(t, "slow", p); n != 10 {
			t.Errorf("%d units are used, want 10", n)
		}
	})
}

// A part of the store that hangs on debts takes no others with it, nor holds them up.
func TestWriteBackApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sh := &shards{prompt: prompt{newServer()}}
		s := failover.New(sh, failover.Config{Logger: quiet()})
		defer s.Close()
		const keys = 100
		p := plan(t, "10/day", sluice.FixedWindow)
		sh.set(unsent)
		until(t, 10*time.Second, "both are away", func() bool {
			take(t, s, "1", p, sluice.Deny)
			take(t, s, "2", p, sluice.Deny)
			st := s.Status()
			return len(st.Shards) == 2 && st.Shards[0].Away && st.Shards[1].Away
		})
		for i := range keys {
			for range 5 {
				take(t, s, fmt.Sprint("1-", i), p, sluice.Local)
				take(t, s, fmt.Sprint("2-", i), p, sluice.Local)
			}
		}
		// The first part is back, slowly. The second answers nothing but probes.
		sh.set(func(ctx context.Context, charges []sluice.Charge, take func() error) error {
			if charges[0].Plan == p && charges[len(charges)-1].Key[0] == '2' {
				return frozen(ctx, nil, nil)
			}
			if charges[0].Plan == p {
				time.Sleep(time.Duration(len(charges)) * 40 * time.Millisecond)
			}
			return take()
		})
		until(t, 10*time.Second, "both are back", func() bool { return !s.Status().Degraded() })
		written := func() (n int) {
			for i := range keys {
				if sh.used(t, fmt.Sprint("1-", i), p) == 5 {
					n++
				}
			}
			return n
		}
		until(t, time.Second, "all of the first part are written", func() bool { return written() == keys })
		until(t, 3*time.Second, "none is left", func() bool { return s.Status().Owing == 0 })
		if n := s.Status().WrittenBack; n != keys {
			t.Errorf("%d keys were written back, want %d", n, keys)
		}
	})
}

// A store that hangs again as soon as debts are written takes few of them with it: the
// others are written when it is back.
func TestWriteBackIntoTheUnknown(t *testing.T) {
	bubble(t, failover.Config{}, func(t *testing.T, sv *server, s *failover.Store) {
		const keys = 400
		p := plan(t, "10/day", sluice.FixedWindow)
		cut(t, sv, s, unsent)
		for i := range keys {
			take(t, s, fmt.Sprint(i), p, sluice.Local)
		}
		var hangs atomic.Bool
		sv.set(func(ctx context.Context, charges []sluice.Charge, take func() error) error {
			if charges[0].Plan == p {
				hangs.Store(true)
			}
			if hangs.Load() {
				return frozen(ctx, nil, nil)
			}
			return take()
		})
		until(t, 10*time.Second, "is away again", func() bool { return hangs.Load() && s.Status().Degraded() })
		mend(t, sv, s)
		if n := s.Status().WrittenBack; n < keys-150 {
			t.Errorf("%d of %d debts were written", n, keys)
		}
	})
}
