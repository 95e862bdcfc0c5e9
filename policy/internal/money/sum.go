package money

import (
	"math"
	"math/bits"
)

// Millionths is a million: weights and prices are whole numbers of millionths.
const Millionths = 1_000_000

// Sum is a sum of products, in 128 bits.
type Sum struct{ hi, lo uint64 }

// Add adds a·b. Neither factor may be negative. Four products of any size do not overflow the sum, and neither do
// 2^20 products of a weight and a number from a response.
func (s *Sum) Add(a, b int64) {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	var carry uint64
	s.lo, carry = bits.Add64(s.lo, lo, 0)
	s.hi += hi + carry
}

// Sub subtracts o. The difference is 0 if o is larger.
func (s *Sum) Sub(o Sum) {
	lo, borrow := bits.Sub64(s.lo, o.lo, 0)
	hi, borrow := bits.Sub64(s.hi, o.hi, borrow)
	if *s = (Sum{hi, lo}); borrow > 0 {
		*s = Sum{}
	}
}

// CeilDiv returns the sum divided by d and rounded up, at most the largest int64.
func (s *Sum) CeilDiv(d uint64) int64 {
	if s.hi >= d {
		return math.MaxInt64
	}
	q, r := bits.Div64(s.hi, s.lo, d)
	if r > 0 {
		q++
	}
	return int64(min(q, math.MaxInt64))
}
