package policy

import (
	"math/big"
	"slices"
	"strings"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/kernel"
)

// idle warns of limits that never refuse, because another one of their list does before. Where
// limits count apart, since they are only watched or settled one by one, or where one has a count in
// common with limits that apply at other times, nothing is known.
func (w *warner) idle(r *rule) {
	if r.isLenient() || r.settles() {
		return
	}
	for _, set := range r.sets() {
		of := ""
		if tier, found := strings.CutPrefix(set.from, "tier:"); found {
			of = " of the tier " + tier
		}
		for _, b := range set.limits {
			if a := tighter(set.limits, b.plan); a != nil && !w.policy.countsElsewhere(r, set, b.plan) {
				w.add(r, "", "leave it out, or lower it", "the limit %v%s never refuses, since %v is always tighter", b.plan.Limit, of, a.Limit)
			}
		}
	}
}

// countsElsewhere reports whether a limit of another tier or of an override of the rule has its
// count in common with a plan of the set.
func (p *Policy) countsElsewhere(r *rule, set *resolved, plan *sluice.Plan) bool {
	same := func(l limit) bool { return l.plan.Fingerprint == plan.Fingerprint }
	for _, other := range r.sets() {
		if other != set && slices.ContainsFunc(other.limits, same) {
			return true
		}
	}
	overrides := p.overrides.of(r)
	return overrides != nil && slices.ContainsFunc(overrides.Values(), func(o *resolved) bool {
		return slices.ContainsFunc(o.limits, same)
	})
}

// tighter returns the first of the limits that certainly refuses before b does, or nil.
func tighter(limits []limit, b *sluice.Plan) *sluice.Plan {
	for _, a := range limits {
		if a.plan != b && isTighter(a.plan, b) {
			return a.plan
		}
	}
	return nil
}

// isTighter reports whether whatever a has let pass, always and together with b, has room in b. It
// says so only where that follows from the definitions.
func isTighter(a, b *sluice.Plan) bool {
	switch {
	case a.Kernel == kernel.Meter && b.Kernel == kernel.Meter:
		return isTighterMeter(a, b)
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

// isTighterMeter: a bucket that is smaller, and drains no faster, is always the fuller one. So long
// as both see time go by in the same ticks.
func isTighterMeter(a, b *sluice.Plan) bool {
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
