package sluice_test

import (
	"math/rand/v2"
	"testing"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/plantest"
	"github.com/sluicehq/sluice/storetest"
)

// TestStep: a step of a kernel by itself is what the model takes, wherever the clock goes.
func TestStep(t *testing.T) {
	everyPlan(t, func(t *testing.T, p *sluice.Plan, rng *rand.Rand) {
		b, model, now := &bucket{Plan: p}, new(storetest.Model), int64(start)
		for n := range 80 {
			if now += pause(p, rng); rng.IntN(6) == 0 {
				now -= rng.Int64N(3 * p.Limit.Period.Microseconds())
			}
			cost := anyCost(p, rng)
			if rng.IntN(3) == 0 {
				cost = -cost
			}
			if now < earliest || now > latest {
				return
			}
			got, d := b.receipt(now, cost)
			c := sluice.Charge{Key: "k", Plan: p, Cost: cost}
			if want := plantest.TakeAt(t, model, now, c)[0]; got != want || d != model.Decide(c, want) {
				t.Fatalf("step %d, cost %d at %d: %+v, %+v, want %+v, %+v", n, cost, now, got, d, want, model.Decide(c, want))
			}
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
