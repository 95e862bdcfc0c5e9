// Package tighter finds limits that never refuse, because another one always does before. Package policy is
// above it; below it is package sluice, with the plans of limits.
package tighter

import (
	"math/big"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/kernel"
)

// Than reports whether a is always tighter than b: whatever a has let pass, always and together with b, has
// room in b. It reports so only where that follows from the definitions.
func Than(a, b *sluice.Plan) bool {
	switch {
	case a.Kernel == kernel.Meter && b.Kernel == kernel.Meter:
		return meterThan(a, b)
	case a.Kernel == kernel.Meter:
		// What a lets pass in a month: its burst, and what drains.
		most := new(big.Rat).Mul(rate(a), big.NewRat(longestPeriod(b), 1))
		most.Add(most, big.NewRat(a.Capacity, 1))
		return b.Limit.MonthDay > 0 && most.Cmp(big.NewRat(b.Capacity, 1)) <= 0
	case a.Kernel.Log() && b.Kernel.Log():
		// A unit is in b for less than this, which so many periods of a cover.
		return windowsFit(ceil(b.Span*b.Tick, longestPeriod(a)), a, b)
	case a.Kernel == kernel.Window && b.Kernel == kernel.Window && a.Limit.Algorithm == b.Limit.Algorithm:
		return windowsFit(windowsWithin(a, b), a, b)
	}
	return false
}

// meterThan is Than for buckets: one that is smaller, and drains no faster, is always the fuller one. So long
// as both see time go by in the same ticks.
func meterThan(a, b *sluice.Plan) bool {
	queues := a.Limit.Algorithm == sluice.LeakyBucket || b.Limit.Algorithm == sluice.LeakyBucket
	return !queues && a.Tick == b.Tick && a.Capacity <= b.Capacity && rate(a).Cmp(rate(b)) <= 0
}

// windowsFit reports whether what n windows of a let pass fits b.
func windowsFit(n int64, a, b *sluice.Plan) bool { return n > 0 && n <= b.Capacity/a.Capacity }

// windowsWithin returns how many windows of a, at the most, can have units that count in b at a
// time, or 0 where that is not known.
func windowsWithin(a, b *sluice.Plan) int64 {
	pa, pb := shortestPeriod(a), longestPeriod(b)
	sliding := a.Limit.Algorithm == sluice.SlidingWindowCounter
	switch {
	case divides(b, a): // each window of b is in one of a
		return 1
	case divides(a, b) && sliding: // the windows of this one that have begun, and a share of the last one
		return pb/pa + 1
	case divides(a, b):
		return pb / pa
	case sliding:
		return 0
	}
	return ceil(pb, pa) + 1
}

// divides reports whether every window of b is made of whole windows of a. A month is of whole days.
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

// longestPeriod returns that of a plan in microseconds, of a month the longest.
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
