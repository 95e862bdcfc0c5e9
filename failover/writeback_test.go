package failover_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/failover"
	"github.com/sluicehq/sluice/internal/faultstore"
	"github.com/sluicehq/sluice/kernel"
	"github.com/sluicehq/sluice/memory"
)

// After several outages under load, the shared store has counted the admitted units. The limit is reached, and exceeded
// at most by the decisions that are under way when an outage starts.
func TestOutagesUnderLoad(t *testing.T) {
	t.Parallel()
	bubble(t, failover.Config{}, func(t *testing.T, sv *faultstore.Store, s *failover.Store) {
		const limit, callers = 5000, 2
		p := plan(t, fmt.Sprintf("%d/day", limit), sluice.FixedWindow)
		var fit [4]atomic.Int64
		var ends []func()
		for caller := range callers {
			var n atomic.Int64
			n.Store(int64(caller))
			ends = append(ends, steadily(time.Millisecond, func() {
				k := n.Add(1) % int64(len(fit))
				fit[k].Add(admitted(t, s, 1, fmt.Sprint("k", k), p))
			}))
		}
		for range 8 {
			time.Sleep(700 * time.Millisecond)
			sv.Set(faultstore.Unsent)
			time.Sleep(700 * time.Millisecond)
			sv.Set(nil)
		}
		for _, end := range ends {
			end()
		}
		mend(t, sv, s)
		for k := range fit {
			n := fit[k].Load()
			if n < limit || n > limit+callers {
				t.Errorf("k%d: %d admitted of %d", k, n, limit)
			}
			uses(t, sv, p, map[string]int64{fmt.Sprint("k", k): min(n, limit)})
		}
	})
}

// outage describes a run of some instances with keys under load, and an outage in the middle.
type outage struct {
	limit    string
	fault    faultstore.Fault
	keys     int
	interval time.Duration // between two requests of a key to an instance
	length   time.Duration
	before   []int // instances that have requests before, during and after the outage
	during   []int
	after    []int
}

// excess runs the outage. It returns the largest number of units of a key that were admitted above those of an exact
// limiter: its burst, and its rate from the first request to the last.
func (o outage) excess(t *testing.T, p *sluice.Plan) int64 {
	sv := faultstore.New(memory.New())
	stores := make([]*failover.Store, 1+slices.Max(slices.Concat(o.before, o.during, o.after)))
	for i := range stores {
		stores[i] = open(sv, failover.Config{Instances: len(stores)})
		defer stores[i].Close()
	}
	fit := make([]atomic.Int64, o.keys)
	start := time.Now()
	load := func(length time.Duration, instances []int) {
		for end := time.Now().Add(length); time.Now().Before(end); time.Sleep(o.interval) {
			var wg sync.WaitGroup
			for _, i := range instances {
				wg.Go(func() {
					// With a frozen store a caller waits, and makes its next request in the next round.
					for k := range fit {
						fit[k].Add(admitted(t, stores[i], 1, fmt.Sprint("key", k), p))
					}
				})
			}
			wg.Wait()
		}
	}
	load(2*time.Second, o.before)
	sv.Set(o.fault)
	load(o.length, o.during)
	sv.Set(nil)
	load(4*time.Second, o.after)
	for i, s := range stores {
		if st := s.Status(); st.Local == 0 && slices.Contains(o.during, i) || st.Degraded() || st.Owing > 0 {
			t.Errorf("instance %d: %+v", i, st)
		}
	}
	elapsed := time.Since(start)
	exact := p.Capacity + int64(elapsed)*p.Limit.Count/int64(p.Limit.Period)
	if p.Kernel != kernel.Meter {
		exact = p.Capacity * (int64(elapsed/p.Limit.Period) + 1)
	}
	var worst int64
	for k := range fit {
		n := fit[k].Load()
		if n < exact/2 {
			t.Errorf("a key under load was admitted %d times, and an exact limiter would admit %d", n, exact)
		}
		worst = max(worst, n-exact)
	}
	return worst
}

