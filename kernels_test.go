package sluice_test

import (
	"fmt"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/sluicehq/sluice"
)

// bucket is the state of one key, whatever the kernel.
type bucket struct {
	*sluice.Plan
	state sluice.State
	log   sluice.Log
}

func (b *bucket) take(now, cost int64) sluice.Decision {
	_, d := b.receipt(now, cost)
	return d
}

func (b *bucket) receipt(now, cost int64) (r sluice.Receipt, d sluice.Decision) {
	if b.Kernel == sluice.Units {
		r = b.log.Step(b.Plan, now, cost)
	} else {
		b.state, r = b.Step(b.state, now, cost)
	}
	return r, b.Decide(cost, r)
}

// ask returns the decision that cost would get, and changes nothing.
func (b *bucket) ask(now, cost int64) sluice.Decision {
	if b.Kernel == sluice.Units {
		return b.Decide(cost, b.log.Look(b.Plan, now, cost))
	}
	_, r := b.Step(b.state, now, cost)
	return b.Decide(cost, r)
}

func (b *bucket) emptyAt() int64 {
	if b.Kernel == sluice.Units {
		return b.log.EmptyAt(b.Plan)
	}
	return b.EmptyAt(b.state)
}

func plan(t testing.TB, l sluice.Limit) *sluice.Plan {
	t.Helper()
	p, err := sluice.NewPlan(l)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// rates are limits of every size and shape, and of every tick.
var rates = []sluice.Limit{
	{Count: 7, Period: time.Second},
	{Count: 7, Period: time.Second, Burst: 3},
	{Count: 3, Period: 7 * time.Microsecond, Burst: 11},
	{Count: 1, Period: time.Microsecond},
	{Count: 1, Period: time.Microsecond, Burst: 1000},
	{Count: 100, Period: time.Minute},
	{Count: 5, Period: 90 * time.Second, Burst: 1},
	{Count: 999_983, Period: time.Hour},
	{Count: 1_000_000, Period: time.Second},
	{Count: 1_000_000_007, Period: 24 * time.Hour},
	{Count: 1, Period: 30 * 24 * time.Hour},
	{Count: 1, Period: 60 * 365 * 24 * time.Hour},
	{Count: 1, Period: 100 * 365 * 24 * time.Hour},
}

// everyPlan runs a test for every algorithm at all rates that it can count.
func everyPlan(t *testing.T, test func(t *testing.T, p *sluice.Plan, rng *rand.Rand)) {
	for _, a := range sluice.Algorithms() {
		for i, l := range rates {
			l.Algorithm = a
			if a > sluice.GCRA {
				l.Burst = 0
			}
			p, err := sluice.NewPlan(l)
			if err != nil {
				continue // TestPlans has what these are
			}
			t.Run(fmt.Sprintf("%v %v", a, l), func(t *testing.T) {
				test(t, p, rand.New(rand.NewPCG(uint64(a), uint64(i))))
			})
		}
	}
}

// TestRatesAreCounted counts what everyPlan leaves out.
func TestRatesAreCounted(t *testing.T) {
	counted := map[sluice.Algorithm]int{}
	ticks := map[int64]int{}
	everyPlan(t, func(t *testing.T, p *sluice.Plan, _ *rand.Rand) {
		counted[p.Limit.Algorithm]++
		ticks[p.Tick]++
	})
	for _, a := range sluice.Algorithms() {
		if counted[a] < len(rates)-2 {
			t.Errorf("%v counts %d of %d rates only", a, counted[a], len(rates))
		}
	}
	if ticks[1] == 0 || ticks[1000] == 0 || ticks[1_000_000] == 0 {
		t.Errorf("not every tick is there: %v", ticks)
	}
}

const start = 1_700_000_000_123_457

// anyCost returns a cost from 1 to a little above the capacity.
func anyCost(p *sluice.Plan, rng *rand.Rand) int64 {
	switch rng.IntN(8) {
	case 0:
		return p.Capacity
	case 1:
		return 1 + rng.Int64N(p.Capacity)
	case 2:
		return p.Capacity + 1
	case 3, 4:
		return 1
	}
	return 1 + rng.Int64N(max(1, p.Capacity/5))
}

// Histories lie between the years 2001 and 2096.
const earliest, latest = 1_000_000_000_000_000, 4_000_000_000_000_000

// pause returns a time in which some units come back.
func pause(p *sluice.Plan, rng *rand.Rand) int64 {
	period := p.Limit.Period.Microseconds()
	switch rng.IntN(6) {
	case 0:
		return 0
	case 1:
		return rng.Int64N(period + 1)
	case 2:
		return p.Tick
	case 3:
		return rng.Int64N(2*period + 1)
	}
	return rng.Int64N(period/4 + 2)
}

// TestBound holds every algorithm to what it promises never to exceed, in any interval of
// a random history. Intervals are those of the ticks in which decisions are made.
func TestBound(t *testing.T) {
	everyPlan(t, func(t *testing.T, p *sluice.Plan, rng *rand.Rand) {
		admitted, refused := 0, 0
		for admitted+refused < 250 {
			b := &bucket{Plan: p}
			var all []taken
			for now := int64(start); now < latest && admitted+refused < 250; now += pause(p, rng) {
				cost := anyCost(p, rng)
				if !b.take(now, cost).Allowed {
					refused++
					continue
				}
				admitted++
				all = append(all, taken{now / p.Tick, cost})
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

type taken struct{ tick, cost int64 }

// bounds say what is wrong with the last of some takes, given those before it.
var bounds = map[sluice.Algorithm]func(p *sluice.Plan, all []taken) string{
	sluice.TokenBucket:          meterBound,
	sluice.LeakyBucket:          meterBound,
	sluice.GCRA:                 meterBound,
	sluice.FixedWindow:          windowBound,
	sluice.SlidingWindowCounter: counterBound,
	sluice.SlidingWindowLog:     logBound,
}

// meterBound: never more than Burst + Count/Period·T in any T.
func meterBound(p *sluice.Plan, all []taken) string {
	last, period := all[len(all)-1], p.Limit.Period.Microseconds()
	sum := int64(0)
	for _, from := range slices.Backward(all) {
		sum += from.cost
		elapsed := (last.tick - from.tick) * p.Tick
		// Both sides times the period.
		most := product(p.Limit.Burst, period)
		if product(sum, period).Cmp(most.Add(most, product(p.Limit.Count, elapsed))) > 0 {
			return fmt.Sprintf("%d units in %d µs", sum, elapsed)
		}
	}
	return ""
}

func product(a, b int64) *big.Int { return new(big.Int).Mul(big.NewInt(a), big.NewInt(b)) }

// windowBound: never more than Count in a window that is aligned to the epoch.
func windowBound(p *sluice.Plan, all []taken) string {
	window := all[len(all)-1].tick / p.Span
	if sum := sumSince(all, window*p.Span); sum > p.Limit.Count {
		return fmt.Sprintf("%d units in window %d", sum, window)
	}
	return ""
}

// counterBound: never more than Count by the weighted estimate, nor than twice Count in
// any period.
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

// logBound: never more than Count in any period.
func logBound(p *sluice.Plan, all []taken) string {
	if sum := sumSince(all, all[len(all)-1].tick-p.Span+1); sum > p.Limit.Count {
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

// history leads a bucket through random takes and refunds, and calls look after each.
func history(p *sluice.Plan, rng *rand.Rand, look func(b *bucket, now int64)) {
	b, now := &bucket{Plan: p}, int64(start)
	for range 150 {
		if now += pause(p, rng); now > latest {
			b, now = &bucket{Plan: p}, start
		}
		cost := anyCost(p, rng)
		if rng.IntN(5) == 0 {
			cost = -cost
		}
		b.take(now, cost)
		look(b, now)
	}
}

// TestRetryAfter: what is refused fits after exactly the wait that was promised, and not
// one tick earlier.
func TestRetryAfter(t *testing.T) {
	everyPlan(t, func(t *testing.T, p *sluice.Plan, rng *rand.Rand) {
		waits := 0
		history(p, rng, func(b *bucket, now int64) {
			for _, cost := range []int64{anyCost(p, rng), 1, p.Capacity, p.Capacity + 1, 1<<63 - 1} {
				d := b.ask(now, cost)
				switch {
				case cost > p.Capacity:
					if d.Allowed || d.RetryAfter != sluice.Never {
						t.Fatalf("cost %d of %d: %+v, want never", cost, p.Capacity, d)
					}
					continue
				case d.Allowed && d.Remaining >= 1:
					if d.RetryAfter != 0 {
						t.Fatalf("cost %d: %+v, want no wait where more fits", cost, d)
					}
					continue
				case d.Allowed:
					// It is about one more unit, once this cost was taken.
					clone := *b
					clone.log = sluice.Log{}
					if p.Kernel == sluice.Units {
						continue // a Log cannot be copied; the differential test has it
					}
					clone.take(now, cost)
					b, cost = &clone, 1
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
			if p.Kernel != sluice.Units && (p.Empty(b.state, at-1) || !p.Empty(b.state, at)) {
				t.Fatalf("Empty does not agree with EmptyAt, %d", at)
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

// TestClockJumps: whichever way a clock jumps, nobody waits longer than for a limit that
// was used up at that moment, or the next window if the jump was shorter than one.
func TestClockJumps(t *testing.T) {
	everyPlan(t, func(t *testing.T, p *sluice.Plan, rng *rand.Rand) {
		full := &bucket{Plan: p}
		full.take(start-start%(2*p.Limit.Period.Microseconds()), p.Capacity) // where a window begins
		most := full.emptyAt() - (start - start%(2*p.Limit.Period.Microseconds()))
		if p.Kernel != sluice.Meter {
			most += p.Limit.Period.Microseconds()
		}
		history(p, rng, func(b *bucket, now int64) {
			for range 3 {
				clone := &bucket{Plan: p, state: b.state}
				if p.Kernel == sluice.Units {
					clone = b
				}
				jumped := max(earliest, now-rng.Int64N(start))
				if rng.IntN(2) == 0 {
					jumped = max(earliest, now-rng.Int64N(3*p.Limit.Period.Microseconds()))
				}
				d := clone.take(jumped, p.Capacity)
				if d.Allowed {
					continue
				}
				if d.RetryAfter.Microseconds() > most {
					t.Fatalf("the clock has jumped from %d to %d, and there is a wait of %v, more than %d µs", now, jumped, d.RetryAfter, most)
				}
				if d := clone.ask(jumped+d.RetryAfter.Microseconds(), p.Capacity); !d.Allowed {
					t.Fatalf("the clock has jumped from %d to %d: nothing fits after the wait of %v: %+v", now, jumped, d.RetryAfter, d)
				}
			}
		})
	})
}

// TestClockSteps: back and forth by less than the algorithm can still owe is as if the
// clock had stood.
func TestClockSteps(t *testing.T) {
	everyPlan(t, func(t *testing.T, p *sluice.Plan, rng *rand.Rand) {
		steps := 0
		history(p, rng, func(b *bucket, now int64) {
			before := b.ask(now, 0)
			back := pause(p, rng)
			if p.Kernel == sluice.Meter {
				room := before.Remaining * p.Unit / p.Drain * p.Tick
				back = min(back, room-p.Tick)
			} else {
				back = min(back, p.Limit.Period.Microseconds()-p.Tick)
			}
			if back <= 0 || b.emptyAt() <= now {
				return
			}
			steps++
			b.take(now-back, 0)
			if d := b.take(now-back, before.Remaining+1); d.Allowed {
				t.Fatalf("%d back, more fits than before: %+v", back, d)
			}
			if after := b.take(now, 0); after != before {
				t.Fatalf("%d µs back and forth have changed %+v to %+v", back, before, after)
			}
		})
		if steps < 5 && p.Capacity > 1 {
			t.Errorf("premise: %d steps only", steps)
		}
	})
}

// TestLook: what Look answers is what Step does to what is not kept, wherever the clock
// has gone.
func TestLook(t *testing.T) {
	jumps := 0
	everyPlan(t, func(t *testing.T, p *sluice.Plan, rng *rand.Rand) {
		if p.Kernel != sluice.Units {
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
