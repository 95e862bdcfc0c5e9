package fair

import (
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/sluicehq/sluice/internal/seed"
)

// naive divides by the definition: it raises the level of all unsatisfied tenants until one of them is satisfied, and
// repeats this until nothing is left.
func naive(wants []Want, capacity int64) (got []*big.Rat) {
	got = make([]*big.Rat, len(wants))
	open := make(map[int]bool)
	for i := range wants {
		got[i] = new(big.Rat)
		open[i] = true
	}
	left := big.NewRat(capacity, 1)
	for left.Sign() > 0 && len(open) > 0 {
		weights := new(big.Rat)
		for i := range open {
			weights.Add(weights, big.NewRat(wants[i].Weight, 1))
		}
		rise := new(big.Rat).Quo(left, weights) // for each unit of weight
		for i := range open {
			need := new(big.Rat).Sub(big.NewRat(wants[i].Demand, 1), got[i])
			if need.Quo(need, big.NewRat(wants[i].Weight, 1)); need.Cmp(rise) < 0 {
				rise = need
			}
		}
		for i := range open {
			more := new(big.Rat).Mul(rise, big.NewRat(wants[i].Weight, 1))
			got[i].Add(got[i], more)
			left.Sub(left, more)
			if got[i].Cmp(big.NewRat(wants[i].Demand, 1)) >= 0 {
				delete(open, i)
			}
		}
	}
	return got
}

func TestFill(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(seed.Of(t), 0))
	for range 3000 {
		wants, capacity := someWants(r)
		want := naive(wants, capacity)
		level := Fill(append([]Want(nil), wants...), capacity)
		all, demand, weights := new(big.Rat), int64(0), int64(0)
		for _, w := range wants {
			demand += w.Demand
			weights += w.Weight
		}
		if (level.Weight == 0) != (demand <= capacity) {
			t.Fatalf("%v of %d: level %v, and the demand is %d", wants, capacity, level, demand)
		}
		for i, w := range wants {
			got := big.NewRat(w.Demand, 1)
			if level.Weight > 0 {
				if part := new(big.Rat).Mul(big.NewRat(level.Rest, level.Weight), big.NewRat(w.Weight, 1)); part.Cmp(got) < 0 {
					got = part
				}
			}
			if got.Cmp(want[i]) != 0 {
				t.Fatalf("%v of %d: %d has %v, and by definition %v", wants, capacity, i, got, want[i])
			}
			if least := big.NewRat(capacity*w.Weight, weights); got.Cmp(big.NewRat(w.Demand, 1)) < 0 && got.Cmp(least) < 0 {
				t.Fatalf("%v of %d: %d has %v, less than its allocation %v", wants, capacity, i, got, least)
			}
			all.Add(all, got)
		}
		if all.Cmp(big.NewRat(min(capacity, demand), 1)) != 0 {
			t.Fatalf("%v of %d: all have %v", wants, capacity, all)
		}
	}
}

func someWants(r *rand.Rand) (wants []Want, capacity int64) {
	most := int64(1) << r.IntN(36)
	for range r.IntN(9) {
		wants = append(wants, Want{r.Int64N(most), 1 + r.Int64N(int64(1)<<r.IntN(10))})
	}
	return wants, r.Int64N(4 * most)
}

// Fill is right with the largest possible numbers.
func TestFillHolds(t *testing.T) {
	t.Parallel()
	wants := []Want{{1 << 41, MaxWeight}, {1 << 41, MaxWeight * MaxTenants}, {1, 1}}
	if got, want := Fill(wants, 1<<41), (Level{1<<41 - 1, MaxWeight * (MaxTenants + 1)}); got != want {
		t.Fatalf("got %v, want %v", got, want)
	}
}
