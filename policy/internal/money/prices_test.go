package money

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/sluicehq/sluice/internal/seed"
)

// Costs of random prices and tokens equal those computed with big numbers.
func TestCostExactly(t *testing.T) {
	t.Parallel()
	s := seed.Of(t)
	rng := rand.New(rand.NewPCG(s, s))
	const mostPrice = 1_000_000 * Millionths
	number := func(most int64) int64 { return rng.Int64N(most>>rng.IntN(40) + 1) }
	for range 20_000 {
		p := Price{Input: number(mostPrice), Cached: number(mostPrice), Written: number(mostPrice), Output: number(mostPrice)}
		n := Tokens{Input: number(math.MaxInt64 - 1), Output: number(math.MaxInt64 - 1)}
		n.Cached = number(n.Input)
		n.Written = number(n.Input - n.Cached)
		sum := new(big.Int)
		for _, of := range [][2]int64{{n.Input - n.Cached - n.Written, p.Input}, {n.Cached, p.Cached}, {n.Written, p.Written}, {n.Output, p.Output}} {
			sum.Add(sum, new(big.Int).Mul(big.NewInt(of[0]), big.NewInt(of[1])))
		}
		want, rest := new(big.Int).QuoRem(sum, big.NewInt(Millionths), new(big.Int))
		if rest.Sign() > 0 {
			want.Add(want, big.NewInt(1))
		}
		if want.Cmp(big.NewInt(math.MaxInt64)) > 0 {
			want.SetInt64(math.MaxInt64)
		}
		if got := p.Cost(n); got != want.Int64() {
			t.Fatalf("seed %d: %+v of %+v costs %d, want %v", s, n, p, got, want)
		}
	}
}