// Any number of instances admits no more than the documented formula allows, whichever of them have requests before,
// during and after an outage.
func TestOverAdmissionFormula(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	algorithms := []sluice.Algorithm{sluice.TokenBucket, sluice.FixedWindow, sluice.SlidingWindowLog, sluice.SlidingWindowCounter}
	kinds := []faultstore.Fault{faultstore.Refused, faultstore.Unsent, faultstore.Frozen}
	for i := range 12 {
		instances := 2 + i%4
		some := func() []int { return rng.Perm(instances)[:1+rng.IntN(instances)] }
		a, rate, burst := algorithms[rng.IntN(len(algorithms))], float64(10+rng.IntN(50)), float64(50+rng.IntN(200))
		limit := fmt.Sprintf("%v/second burst %v", rate, burst)
		if a != sluice.TokenBucket {
			limit, rate = fmt.Sprintf("%v/minute", burst), burst/60
		}
		o := outage{
			limit: limit, fault: kinds[rng.IntN(3)], keys: 1 + rng.IntN(3),
			interval: 20 * time.Millisecond, length: time.Duration(200+rng.IntN(12000)) * time.Millisecond,
			before: append(some(), instances-1), during: some(), after: some(),
		}
		synctest.Test(t, func(t *testing.T) {
			over := float64(o.excess(t, plan(t, o.limit, a)))
			others := 1 - 1/float64(instances)
			// The formula, half a second at the rate, and a unit of each instance under way.
			most := others*burst + others*min(burst, rate*o.length.Seconds()) + rate/2 + float64(instances)
			if over > most {
				t.Errorf("%d, %v %+v: %v units too many, the formula gives %.1f", i, a, o, over, most)
			}
		})
	}
}

// A shard that hangs when debts are written does not affect or delay the other shards.
func TestWriteBackOfShards(t *testing.T) {
	t.Parallel()
	bubble(t, failover.Config{}, func(t *testing.T, sv *faultstore.Store, s *failover.Store) {
		const keys = 100
		sv.Split(twoParts)
		p := plan(t, "10/day", sluice.FixedWindow)
		sv.Set(faultstore.Unsent)
		until(t, 10*time.Second, "both shards are unavailable", func() bool {
			take(t, s, "1", p, sluice.Deny)
			take(t, s, "2", p, sluice.Deny)
			st := s.Status()
			return len(st.Shards) == 2 && st.Shards[0].Unavailable && st.Shards[1].Unavailable
		})
		for i := range keys {
			admitted(t, s, 5, fmt.Sprint("1-", i), p)
			admitted(t, s, 5, fmt.Sprint("2-", i), p)
		}
		// The first shard answers again, slowly. The second answers only probes.
		sv.Set(func(ctx context.Context, c faultstore.Call) error {
			if c.Charges[0].Plan != p {
				return c.Take()
			}
			time.Sleep(40 * time.Millisecond)
			return secondFrozen(ctx, c)
		})
		until(t, 10*time.Second, "both shards are available again", func() bool { return !s.Status().Degraded() })
		until(t, time.Second, "the debts of the first shard are written", func() bool { return s.Status().WrittenBack == keys })
		until(t, 3*time.Second, "no debt is left", func() bool { return s.Status().Owing == 0 })
		for i := range keys {
			uses(t, sv, p, map[string]int64{fmt.Sprint("1-", i): 5})
		}
	})
}

// If a store hangs again as soon as debts are written, few debts are lost. The others are written when it answers
// again.
func TestWriteBackIntoTheUnknown(t *testing.T) {
	t.Parallel()
	bubble(t, failover.Config{}, func(t *testing.T, sv *faultstore.Store, s *failover.Store) {
		const keys = 400
		p := plan(t, "10/day", sluice.FixedWindow)
		cut(t, sv, s, faultstore.Unsent)
		for i := range keys {
			take(t, s, fmt.Sprint(i), p, sluice.Local)
		}
		var hangs atomic.Bool
		sv.Set(func(ctx context.Context, c faultstore.Call) error {
			if c.Charges[0].Plan == p {
				hangs.Store(true)
			}
			if hangs.Load() {
				return faultstore.Frozen(ctx, c)
			}
			return c.Take()
		})
		until(t, 10*time.Second, "the store is unavailable again", func() bool { return hangs.Load() && s.Status().Degraded() })
		mend(t, sv, s)
		if n := s.Status().WrittenBack; n < keys-150 {
			t.Errorf("%d of %d debts were written", n, keys)
		}
	})
}
