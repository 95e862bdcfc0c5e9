package sluice_test

import (
	"math/rand/v2"
	"testing"

	"github.com/sluicehq/sluice"
)

// refusedReceipt returns what b says of a cost at now in a Take that is refused: nothing is
// kept, and what would fit is not in what is used.
func (b *bucket) refusedReceipt(now, cost int64) (r sluice.Receipt) {
	if b.Kernel.Log() {
		return b.log.Look(b.Plan, now, cost)
	}
	if b.Step(b.state, now, cost, &r); r.Fits {
		b.Step(b.state, now, 0, &r)
	}
	return r
}

// oldest returns when the oldest unit of a log expires, as a tick, or 0 where it has none.
func (b *bucket) oldest(now int64) int64 {
	d := b.refusedReceipt(now, b.Capacity)
	if d.Fits || d.Used == 0 {
		return 0
	}
	// With all but used-1 units, one has to expire.
	return b.refusedReceipt(now, b.Capacity-d.Used+1).Wait
}

// TestSnapshot: what a receipt has told of a state answers later charges as the state itself
// does, or says that it cannot.
func TestSnapshot(t *testing.T) {
	answered, unknown := map[sluice.Kernel]int{}, map[sluice.Kernel]int{}
	everyPlan(t, func(t *testing.T, p *sluice.Plan, rng *rand.Rand) {
		b, now := &bucket{Plan: p}, int64(start)
		for range 200 {
			if now += pause(p, rng) / 4; now > latest {
				return
			}
			cost := anyCost(p, rng)
			r, _ := b.receipt(now, cost)
			if rng.IntN(4) > 0 {
				continue
			}
			oldest := int64(0)
			if p.Kernel.Log() && !r.Fits && rng.IntN(3) > 0 {
				oldest = b.oldest(now)
			}
			snapshot := p.Snapshot(cost, r, oldest)
			for range 4 {
				later, cost := now, anyCost(p, rng)
				if rng.IntN(4) > 0 {
					later += pause(p, rng) / 4
				}
				got, known := snapshot.Receipt(p, later, cost)
				if !known {
					unknown[p.Kernel]++
					continue
				}
				want := b.refusedReceipt(later, cost)
				if p.Kernel.Log() && got.Fits && oldest == 0 {
					// Nothing is taken to have expired, and the wait is left open.
					if !want.Fits || got.Used < want.Used {
						t.Fatalf("at %d, %d later: %+v, the log says %+v", now, later-now, got, want)
					}
					continue
				}
				if answered[p.Kernel]++; got != want {
					t.Fatalf("at %d, %d later, cost %d, oldest %d: %+v, the state says %+v", now, later-now, cost, oldest, got, want)
				}
			}
		}
	})
	for _, k := range []sluice.Kernel{sluice.Meter, sluice.Window, sluice.StampLog, sluice.CountLog, sluice.ExactLog} {
		if answered[k] < 200 || k.Log() != (unknown[k] > 0) {
			t.Errorf("kernel %d: %d answers, %d left open", k, answered[k], unknown[k])
		}
	}
}

// TestSnapshotRemaining: what is said to remain fits, and of all but a log no more does.
func TestSnapshotRemaining(t *testing.T) {
	everyPlan(t, func(t *testing.T, p *sluice.Plan, rng *rand.Rand) {
		history(p, rng, func(b *bucket, now int64) {
			cost := anyCost(p, rng)
			r, _ := b.receipt(now, cost)
			snapshot := p.Snapshot(cost, r, 0)
			if snapshot.Now != now {
				t.Fatalf("a snapshot of %d is of %d", now, snapshot.Now)
			}
			later := now + pause(p, rng)
			left, want := snapshot.Remaining(p, later), b.ask(later, 0).Remaining
			if left > want || left < want && (!p.Kernel.Log() || later == now || b.emptyAt() <= later) {
				t.Fatalf("%d later %d are said to remain, and %d do", later-now, left, want)
			}
		})
	})
}

// TestLifetime: after that long nothing is left of a state, whatever it was.
func TestLifetime(t *testing.T) {
	everyPlan(t, func(t *testing.T, p *sluice.Plan, rng *rand.Rand) {
		history(p, rng, func(b *bucket, now int64) {
			if b.emptyAt() > now+p.Lifetime() {
				t.Fatalf("at %d: empty at %d, and the lifetime is %d", now, b.emptyAt(), p.Lifetime())
			}
		})
	})
}
