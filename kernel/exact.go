package kernel

import "math/bits"

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// product returns a·b for a, b ≥ 0, and whether it is at most maxExact.
func product(a, b int64) (int64, bool) {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	return int64(lo), hi == 0 && lo <= maxExact
}

// ceilDiv returns a/b rounded up, for a ≥ 0 and b > 0.
func ceilDiv(a, b int64) int64 {
	q := div(a, b)
	if q*b < a {
		q++
	}
	return q
}

// div returns a/b for b > 0. Divisions are most of the cost of a decision. So div returns at once for the common
// divisor 1, and divides 32-bit numbers where it can, which takes a third of the time on older processors.
func div(a, b int64) int64 {
	switch {
	case b == 1:
		return a
	case uint64(a|b)>>32 == 0:
		return int64(uint32(a) / uint32(b))
	}
	return a / b
}
