package sluice_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sluicehq/sluice"
)

// TestClockJumps: whichever way a clock jumps, nobody waits longer than for a limit that
// was used up at that moment, or the next window if the jump was shorter than one.
func TestClockJumps(t *testing.T) {
	everyPlan(t, func(t *testing.T, p *sluice.Plan, rng *rand.Rand) {
		full := &bucket{Plan: p}
		full.take(start-start%(2*p.Limit.Period.Microseconds()), p.Capacity) // where a window begins
		most := full.emptyAt() - (start - start%(2*p.Limit.Period.Microseconds()))
		switch {
		case p.Limit.MonthDay > 0: // the start is anywhere in one
			most = 2 * p.Limit.Period.Microseconds()
		case p.Kernel == sluice.Window:
			most += p.Limit.Period.Microseconds()
		case p.Kernel.Log(): // standing still behind a unit for as long as one counts
			most = 2 * p.Span * p.Tick
		}
		history(p, rng, func(b *bucket, now int64) {
			for range 3 {
				clone := &bucket{Plan: p, state: b.state}
				if p.Kernel.Log() {
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
			if p.Limit.MonthDay > 0 {
				back = min(back, 28*24*time.Hour.Microseconds()) // the shortest month
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
