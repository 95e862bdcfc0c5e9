package share_test

import (
	"math"
	"math/rand/v2"
	"sort"
	"testing"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/plantest"
	"github.com/sluicehq/sluice/internal/share"
	"github.com/sluicehq/sluice/kernel"
)

// naiveShare counts by the plan of a share, in which each unit of the limit costs n, and searches for the time at which
// a cost fits.
type naiveShare struct {
	plantest.Bucket
	unit int64
}

func (b *naiveShare) fits(now, cost int64) bool { return b.Ask(now, cost*b.unit).Allowed }

// first returns how long after now the cost fits for the first time, in ticks of the limit.
func (b *naiveShare) first(p *sluice.Plan, now, cost int64) time.Duration {
	tick := now / p.Tick
	n := sort.Search(1<<53/int(p.Tick), func(n int) bool { return b.fits(max(now, (tick+int64(n))*p.Tick), cost) })
	return time.Duration(max(0, (tick+int64(n))*p.Tick-now)) * time.Microsecond
}

// TestShareReceipt checks that the decision from a share's receipt is the one that a search in the share finds.
func TestShareReceipt(t *testing.T) {
	refused, waits := 0, 0
	plantest.Every(t, func(t *testing.T, p *sluice.Plan, rng *rand.Rand) {
		for _, n := range []int64{1, 2, 3, 7} {
			part := share.Of(p, n)
			most := max(1, p.Capacity/n)
			if l := p.Limit; l.Count == 1 && l.Period > 50*365*24*time.Hour && p.Kernel == kernel.Meter && n > 1 {
				continue // n units would take too long to drain for a plan
			}
			if part.Plan.Capacity < n || n > 1 && p.Capacity >= n && part.Plan.Capacity/n != most {
				t.Fatalf("one of %d shares of a limit of %d: the plan has %d", n, p.Capacity, part.Plan.Capacity)
			}
			b := &naiveShare{plantest.Bucket{Plan: part.Plan}, n}
			now := int64(plantest.Start)
			for range 40 {
				now += plantest.Pause(p, rng) / 3
				if now > plantest.Latest {
					break
				}
				cost := 1 + rng.Int64N(most)
				if part.Cost(cost) != cost*n || part.Cost(-cost) != -cost*n {
					t.Fatalf("%d units cost %d", cost, part.Cost(cost))
				}
				fits := b.fits(now, cost)
				wait := b.first(p, now, cost)
				r, _ := b.Receipt(now, part.Cost(cost))
				d := p.Decide(cost, part.Receipt(cost, r))
				if d.Allowed != fits {
					t.Fatalf("one of %d: %d units fit: %v, but the decision is %+v", n, cost, fits, d)
				}
				sliding := p.Limit.Algorithm == sluice.SlidingWindowCounter && n > 1
				if !fits {
					refused++
					if d.RetryAfter != wait && !(sliding && d.RetryAfter > wait) {
						t.Fatalf("one of %d: %d units fit after %v, but RetryAfter is %v", n, cost, wait, d.RetryAfter)
					}
				}
				for _, more := range []int64{p.Capacity + 1, math.MaxInt64} {
					r, _ := b.Receipt(now, part.Cost(more))
					d := p.Decide(more, part.Receipt(more, r))
					if left := d.Remaining; d.Allowed || d.RetryAfter != sluice.Never || left > 0 && !b.fits(now, left) {
						t.Fatalf("one of %d: %d units never fit, but the decision is %+v", n, more, d)
					}
				}
				if p.Limit.Algorithm == sluice.LeakyBucket && n > 1 {
					continue // for an admitted request of a queue, only the delay is exact
				}
				if left := d.Remaining; fits && (left > 0 && !b.fits(now, left) || b.fits(now, left+1) && left < p.Capacity/n) {
					t.Fatalf("one of %d: Remaining is %d", n, left)
				}
				if fits && d.Remaining == 0 {
					waits++
					if wait := b.first(p, now, 1); d.RetryAfter != wait && !(sliding && d.RetryAfter > wait) {
						t.Fatalf("one of %d: a unit fits after %v, but RetryAfter is %v", n, wait, d.RetryAfter)
					}
				}
			}
		}
	})
	if refused < 1000 || waits < 100 {
		t.Errorf("premise: only %d denials and %d waits", refused, waits)
	}
}

