package recommend

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"strings"
)

// digits is the precision of sums of probabilities in bits. Each step rounds by 2^-256 of its value, so after a
// million steps probabilities are exact to 1e-70.
const digits = 256

// ParseShare parses a share between 0 and 1, such as "0.1%" or "0.001". The result is exact.
func ParseShare(s string) (*big.Rat, error) {
	number, percent := strings.CutSuffix(strings.TrimSpace(s), "%")
	share, ok := new(big.Rat), len(number) <= 30 && strings.Trim(number, "0123456789.") == ""
	if ok {
		share, ok = share.SetString(number)
	}
	if !ok {
		return nil, fmt.Errorf("the share %.40q is not a number: write it as in \"0.1%%\"", s)
	}
	if percent {
		share.Quo(share, big.NewRat(100, 1))
	}
	if share.Sign() <= 0 || share.Cmp(big.NewRat(1, 1)) >= 0 {
		return nil, fmt.Errorf("the share %.40q is not between 0 and 100%%", s)
	}
	return share, nil
}

func number(n int64) *big.Float { return new(big.Float).SetPrec(digits).SetInt64(n) }

func real(r *big.Rat) *big.Float { return new(big.Float).SetPrec(digits).SetRat(r) }

// power returns x to the power of n.
func power(x *big.Float, n int) *big.Float {
	result, square := number(1), new(big.Float).Copy(x)
	for ; n > 0; n >>= 1 {
		if n&1 == 1 {
			result.Mul(result, square)
		}
		square.Mul(square, square)
	}
	return result
}

// binomial calls f with P(Bin(n, share) <= 0), P(... <= 1) and so on, until f returns false.
func binomial(n int, share *big.Rat, f func(j int, atMost *big.Float) bool) {
	p := real(share)
	q := new(big.Float).Sub(number(1), p)
	odds := new(big.Float).Quo(p, q)
	term := power(q, n)
	sum := new(big.Float).Copy(term)
	for j := 0; f(j, sum) && j < n; j++ {
		term.Mul(term, number(int64(n-j)))
		term.Quo(term, number(int64(j+1)))
		term.Mul(term, odds)
		sum.Add(sum, term)
	}
}

// confidence returns the confidence that at most the given share of all subjects exceeds a value that j of n
// independent subjects exceed: P(Bin(n, share) > j). It is valid for any distribution. If values are equal, the
// true confidence is higher.
func confidence(n, j int, share *big.Rat) float64 {
	if j >= n {
		return 0
	}
	var c float64
	binomial(n, share, func(i int, atMost *big.Float) bool {
		if i == j {
			c, _ = new(big.Float).Sub(number(1), atMost).Float64()
		}
		return i < j
	})
	return max(c, 0)
}

// mayExceed returns the largest j for which confidence(n, j, share) reaches sure, or -1 if not even the largest of
// n values is a bound.
func mayExceed(n int, share, sure *big.Rat) int {
	unsure := new(big.Float).Sub(number(1), real(sure))
	best := -1
	binomial(n, share, func(j int, atMost *big.Float) bool {
		if atMost.Cmp(unsure) > 0 {
			return false
		}
		best = j
		return true
	})
	return min(best, n-1)
}

// needed returns the least number of subjects for which the largest of their values bounds the share with the
// confidence sure (Wilks 1941).
func needed(share, sure *big.Rat) int {
	e, _ := share.Float64()
	c, _ := sure.Float64()
	guess := math.Log1p(-c) / math.Log1p(-e)
	if guess > math.MaxInt32 {
		return math.MaxInt32 // more subjects than any log has
	}
	n := max(1, int(guess)-2)
	unsure := new(big.Float).Sub(number(1), real(sure))
	for q := new(big.Float).Sub(number(1), real(share)); power(q, n).Cmp(unsure) > 0; {
		n++
	}
	return n
}

// attainable returns the share that the largest of n values bounds with the confidence sure: 1 - (1-sure)^(1/n),
// about 3/n at 95 %.
func attainable(n int, sure *big.Rat) float64 {
	if n < 1 {
		return 1
	}
	c, _ := sure.Float64()
	return -math.Expm1(math.Log1p(-c) / float64(n))
}

// nextDay returns the probability that at most k of m further subjects exceed the value that j of n subjects
// exceed. If all subjects are drawn from one distribution, the number E of further subjects that exceed it has
// P(E=e) = C(j+e, e) C(n-j-1+m-e, m-e) / C(n+m, m).
func nextDay(n, j, m, k int) float64 {
	switch {
	case j >= n || k < 0:
		return 0
	case k >= m:
		return 1
	}
	term := number(1)
	for i := range j + 1 {
		term.Mul(term, number(int64(n-i)))
		term.Quo(term, number(int64(n+m-i)))
	}
	sum := new(big.Float).Copy(term)
	for e := range k {
		term.Mul(term, number(int64(j+e+1)))
		term.Mul(term, number(int64(m-e)))
		term.Quo(term, number(int64(e+1)))
		term.Quo(term, number(int64(n-j-1+m-e)))
		sum.Add(sum, term)
	}
	p, _ := sum.Float64()
	return min(p, 1)
}

// part returns a share of n, rounded down.
func part(share *big.Rat, n int64) int64 {
	x := new(big.Rat).Mul(share, new(big.Rat).SetInt64(n))
	return new(big.Int).Quo(x.Num(), x.Denom()).Int64()
}

var errNoRequests = errors.New("no request in the logs has a value of the key: there is nothing to make limits from")
