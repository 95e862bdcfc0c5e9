package sluice_test

import (
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sluicehq/sluice"
)

// TestRetryAfter: what is refused fits after exactly the wait that was promised, and not
// one tick earlier.
func TestRetryAfter(t *testing.T) {
	everyPlan(t, func(t *testing.T, p *sluice.Plan, rng *rand.Rand) {
		waits := 0
		history(p, rng, func(b *bucket, now int64) {
			// Where nothing remains, a peek tells the wait for one more unit.
			if peek, one := b.ask(now, 0), b.ask(now, 1); peek.RetryAfter != one.RetryAfter && !one.Allowed {
				t.Fatalf("a peek at %d has a wait of %v, one unit %v", now, peek.RetryAfter, one.RetryAfter)
			}
			for _, cost := range []int64{anyCost(p, rng), 1, p.Capacity, p.Capacity + 1, 1<<63 - 1} {
				d := b.ask(now, cost)
				switch {
				case cost > p.Capacity:
					if d.Allowed || d.RetryAfter != sluice.Never {
						t.Fatalf("cost %d of %d: %+v, want never", cost, p.Capacity, d)
					}
					continue
				case d.Allowed:
					if d.Remaining >= 1 && d.RetryAfter != 0 {
						t.Fatalf("cost %d: %+v, want no wait where more fits", cost, d)
					}
					continue
				}
				waits++
				at := now + d.RetryAfter.Microseconds()
				if !b.ask(at, cost).Allowed {
					t.Fatalf("cost %d at %d: does not fit after %v", cost, now, d.RetryAfter)
				}
				if b.ask(at-1, cost).Allowed {
					t.Fatalf("cost %d at %d: fits before %v", cost, now, d.RetryAfter)
				}
			}
		})
		if waits < 50 {
			t.Errorf("premise: %d waits only", waits)
		}
	})
}

// TestRemaining: what remains fits, one more does not, and without takes it only grows.
func TestRemaining(t *testing.T) {
	everyPlan(t, func(t *testing.T, p *sluice.Plan, rng *rand.Rand) {
		partly := 0
		history(p, rng, func(b *bucket, now int64) {
			n := b.ask(now, 0).Remaining
			if n < 0 || n > p.Capacity {
				t.Fatalf("%d of %d remain", n, p.Capacity)
			}
			if n > 0 && n < p.Capacity {
				partly++
			}
			if n > 0 && !b.ask(now, n).Allowed || b.ask(now, n+1).Allowed {
				t.Fatalf("at %d, %d remain: %+v, and one more: %+v", now, n, b.ask(now, n), b.ask(now, n+1))
			}
			before := b.ask(now, 0)
			for later := now; later < now+2*p.Limit.Period.Microseconds(); {
				later += 1 + pause(p, rng)
				d := b.ask(later, 0)
				if d.Remaining < before.Remaining {
					t.Fatalf("%d remain at %d, less than %d before", d.Remaining, later, before.Remaining)
				}
				before = d
			}
		})
		if p.Capacity > 1 && partly < 10 {
			t.Errorf("premise: partly used %d times only", partly)
		}
	})
}

// TestEmptyAt: a state equals the empty state at the microsecond that EmptyAt says, and
// not one before. ResetAfter says the same.
func TestEmptyAt(t *testing.T) {
	everyPlan(t, func(t *testing.T, p *sluice.Plan, rng *rand.Rand) {
		used := 0
		history(p, rng, func(b *bucket, now int64) {
			// Compared by all that a receipt tells, at every cost.
			same := func(at int64) bool {
				fresh := &bucket{Plan: p}
				for _, cost := range []int64{0, 1, p.Capacity} {
					if b.ask(at, cost) != fresh.ask(at, cost) {
						return false
					}
				}
				return true
			}
			at, reset := b.emptyAt(), now+b.ask(now, 0).ResetAfter.Microseconds()
			if at <= now {
				if !same(now) || reset != now {
					t.Fatalf("at %d, it is said to be empty since %d, and reset at %d: %+v", now, at, reset, b.ask(now, 0))
				}
				return
			}
			used++
			if reset != at {
				t.Fatalf("at %d, it is empty at %d, and reset at %d", now, at, reset)
			}
			if !same(at) || same(at-1) {
				t.Fatalf("at %d, it is said to be empty at %d: %v, and one before: %v", now, at, same(at), same(at-1))
			}
		})
		if used < 30 {
			t.Errorf("premise: not empty %d times only", used)
		}
	})
}

