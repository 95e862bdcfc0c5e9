package storetest

import (
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluicehq/sluice"
)

const callers = 16

// together calls f once from each of 16 goroutines, and waits for all of them.
func together(f func(caller int)) {
	var group sync.WaitGroup
	for i := range callers {
		group.Go(func() { f(i) })
	}
	group.Wait()
}

func testConcurrentLayers(t *testing.T, s takes) {
	each(t, still(300), func(t *testing.T, p *sluice.Plan) {
		s := takes{t, s.store}
		global := sluice.Charge{Key: t.Name() + "/global", Plan: p, Cost: 1}
		user := func(n int) sluice.Charge {
			l := p.Limit
			l.Count, l.Burst = 20, min(l.Burst, 20)
			return sluice.Charge{Key: fmt.Sprintf("%s/user/%d", t.Name(), n), Plan: plan(t, l), Cost: 1}
		}
		tenant := func(n int) sluice.Charge {
			l := p.Limit
			l.Count, l.Burst = 180, min(l.Burst, 180)
			return sluice.Charge{Key: fmt.Sprintf("%s/tenant/%d", t.Name(), n), Plan: plan(t, l), Cost: 2}
		}
		var users [callers]atomic.Int64
		var tenants [3]atomic.Int64
		var kept sync.Map // by key: the turns in queues that denied Takes keep
		keep := func(c sluice.Charge, r sluice.Receipt) {
			if c.Plan.Limit.Algorithm == sluice.LeakyBucket && r.Prev > 0 {
				n, _ := kept.LoadOrStore(c.Key, new(atomic.Int64))
				n.(*atomic.Int64).Add(c.Cost)
			}
		}
		turns := func(c sluice.Charge) int64 {
			if n, known := kept.Load(c.Key); known {
				return n.(*atomic.Int64).Load()
			}
			return 0
		}
		together(func(caller int) {
			for range 40 {
				// The order of the charges differs between callers, to find deadlocks.
				charges := []sluice.Charge{global, user(caller), tenant(caller % 3)}
				if caller%2 == 0 {
					charges[0], charges[2] = charges[2], charges[0]
				}
				receipts := make([]sluice.Receipt, 3)
				if err := s.store.Take(t.Context(), charges, receipts); err != nil {
					t.Error(err)
					return
				}
				if sluice.Admitted(charges, receipts) {
					users[caller].Add(1)
					tenants[caller%3].Add(2)
					continue
				}
				for i := range charges {
					keep(charges[i], receipts[i])
				}
			}
		})
		var total, unused int64
		for i := range users {
			n := users[i].Load()
			total += n
			expectUsed(t, s, user(i), n+turns(user(i)))
			unused += turns(user(i))
		}
		for i := range tenants {
			expectUsed(t, s, tenant(i), tenants[i].Load()+turns(tenant(i)))
			unused += turns(tenant(i))
		}
		expectUsed(t, s, global, total+turns(global))
		// The tightest layer has three tenants with 90 takes each. All of these are used up.
		if unused += turns(global); total > 270 || total < 270-unused {
			t.Errorf("%d takes were admitted, want 270, less at most %d for turns that denied takes keep", total, unused)
		}
	})
}

func testConcurrentTotal(t *testing.T, s takes) {
	each(t, still(500), func(t *testing.T, p *sluice.Plan) {
		s := takes{t, s.store}
		var total atomic.Int64
		together(func(caller int) {
			cost := int64(caller%3 + 1)
			for range 60 {
				if s.one(t.Name(), p, cost).Allowed {
					total.Add(cost)
				}
			}
		})
		// All requests together are for 1,860 units. Requests for single units use up the last of the 500.
		if n := total.Load(); n != 500 || s.used(t.Name(), p) != n {
			t.Errorf("%d units were admitted and %d are used, want 500", n, s.used(t.Name(), p))
		}
	})
}

// testRate lets a limit refill while many callers charge more than it allows. If a store reads the clock before it
// has locked the state, a decision can use an earlier time than the decision before it; then too many units pass.
func testRate(t *testing.T, s takes) {
	each(t, sluice.Limit{Count: 20, Period: time.Millisecond}, func(t *testing.T, p *sluice.Plan) {
		s := takes{t, s.store}
		var mu sync.Mutex
		var admitted []int64
		together(func(int) {
			for range 500 {
				charge := sluice.Charge{Key: t.Name(), Plan: p, Cost: 1}
				if receipts, ok := s.all(charge); ok {
					mu.Lock()
					admitted = append(admitted, receipts[0].Now)
					mu.Unlock()
				}
			}
		})
		slices.Sort(admitted)
		if len(admitted) < 20 {
			t.Fatalf("%d units were admitted, want at least 20", len(admitted))
		}
		if problem := tooMany(p.Limit, admitted); problem != "" {
			t.Errorf("%s; does the store read the clock before it locks the state?", problem)
		}
	})
}

// tooMany returns a message if more units were admitted than the limit allows. The times of the admitted units are in
// µs, in ascending order.
func tooMany(l sluice.Limit, admitted []int64) string {
	period := l.Period.Microseconds()
	first, lowest := 0, int64(math.MaxInt64)
	for i, now := range admitted {
		switch l.Algorithm {
		case sluice.TokenBucket, sluice.LeakyBucket, sluice.GCRA:
			// For all units a and b: b-a+1 <= Burst + (time of b - time of a)·Count/Period.
			lowest = min(lowest, int64(i)*period-now*l.Count)
			if int64(i+1)*period-now*l.Count-lowest > l.Burst*period {
				return fmt.Sprintf("unit %d, %d µs after the first, is above the rate", i+1, now-admitted[0])
			}
			continue
		case sluice.SlidingWindowLog, sluice.SlidingWindowLogExact:
			for admitted[first] <= now-period {
				first++
			}
		default:
			for admitted[first]/period < now/period {
				first++
			}
		}
		if n := i - first + 1; int64(n) > l.Count {
			return fmt.Sprintf("%d units passed in %d µs", n, now-admitted[first])
		}
	}
	return ""
}
