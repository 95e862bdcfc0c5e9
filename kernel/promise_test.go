package kernel_test

import (
	"fmt"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/plantest"
	"github.com/sluicehq/sluice/kernel"
	"github.com/sluicehq/sluice/storetest"
)

// TestStep: the receipt of each step of a kernel equals that of the model, even if the clock steps back.
func TestStep(t *testing.T) {
	plantest.Every(t, func(t *testing.T, p *sluice.Plan, rng *rand.Rand) {
		b, model, now := &plantest.Bucket{Plan: p}, new(storetest.Model), int64(plantest.Start)
		for n := range 80 {
			if now += plantest.Pause(p, rng); rng.IntN(6) == 0 {
				now -= rng.Int64N(3 * p.Limit.Period.Microseconds())
			}
			cost := anyCost(p, rng)
			if rng.IntN(3) == 0 {
				cost = -cost
			}
			if now < plantest.Earliest || now > plantest.Latest {
				return
			}
			got, d := b.Receipt(now, cost)
			c := sluice.Charge{Key: "k", Plan: p, Cost: cost}
			if want := plantest.TakeAt(t, model, now, c)[0]; got != want || d != model.Decide(c, want) {
				t.Fatalf("step %d, cost %d at %d: %+v, %+v, want %+v, %+v", n, cost, now, got, d, want, model.Decide(c, want))
			}
		}
	})
}

// TestEmptyAt: a state equals the empty state at the microsecond that EmptyAt returns, and not one microsecond
// earlier. ResetAfter agrees.
func TestEmptyAt(t *testing.T) {
	plantest.Every(t, func(t *testing.T, p *sluice.Plan, rng *rand.Rand) {
		used := 0
		history(p, rng, func(b *plantest.Bucket, now int64) {
			// same reports whether decisions of several costs equal those of an empty bucket.
			same := func(at int64) bool {
				fresh := &plantest.Bucket{Plan: p}
				for _, cost := range []int64{0, 1, p.Capacity} {
					if b.Ask(at, cost) != fresh.Ask(at, cost) {
						return false
					}
				}
				return true
			}
			at, reset := b.Empty(), now+b.Ask(now, 0).ResetAfter.Microseconds()
			if at <= now {
				if !same(now) || reset != now {
					t.Fatalf("at %d: EmptyAt returned %d, and the reset is at %d: %+v", now, at, reset, b.Ask(now, 0))
				}
				return
			}
			used++
			if reset != at {
				t.Fatalf("at %d: EmptyAt returned %d, and the reset is at %d", now, at, reset)
			}
			if !same(at) || same(at-1) {
				t.Fatalf("at %d: EmptyAt returned %d; empty then: %v, and a microsecond before: %v", now, at, same(at), same(at-1))
			}
		})
		if used < 30 {
			t.Errorf("premise: only %d states were not empty", used)
		}
	})
}

// TestBound checks the bounds that every algorithm guarantees for any interval of a random history. Intervals of meters
// and windows are measured in ticks of the decisions, those of logs in clock time.
func TestBound(t *testing.T) {
	plantest.Every(t, func(t *testing.T, p *sluice.Plan, rng *rand.Rand) {
		admitted, refused := 0, 0
		for admitted+refused < 250 {
			b := &plantest.Bucket{Plan: p}
			var all []taken
			for now := int64(plantest.Start); now < plantest.Latest && admitted+refused < 250; now += plantest.Pause(p, rng) {
				cost := anyCost(p, rng)
				if !b.Take(now, cost).Allowed {
					refused++
					continue
				}
				admitted++
				all = append(all, taken{now / p.Tick, now, cost})
				if problem := bounds[p.Limit.Algorithm](p, all); problem != "" {
					t.Fatal(problem)
				}
			}
		}
		if admitted < 25 || refused < 25 {
			t.Fatalf("premise: %d admitted, %d refused", admitted, refused)
		}
	})
}

type taken struct{ tick, now, cost int64 }

