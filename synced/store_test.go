package synced_test

import (
	"cmp"
	"context"
	"math/rand/v2"
	"regexp"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/failover"
	"github.com/sluicehq/sluice/internal/faultstore"
	"github.com/sluicehq/sluice/internal/seed"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/storetest"
	"github.com/sluicehq/sluice/synced"
)

var _ failover.SharedEach = (*synced.Store)(nil)

// alone is one process with its own shared store. It replaces the consistency of all charges.
type alone struct {
	*synced.Store
	consistency sluice.Consistency
}

func (a alone) Take(ctx context.Context, charges []sluice.Charge, receipts []sluice.Receipt) error {
	charges = append([]sluice.Charge(nil), charges...)
	for i := range charges {
		charges[i].Consistency = a.consistency
	}
	return a.TakeWithin(ctx, time.Minute, charges, receipts)
}

// differs matches tests that a synced store need not pass: a key with a penalty is counted strictly while the penalty
// lasts; some limits have numbers that are too large for units above the limit; and if callers take the last free units
// at the same time, one may be denied for a moment while a call is running. TestBound and TestToldOnce test the
// guarantees for these.
var differs = regexp.MustCompile("/(penalty_of_others|many_at_once|fingerprints|bursts_of_one_rate|concurrent_layers|concurrent_total)$")

// With a single process, the store keeps the contract of all stores, with strict and with synced charges.
func TestConformance(t *testing.T) {
	t.Parallel()
	for _, c := range []sluice.Consistency{sluice.Strict, sluice.Synced} {
		t.Run(c.String(), func(t *testing.T) {
			t.Parallel()
			storetest.Run(t, func(t *testing.T) sluice.Store {
				s := synced.New(failover.Bulkhead(memory.New(), 0))
				t.Cleanup(s.Close)
				if differs.MatchString(t.Name()) {
					return alone{s, sluice.Strict}
				}
				return alone{s, c}
			})
		})
	}
}

// Each unit is reported to the shared store once, even if calls fail. Units of a call without an answer may be missing:
// they are not reported again, because the store may have counted them.
func TestToldOnce(t *testing.T) {
	t.Parallel()
	base := seed.Of(t)
	for n := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			sv := newServer(memory.New(), 20*time.Millisecond, steady(base<<8+n))
			f := newFleet(3, sv)
			p := plan(t, "1000/day", sluice.FixedWindow)
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
						r, err := f.try(i, p, cost)
						mu.Lock()
						if err == nil && r.Fits {
							passed += cost
						}
						mu.Unlock()
						if err != nil && !notCharged(err) {
							t.Errorf("a Take has failed with an error that does not exclude a charge: %v", err)
						}
						time.Sleep(time.Duration(own.Int64N(int64(300 * time.Millisecond))))
					}
				})
			}
			all.Wait()
			f.close()
			f.close() // a second close does nothing
			arrived, lost := sv.received()
			if used := sv.Used(t, "k", p); used != passed-lost || used != arrived || passed < 50 {
				t.Errorf("run %d: %d units were admitted, %d were lost, %d have arrived, and %d are counted", n, passed, lost, arrived, used)
			}
		})
	}
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
}

func TestHistories(t *testing.T) {
	t.Parallel()
	fresh := func() faultstore.TakerAt { return memory.New() }
	faultstore.Play(t, "testdata/histories.txt", fresh, func(t *testing.T, sv *faultstore.Store, settings map[string]string) faultstore.Subject {
		processes, _ := strconv.Atoi(cmp.Or(settings["processes"], "1"))
		f := newFleet(processes, sv)
		var takes []func(time.Duration, []sluice.Charge, []sluice.Receipt) error
		for _, s := range f.stores {
			takes = append(takes, func(wait time.Duration, charges []sluice.Charge, receipts []sluice.Receipt) error {
				return s.TakeWithin(context.Background(), min(wait, 50*time.Millisecond), charges, receipts)
			})
		}
		status := func() map[string]int { return map[string]int{"keys": f.stores[0].Keys()} }
		return faultstore.Subject{Takes: takes, Status: status, Close: f.close}
	})
}
