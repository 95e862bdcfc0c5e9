package sluice_test

import (
	"math"
	"math/rand/v2"
	"sort"
	"testing"
	"time"

	"github.com/sluicehq/sluice"
)

// naiveShare counts a share by the definition: a limit of n times as many units, each of
// which costs n as before, is asked what fits and when.
type naiveShare struct {
	bucket
	unit int64
}

func (b *naiveShare) fits(now, cost int64) bool { return b.ask(now, cost*b.unit).Allowed }

// first returns how long after now the cost fits for the first time, in ticks of the limit.
func (b *naiveShare) first(p *sluice.Plan, now, cost int64) time.Duration {
	tick := now / p.Tick
	n := sort.Search(1<<53/int(p.Tick), func(n int) bool { return b.fits(max(now, (tick+int64(n))*p.Tick), cost) })
	return time.Duration(max(0, (tick+int64(n))*p.Tick-now)) * time.Microsecond
}

// TestShareReceipt: a share's receipt says of the limit what a search in the share finds.
func TestShareReceipt(t *testing.T) {
	refused, waits := 0, 0
	everyPlan(t, func(t *testing.T, p *sluice.Plan, rng *rand.Rand) {
		for _, n := range []int64{1, 2, 3, 7} {
			share := p.Share(n)
			most := max(1, p.Capacity/n)
			if l := p.Limit; l.Count == 1 && l.Period > 50*365*24*time.Hour && p.Kernel == sluice.Meter && n > 1 {
				continue // n units would take too long to drain for a plan
			}
			if share.Plan.Capacity < n || n > 1 && p.Capacity >= n && share.Plan.Capacity/n != most {
				t.Fatalf("one of %d in %d: the plan has %d", n, p.Capacity, share.Plan.Capacity)
			}
			b := &naiveShare{bucket{Plan: share.Plan}, n}
			now := int64(start)
			for range 40 {
				now += pause(p, rng) / 3
				if now > latest {
					break
				}
				cost := 1 + rng.Int64N(most)
				if share.Cost(cost) != cost*n || share.Cost(-cost) != -cost*n {
					t.Fatalf("%d units cost %d", cost, share.Cost(cost))
				}
				fits := b.fits(now, cost)
				wait := b.first(p, now, cost)
				r, _ := b.receipt(now, share.Cost(cost))
				d := p.Decide(cost, share.Receipt(cost, r))
				if d.Allowed != fits {
					t.Fatalf("by %d: %d units fit %v, and are decided %+v", n, cost, fits, d)
				}
				sliding := p.Limit.Algorithm == sluice.SlidingWindowCounter && n > 1
				if !fits {
					refused++
					if d.RetryAfter != wait && !(sliding && d.RetryAfter > wait) {
						t.Fatalf("by %d: %d units fit after %v, and are said to after %v", n, cost, wait, d.RetryAfter)
					}
				}
				for _, more := range []int64{p.Capacity + 1, math.MaxInt64} {
					r, _ := b.receipt(now, share.Cost(more))
					d := p.Decide(more, share.Receipt(more, r))
					if left := d.Remaining; d.Allowed || d.RetryAfter != sluice.Never || left > 0 && !b.fits(now, left) {
						t.Fatalf("by %d: %d units, which never fit, are decided %+v", n, more, d)
					}
				}
				if p.Limit.Algorithm == sluice.LeakyBucket && n > 1 {
					continue // of what is admitted to a queue only the delay is exact
				}
				if left := d.Remaining; fits && (left > 0 && !b.fits(now, left) || b.fits(now, left+1) && left < p.Capacity/n) {
					t.Fatalf("by %d: %d units are said to remain", n, left)
				}
				if fits && d.Remaining == 0 {
					waits++
					if wait := b.first(p, now, 1); d.RetryAfter != wait && !(sliding && d.RetryAfter > wait) {
						t.Fatalf("by %d: a unit fits after %v, and is said to after %v", n, wait, d.RetryAfter)
					}
				}
			}
		}
	})
	if refused < 1000 || waits < 100 {
		t.Errorf("%d refusals and %d waits: this tells little", refused, waits)
	}
}

// TestShareUsed: a share that begins where the whole limit is has its part of what remains,
// and what is taken of it is what it is ahead.
func TestShareUsed(t *testing.T) {
	everyPlan(t, func(t *testing.T, p *sluice.Plan, rng *rand.Rand) {
		for _, n := range []int64{1, 2, 3, 7} {
			share := p.Share(n)
			left := rng.Int64N(p.Capacity + 1)
			if p.Kernel.Log() && share.Plan.Capacity-left > 1<<16 {
				continue // an exact log of so many units takes memory
			}
			b := &naiveShare{bucket{Plan: share.Plan}, n}
			if used := share.Used(left); used > 0 {
				b.take(start, used)
			}
			want := left / n
			if p.Capacity < n {
				want = 0
			}
			if rest := b.ask(start, 0).Remaining; p.Kernel != sluice.Meter && share.Plan.Capacity >= n && rest != want*n {
				t.Fatalf("one of %d with %d of %d left: %d remain, want %d", n, left, p.Capacity, rest, want*n)
			}
			if want > 0 && !b.fits(start, want) || b.fits(start, want+1) {
				t.Fatalf("one of %d with %d of %d left: not %d units fit", n, left, p.Capacity, want)
			}
			if n > 1 && want > 0 && p.Kernel != sluice.Meter {
				before, _ := b.receipt(start, 0)
				took := 1 + rng.Int64N(want)
				after, _ := b.receipt(start, share.Cost(took))
				if ahead := share.Ahead(after, before); ahead != took {
					t.Fatalf("one of %d: %d units were taken, and it is %d ahead", n, took, ahead)
				}
			}
		}
	})
}