// bounds has a function for each algorithm. It returns a text if the last of some admitted charges exceeds the
// algorithm's bound.
var bounds = map[sluice.Algorithm]func(p *sluice.Plan, all []taken) string{
	sluice.TokenBucket:           meterBound,
	sluice.LeakyBucket:           meterBound,
	sluice.GCRA:                  meterBound,
	sluice.FixedWindow:           windowBound,
	sluice.SlidingWindowCounter:  counterBound,
	sluice.SlidingWindowLog:      logBound,
	sluice.SlidingWindowLogExact: logBound,
}

// meterBound: at most Burst + Count/Period·T units in any time T.
func meterBound(p *sluice.Plan, all []taken) string {
	last, period := all[len(all)-1], p.Limit.Period.Microseconds()
	sum := int64(0)
	for _, from := range slices.Backward(all) {
		sum += from.cost
		elapsed := (last.tick - from.tick) * p.Tick
		// Both sides are multiplied by the period.
		most := product(p.Limit.Burst, period)
		if product(sum, period).Cmp(most.Add(most, product(p.Limit.Count, elapsed))) > 0 {
			return fmt.Sprintf("%d units in %d µs", sum, elapsed)
		}
	}
	return ""
}

func product(a, b int64) *big.Int { return new(big.Int).Mul(big.NewInt(a), big.NewInt(b)) }

// windowBound: at most Count units in a window, which is aligned to the epoch, or a month.
func windowBound(p *sluice.Plan, all []taken) string {
	window := all[len(all)-1].tick / p.Span
	begin := window * p.Span
	if day := p.Limit.MonthDay; day > 0 {
		now := time.UnixMicro(all[len(all)-1].tick).UTC()
		from := edge(now.Year(), now.Month(), day)
		if from.After(now) {
			last := time.Date(now.Year(), now.Month(), 0, 0, 0, 0, 0, time.UTC)
			from = edge(last.Year(), last.Month(), day)
		}
		begin = from.UnixMicro()
	}
	if sum := sumSince(all, begin); sum > p.Limit.Count {
		return fmt.Sprintf("%d units in window %d", sum, window)
	}
	return ""
}

// counterBound: at most Count units by the weighted estimate, and at most twice Count in any period.
func counterBound(p *sluice.Plan, all []taken) string {
	last := all[len(all)-1]
	begin := last.tick - last.tick%p.Span
	this := sumSince(all, begin)
	previous := sumSince(all, begin-p.Span) - this
	estimate := big.NewRat(begin+p.Span-last.tick, p.Span)
	estimate.Mul(estimate, big.NewRat(previous, 1))
	estimate.Add(estimate, big.NewRat(this, 1))
	if estimate.Cmp(big.NewRat(p.Limit.Count, 1)) > 0 {
		return fmt.Sprintf("the estimate is %v: %d before and %d in this window", estimate.FloatString(6), previous, this)
	}
	if sum := sumSince(all, last.tick-p.Span+1); sum > 2*p.Limit.Count {
		return fmt.Sprintf("%d units in a period", sum)
	}
	return ""
}

// logBound: at most Count units in any period of clock time.
func logBound(p *sluice.Plan, all []taken) string {
	sum, since := int64(0), all[len(all)-1].now-p.Limit.Period.Microseconds()
	for i := len(all) - 1; i >= 0 && all[i].now > since; i-- {
		sum += all[i].cost
	}
	if sum > p.Limit.Count {
		return fmt.Sprintf("%d units in a period", sum)
	}
	return ""
}

func sumSince(all []taken, tick int64) (sum int64) {
	for _, t := range slices.Backward(all) {
		if t.tick < tick {
			break
		}
		sum += t.cost
	}
	return sum
}

// refusedReceipt returns b's receipt for a cost at now in a denied Take: the state stays as it is, and Used does not
// include a cost that would fit.
func refusedReceipt(b *plantest.Bucket, now, cost int64) (r kernel.Receipt) {
	if b.Kernel.Log() {
		return b.Log.Look(&b.Plan.Plan, now, cost)
	}
	if b.Step(b.State, now, cost, &r); r.Fits {
		b.Step(b.State, now, 0, &r)
	}
	return r
}