// TestGiveBack: a refund never makes more than there was, and undoes the take before it.
func TestGiveBack(t *testing.T) {
	everyPlan(t, func(t *testing.T, p *sluice.Plan, rng *rand.Rand) {
		history(p, rng, func(b *bucket, now int64) {
			before := b.ask(now, 0)
			cost := anyCost(p, rng)
			if !b.take(now, cost).Allowed {
				return
			}
			if after := b.take(now, -cost); after.Remaining != before.Remaining {
				t.Fatalf("%d remain after a cost of %d was given back, before %d", after.Remaining, cost, before.Remaining)
			}
			back := 1 + rng.Int64N(p.Capacity)
			before = b.ask(now, 0)
			after := b.take(now, -back)
			want := min(p.Capacity, before.Remaining+back)
			if p.Limit.Algorithm == sluice.SlidingWindowCounter && after.Remaining >= before.Remaining {
				want = min(want, after.Remaining) // units of the previous window weigh less than 1
			}
			if after.Remaining != want {
				t.Fatalf("%d remain after %d of %d were given back, before %d", after.Remaining, back, p.Capacity, before.Remaining)
			}
			if rng.IntN(10) > 0 {
				return
			}
			for _, all := range []int64{sluice.All, -p.Capacity * 2, sluice.All + 1} {
				d := b.take(now, all)
				if fresh := (&bucket{Plan: p}).ask(now, 0); d != fresh || b.state != (sluice.State{}) {
					t.Fatalf("after all was given back by %d: %+v, want %+v, and a state of %+v", all, d, fresh, b.state)
				}
			}
		})
	})
}

// TestPeek: a cost of 0 and a refusal change nothing.
func TestPeek(t *testing.T) {
	everyPlan(t, func(t *testing.T, p *sluice.Plan, rng *rand.Rand) {
		history(p, rng, func(b *bucket, now int64) {
			state, before, empty := b.state, b.ask(now, 0), b.emptyAt()
			b.take(now, 0)
			b.take(now, p.Capacity+1)
			b.take(now, before.Remaining+1)
			if b.state != state || b.ask(now, 0) != before || b.emptyAt() != empty {
				t.Fatalf("a peek and refusals changed %+v, %+v to %+v, %+v", state, before, b.state, b.ask(now, 0))
			}
		})
	})
}

// TestDelay: what a leaky bucket admits leaves it, one unit after the other, at exactly
// its rate, in the order in which it came.
func TestDelay(t *testing.T) {
	for _, l := range rates {
		l.Algorithm = sluice.LeakyBucket
		p, err := sluice.NewPlan(l)
		if err != nil {
			continue
		}
		t.Run(l.String(), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(5, 5))
			b := &bucket{Plan: p}
			now, queued := int64(start), 0
			// By the definition of a queue with one server: the next leaves when the last
			// is through, and each unit takes Period/Count.
			through := new(big.Rat)
			for range 300 {
				now += pause(p, rng)
				cost := anyCost(p, rng)
				d := b.take(now, cost)
				if !d.Allowed {
					if d.Delay != 0 {
						t.Fatalf("a refusal with a delay: %+v", d)
					}
					continue
				}
				// On the grid of the ticks.
				tick := big.NewRat(now/p.Tick*p.Tick, 1)
				if through.Cmp(tick) < 0 {
					through.Set(tick)
				} else if through.Cmp(tick) > 0 {
					queued++
				}
				leaves := ceil(new(big.Rat).Quo(through, big.NewRat(p.Tick, 1))) * p.Tick
				if want := max(0, leaves-now); d.Delay.Microseconds() != want {
					t.Fatalf("at %d: a delay of %v, want %d µs", now, d.Delay, want)
				}
				through.Add(through, big.NewRat(cost*l.Period.Microseconds(), l.Count))
			}
			if queued < 20 && p.Capacity > 1 {
				t.Errorf("premise: queued %d times only", queued)
			}
		})
	}
}

func ceil(r *big.Rat) int64 {
	n := new(big.Int).Add(r.Num(), r.Denom())
	return n.Sub(n, big.NewInt(1)).Div(n, r.Denom()).Int64()
}

// TestLook: what Look answers is what Step does to what is not kept, wherever the clock
// has gone.
func TestLook(t *testing.T) {
	jumps := 0
	everyPlan(t, func(t *testing.T, p *sluice.Plan, rng *rand.Rand) {
		if !p.Kernel.Log() {
			return
		}
		history(p, rng, func(b *bucket, now int64) {
			if rng.IntN(2) == 0 {
				now = max(earliest, now-rng.Int64N(3*p.Limit.Period.Microseconds()))
			}
			if b.log.EmptyAt(p) > now+p.Limit.Period.Microseconds() {
				jumps++
			}
			over := max(0, p.Capacity-b.log.Look(p, now, 0).Used) + 1
			for _, cost := range []int64{over, p.Capacity, p.Capacity + 1, 0} {
				look := b.log.Look(p, now, cost)
				if look.Fits && cost > 0 {
					continue
				}
				if step := b.log.Step(p, now, cost); step != look {
					t.Fatalf("cost %d at %d: %+v, and Look had %+v", cost, now, step, look)
				}
			}
		})
	})
	if jumps < 50 {
		t.Errorf("premise: %d jumps only", jumps)
	}
}

// TestLongWaits: a wait of more than 292 years, which no Duration holds, is a long one.
func TestLongWaits(t *testing.T) {
	const year = 365 * 24 * time.Hour
	b := &bucket{Plan: plan(t, sluice.Limit{Count: 1, Period: 250 * year, Algorithm: sluice.SlidingWindowCounter})}
	d := b.take(start, 1)
	if refused := b.take(start, 1); refused.RetryAfter != d.ResetAfter || d.ResetAfter < 290*year || d.ResetAfter == sluice.Never {
		t.Errorf("the wait of 250 and more years is %v, the reset %v", refused.RetryAfter, d.ResetAfter)
	}
}
