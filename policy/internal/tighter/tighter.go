// Package tighter finds limits that never deny, because another limit always denies first.
package tighter

import (
	"math/big"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/kernel"
)

// Than reports whether a is always tighter than b: if both limits are always charged together, every request that a
// allows also fits b. It returns true only if this follows from the definitions of the limits.
func Than(a, b *sluice.Plan) bool {
	switch {
	case a.Kernel == kernel.Meter && b.Kernel == kernel.Meter:
		return meterThan(a, b)
	case a.Kernel == kernel.Meter:
		// In a month, a allows at most its burst and the units that drain.
		most := new(big.Rat).Mul(rate(a), big.NewRat(longestPeriod(b), 1))
		most.Add(most, big.NewRat(a.Capacity, 1))
		return b.Limit.MonthDay > 0 && most.Cmp(big.NewRat(b.Capacity, 1)) <= 0
	case a.Kernel.Log() && b.Kernel.Log():
		// A unit counts in b for less than Span·Tick. The first argument is the number of periods of a that cover
		// this time.
		return windowsFit(ceil(b.Span*b.Tick, longestPeriod(a)), a, b)
	case a.Kernel == kernel.Window && b.Kernel == kernel.Window && a.Limit.Algorithm == b.Limit.Algorithm:
		return windowsFit(windowsWithin(a, b), a, b)
	}
	return false
}

// meterThan is Than for two buckets. A bucket that is smaller and does not drain faster always has less room, if
// both count time in the same ticks.
func meterThan(a, b *sluice.Plan) bool {
	queues := a.Limit.Algorithm == sluice.LeakyBucket || b.Limit.Algorithm == sluice.LeakyBucket
	return !queues && a.Tick == b.Tick && a.Capacity <= b.Capacity && rate(a).Cmp(rate(b)) <= 0
}

// windowsFit reports whether the limit b allows all units of n windows of the limit a.
func windowsFit(n int64, a, b *sluice.Plan) bool { return n > 0 && n <= b.Capacity/a.Capacity }

// windowsWithin returns how many windows of a can have units that count in b at the same time, or 0 if this number is
// unknown.
func windowsWithin(a, b *sluice.Plan) int64 {
	pa, pb := shortestPeriod(a), longestPeriod(b)
	sliding := a.Limit.Algorithm == sluice.SlidingWindowCounter
	switch {
	case divides(b, a): // each window of b is within a window of a
		return 1
	case divides(a, b) && sliding: // b counts the windows of a in its current window, and a fraction of its previous window
		return pb/pa + 1
	case divides(a, b):
		return pb / pa
	case sliding:
		return 0
	}
	return ceil(pb, pa) + 1
}

// divides reports whether every window of b consists of whole windows of a. A month consists of whole days.
func divides(a, b *sluice.Plan) bool {
	const day = int64(24 * time.Hour / time.Microsecond)
	switch pa, pb := longestPeriod(a), longestPeriod(b); {
	case a.Limit.MonthDay > 0:
		return false
	case b.Limit.MonthDay > 0:
		return day%pa == 0
	default:
		return pb%pa == 0
	}
}

// longestPeriod returns the period of a plan in microseconds; for a month, the longest month.
func longestPeriod(p *sluice.Plan) int64 { return p.Limit.Period.Microseconds() }

func shortestPeriod(p *sluice.Plan) int64 {
	if p.Limit.MonthDay > 0 {
		return (28 * 24 * time.Hour).Microseconds()
	}
	return longestPeriod(p)
}

// rate returns units per microsecond.
func rate(p *sluice.Plan) *big.Rat { return big.NewRat(p.Limit.Count, longestPeriod(p)) }

func ceil(a, b int64) int64 { return (a + b - 1) / b }