// oldestOf returns the tick at which the oldest unit of a log expires, or 0 for an empty log.
func oldestOf(b *plantest.Bucket, now int64) int64 {
	d := refusedReceipt(b, now, b.Capacity)
	if d.Fits || d.Used == 0 {
		return 0
	}
	// This cost is one unit more than is free, so exactly one unit has to expire.
	return refusedReceipt(b, now, b.Capacity-d.Used+1).Wait
}

// TestSnapshot: a snapshot of a receipt answers later charges as the state itself does, or reports that the answer
// is unknown.
func TestSnapshot(t *testing.T) {
	answered, unknown := map[kernel.Kind]int{}, map[kernel.Kind]int{}
	plantest.Every(t, func(t *testing.T, p *sluice.Plan, rng *rand.Rand) {
		b, now := &plantest.Bucket{Plan: p}, int64(plantest.Start)
		for range 200 {
			if now += plantest.Pause(p, rng) / 4; now > plantest.Latest {
				return
			}
			cost := anyCost(p, rng)
			r, _ := b.Receipt(now, cost)
			if rng.IntN(4) > 0 {
				continue
			}
			oldest := int64(0)
			if p.Kernel.Log() && !r.Fits && rng.IntN(3) > 0 {
				oldest = oldestOf(b, now)
			}
			snapshot := p.Snapshot(cost, r.Receipt, oldest)
			for range 4 {
				later, cost := now, anyCost(p, rng)
				if rng.IntN(4) > 0 {
					later += plantest.Pause(p, rng) / 4
				}
				got, known := snapshot.Receipt(&p.Plan, later, cost)
				if !known {
					unknown[p.Kernel]++
					continue
				}
				want := refusedReceipt(b, later, cost)
				if p.Kernel.Log() && got.Fits && oldest == 0 {
					// The snapshot assumes that no unit has expired, and leaves the wait open.
					if !want.Fits || got.Used < want.Used {
						t.Fatalf("at %d, %d later: %+v, want the wait open and the rest of %+v", now, later-now, got, want)
					}
					continue
				}
				if answered[p.Kernel]++; got != want {
					t.Fatalf("at %d, %d later, cost %d, oldest %d: %+v, want %+v", now, later-now, cost, oldest, got, want)
				}
			}
		}
	})
	for _, k := range []kernel.Kind{kernel.Meter, kernel.Window, kernel.StampLog, kernel.CountLog, kernel.ExactLog} {
		if answered[k] < 200 || k.Log() != (unknown[k] > 0) {
			t.Errorf("kernel %d: %d answers, %d unknown", k, answered[k], unknown[k])
		}
	}
}

// TestSnapshotRemaining: the remaining units by a snapshot equal those of the state. Of a log, they may be fewer at a
// later time, until the log is empty.
func TestSnapshotRemaining(t *testing.T) {
	plantest.Every(t, func(t *testing.T, p *sluice.Plan, rng *rand.Rand) {
		history(p, rng, func(b *plantest.Bucket, now int64) {
			cost := anyCost(p, rng)
			r, _ := b.Receipt(now, cost)
			snapshot := p.Snapshot(cost, r.Receipt, 0)
			if snapshot.Now != now {
				t.Fatalf("a snapshot at %d has the time %d", now, snapshot.Now)
			}
			later := now + plantest.Pause(p, rng)
			left, want := snapshot.Remaining(&p.Plan, later), b.Ask(later, 0).Remaining
			if left > want || left < want && (!p.Kernel.Log() || later == now || b.Empty() <= later) {
				t.Fatalf("%d later: %d units remain by the snapshot, want %d", later-now, left, want)
			}
		})
	})
}

// TestLifetime: after its Lifetime, any state is empty.
func TestLifetime(t *testing.T) {
	plantest.Every(t, func(t *testing.T, p *sluice.Plan, rng *rand.Rand) {
		history(p, rng, func(b *plantest.Bucket, now int64) {
			if b.Empty() > now+p.Lifetime() {
				t.Fatalf("at %d: empty at %d, and the lifetime is %d", now, b.Empty(), p.Lifetime())
			}
		})
	})
}