// TestShareUsed checks that a share that starts in the state of the whole limit has its fraction of the remaining
// units, and that Ahead returns the units taken since then.
func TestShareUsed(t *testing.T) {
	plantest.Every(t, func(t *testing.T, p *sluice.Plan, rng *rand.Rand) {
		for _, n := range []int64{1, 2, 3, 7} {
			part := share.Of(p, n)
			left := rng.Int64N(p.Capacity + 1)
			if p.Kernel.Log() && part.Plan.Capacity-left > 1<<16 {
				continue // an exact log of so many units takes memory
			}
			b := &naiveShare{plantest.Bucket{Plan: part.Plan}, n}
			if used := part.Used(left); used > 0 {
				b.Take(plantest.Start, used)
			}
			want := left / n
			if p.Capacity < n {
				want = 0
			}
			if rest := b.Ask(plantest.Start, 0).Remaining; p.Kernel != kernel.Meter && part.Plan.Capacity >= n && rest != want*n {
				t.Fatalf("one of %d with %d of %d left: %d remain, want %d", n, left, p.Capacity, rest, want*n)
			}
			if want > 0 && !b.fits(plantest.Start, want) || b.fits(plantest.Start, want+1) {
				t.Fatalf("one of %d with %d of %d left: want exactly %d units to fit", n, left, p.Capacity, want)
			}
			if n > 1 && want > 0 && p.Kernel != kernel.Meter {
				before, _ := b.Receipt(plantest.Start, 0)
				took := 1 + rng.Int64N(want)
				after, _ := b.Receipt(plantest.Start, part.Cost(took))
				if ahead := part.Ahead(after, before); ahead != took {
					t.Fatalf("one of %d: %d units were taken, but Ahead returns %d", n, took, ahead)
				}
			}
		}
	})
}

// TestInFlightShare checks that shares have whole permits, that together they have no more than the limit unless there
// are more instances than permits, and that a share reports its remaining permits.
func TestInFlightShare(t *testing.T) {
	for _, test := range []struct{ places, instances, want int64 }{
		{10, 1, 10}, {10, 2, 5}, {10, 3, 3}, {10, 10, 1}, {10, 11, 1}, {1, 4, 1}, {1 << 16, 7, 9362},
	} {
		p := plantest.InFlight(t, test.places)
		part := share.Of(p, test.instances)
		if part.Plan.Capacity != test.want || part.Plan.Fingerprint != p.Fingerprint {
			t.Errorf("%d permits for %d instances: %d each, want %d", test.places, test.instances, part.Plan.Capacity, test.want)
		}
		var s kernel.Permits
		for n := range test.want + 1 {
			r := part.Receipt(1, sluice.Receipt{Receipt: s.Step(&part.Plan.Plan, plantest.Start, uint64(n), part.Cost(1))})
			if d := p.Decide(1, r); d.Allowed != (n < test.want) || d.Remaining != max(0, test.want-n-1) {
				t.Errorf("%d permits for %d instances: decision %d is %+v", test.places, test.instances, n+1, d)
			}
		}
		if r := s.Step(&part.Plan.Plan, plantest.Start, 0, part.Cost(-1<<20)); r.Used != test.want-1 {
			t.Errorf("after one of %d permits was given back, %d are taken", test.want, r.Used)
		}
		if r := s.Step(&part.Plan.Plan, plantest.Start, 0, part.Cost(sluice.All)); r.Used != 0 {
			t.Errorf("after all permits were given back, %d are taken", r.Used)
		}
	}
}
