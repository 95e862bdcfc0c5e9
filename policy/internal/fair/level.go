package fair

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
)

// Want is a demand and its weight. Both are below 2^42, and the weight is at least 1.
type Want struct{ Demand, Weight int64 }

// Level is the amount per unit of weight: Rest/Weight. If there is enough for all, Weight is 0.
type Level struct{ Rest, Weight int64 }

// Fill divides a capacity by weighted max-min fairness, as water fills vessels: a demand below its fair part is met
// in full, and the rest is divided among the other demands by weight. (Bertsekas and Gallager, Data Networks, 6.5.2.)
// It takes time n·log n, and sorts the slice wants.
func Fill(wants []Want, capacity int64) Level {
	sum := Level{Rest: max(capacity, 0)}
	for _, w := range wants {
		sum.Weight += w.Weight
	}
	slices.SortFunc(wants, func(a, b Want) int {
		ahi, alo := bits.Mul64(uint64(a.Demand), uint64(b.Weight))
		bhi, blo := bits.Mul64(uint64(b.Demand), uint64(a.Weight))
		return cmp.Or(cmp.Compare(ahi, bhi), cmp.Compare(alo, blo))
	})
	for _, w := range wants {
		if !sum.covers(w) {
			return sum
		}
		sum.Rest -= w.Demand
		sum.Weight -= w.Weight
	}
	return Level{}
}

// covers reports whether the part for the weight of w covers the demand of w.
func (l Level) covers(w Want) bool {
	dhi, dlo := bits.Mul64(uint64(w.Demand), uint64(l.Weight))
	phi, plo := bits.Mul64(uint64(l.Rest), uint64(w.Weight))
	return dhi < phi || dhi == phi && dlo <= plo
}

// Of returns the part for a weight, rounded down. If there is enough for all, the part is unlimited.
func (l Level) Of(weight int64) int64 {
	if l.Weight == 0 {
		return math.MaxInt64
	}
	return mulDiv(l.Rest, weight, l.Weight)
}

// mulDiv returns a·b/c, rounded down, and at most MaxInt64. The arguments must not be negative.
func mulDiv(a, b, c int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	if hi >= uint64(c) {
		return math.MaxInt64
	}
	q, _ := bits.Div64(hi, lo, uint64(c))
	return int64(min(q, math.MaxInt64))
}
