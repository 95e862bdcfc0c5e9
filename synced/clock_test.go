package synced_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/redistest"
	"github.com/sluicehq/sluice/internal/seed"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/synced"
)

// stepped are buckets, and how far the clock of their store steps back.
var stepped = []struct {
	limit string
	by    time.Duration
}{
	{"30/5s", time.Minute}, {"100/2s burst 20", time.Minute}, {"600/hour", 24 * time.Hour},
}

// longest returns the longest time that a bucket may take to drain that so many instances share: what
// is above the burst is what each of the others may have let pass unheard.
func longest(p *sluice.Plan, instances int) time.Duration {
	units := p.Capacity + synced.Excess(p, instances)
	return time.Duration(float64(units)/float64(p.Limit.Count)*float64(p.Limit.Period)) + time.Second
}

// The clock of a real server steps back, and no key waits longer than for what its instances can have
// let pass.
func TestRedisClockStepsBack(t *testing.T) {
	t.Parallel()
	for _, c := range stepped {
		t.Run(c.limit, func(t *testing.T) {
			t.Parallel()
			server := redistest.StartMovable(t)
			p := plan(t, c.limit, sluice.TokenBucket)
			one, other := start(t, server), start(t, server)
			redistest.Eventually(t, "the instances know of each other", func() bool {
				return one.counts.Instances() == 2 && other.counts.Instances() == 2
			})
			// A state that is in the store, and has not drained yet, when the clock is set.
			redistest.Eventually(t, "some is told", func() bool {
				one.take(t, "k", p, p.Capacity/2)
				return server.Do("KEYS", "*:k") != ""
			})
			server.SetClock(-c.by)
			redistest.Eventually(t, "the step is heard of", func() bool {
				return time.Since(time.UnixMicro(one.take(t, "k", p, 0).Now)) > c.by/2
			})
			for _, process := range []*process{one, other} {
				if d := p.Decide(0, process.take(t, "k", p, 0)); d.RetryAfter > longest(p, 2) || d.ResetAfter > longest(p, 2) {
					t.Errorf("the clock has stepped back by %v: %+v, want a wait of at most %v", c.by, d, longest(p, 2))
				}
			}
		})
	}
}

// settable is a store whose clock a test sets back.
type settable struct {
	*memory.Store
	behind atomic.Int64 // µs
}

func (s *settable) Take(ctx context.Context, charges []sluice.Charge, receipts []sluice.Receipt) error {
	return s.TakeAt(ctx, time.Now().UnixMicro()-s.behind.Load(), charges, receipts)
}

// Whenever and however far the clock of the store steps back, no more is above the limit than is said,
// and no key waits longer than for what its instances can have let pass.
func TestClockStepsBack(t *testing.T) {
	base := seed.Of(t)
	for _, m := range modelled[:3] {
		for _, n := range []int{1, 2, 4} {
			t.Run(fmt.Sprintf("%s by %d", m.limit, n), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					p := plan(t, m.limit, m.by)
					sv := newServer(10*time.Millisecond, rand.New(rand.NewPCG(base, uint64(n))))
					clock := &settable{Store: memory.New()}
					sv.Store = clock
					f := newFleet(n, sv)
					h := &history{}
					until, wait := time.Now().Add(30*time.Second), longest(p, n)
					var all sync.WaitGroup
					for i := range n {
						own := rand.New(rand.NewPCG(base<<8+uint64(n), uint64(i)))
						all.Go(func() {
							time.Sleep(3 * time.Second) // until it has heard of the others
							for time.Now().Before(until) {
								r, err := f.take(i, "k", p, 1)
								if d := p.Decide(1, r); err == nil && (d.RetryAfter > wait || d.ResetAfter > wait) {
									t.Errorf("%+v: want a wait of at most %v", d, wait)
									return
								}
								if err == nil && r.Fits {
									h.add(admission{i, time.Now().UnixMicro(), r.Now, 1})
								}
								time.Sleep(time.Duration(own.Int64N(int64(p.Limit.Period) * 2 / p.Limit.Count)))
							}
						})
					}
					steps := steady(base<<8 + uint64(n))
					for time.Now().Before(until) {
						time.Sleep(time.Duration(steps.Int64N(int64(6 * time.Second))))
						clock.behind.Add(steps.Int64N(steps.Int64N(86_400_000_000) + 1))
					}
					all.Wait()
					f.close()
					if most, _ := h.excess(p, 0); most > synced.Excess(p, n) || len(h.all) < 20 {
						t.Errorf("%d let pass, %d above the limit, where %d are said", len(h.all), most, synced.Excess(p, n))
					}
				})
			})
		}
	}
}
