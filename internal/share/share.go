// Package share divides a limit among instances that cannot count together. Package failover imports it for
// outages. It imports packages sluice and kernel.
package share

import (
	"math/bits"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/kernel"
)

// Share is one instance's share of a limit that is divided among several instances while they cannot count
// together. It counts with the algorithm of the limit, but charges n units for each unit if the limit is divided by
// n. This divides any rate exactly, even 7 per second by two. A share is at least one unit.
type Share struct {
	// Plan counts the share.
	Plan *sluice.Plan

	limit *sluice.Plan
	unit  int64 // the cost, in units of Plan, of a unit of limit
}

// Of returns the share of one of n instances in the limit of p. n must be at least 1. A penalty is not divided. A
// number of permits or of distinct values is divided by n and rounded down.
func Of(p *sluice.Plan, n int64) Share {
	if p.Kernel.Permits() {
		part := *p
		part.Capacity = max(1, p.Capacity/n)
		return Share{Plan: &part, limit: p, unit: 1}
	}
	plan := dividable(p, n)
	return Share{Plan: plan, limit: p, unit: min(n, plan.Capacity)}
}

// dividable returns the plan that counts one of n shares. This is p itself, unless n units do not fit at once or
// the count is not a multiple of n.
func dividable(p *sluice.Plan, n int64) *sluice.Plan {
	l := p.Limit
	switch p.Kernel {
	case kernel.Lock:
		return p
	case kernel.Meter:
		l.Burst = max(l.Burst, n)
	default:
		l.Count = max(1, l.Count/n) * n
	}
	if l == p.Limit {
		return p
	}
	d, err := sluice.NewPlan(l)
	if err != nil {
		return p // one unit costs the whole capacity
	}
	if owed, err := d.WithMost(d.Capacity + p.Most - p.Capacity); p.Most > p.Capacity && err == nil {
		return owed
	}
	return d
}

// Cost converts the cost of a charge from units of the limit to units of the share.
func (s Share) Cost(cost int64) int64 {
	switch {
	case s.limit.Kernel.Permits():
		return cost // a negative cost gives back only the permit that the charge names
	case cost > s.Plan.Most/s.unit:
		return s.Plan.Most + 1 // never fits, and cannot overflow
	case cost < -s.Plan.Most/s.unit:
		return sluice.All
	}
	return cost * s.unit
}

// Used returns the cost to charge to an empty share if the given number of units of the whole limit remains.
// Afterwards, an nth of these units remains in the share.
func (s Share) Used(remaining int64) int64 {
	switch {
	case s.limit.Capacity < s.unit:
		remaining = 0 // the limit has fewer units than there are instances
	case s.Plan.Kernel != kernel.Meter:
		remaining -= remaining % s.unit // the count stays a multiple of whole units of the share
	}
	return s.Plan.Capacity - remaining
}

// Ahead returns by how many units of the limit the use in r exceeds the use in baseline, rounded up. Both are
// receipts of the share for the same time. The result is at most the limit's capacity.
func (s Share) Ahead(r, baseline sluice.Receipt) int64 {
	more := s.Plan.Decide(0, baseline).Remaining - s.Plan.Decide(0, r).Remaining
	return min(max(0, (more+s.unit-1)/s.unit), s.limit.Capacity)
}

// Receipt turns the share's receipt of a charge into one from which the limit's own plan derives the share's
// decision. cost is in units of the limit. A receipt of the whole limit cannot express the whole state of a share,
// so only one value is exact. For a request that is admitted to a queue, this is the delay. If less than the cost
// remains, it is the wait, which may be slightly too long for a sliding window counter. Otherwise it is the
// remaining units.
func (s Share) Receipt(cost int64, r sluice.Receipt) sluice.Receipt {
	p, plan := s.limit, s.Plan
	switch {
	case p.Kernel.Permits():
		r.Used += p.Capacity - plan.Capacity
		return r
	case s.unit == 1:
		return r
	}
	left := plan.Decide(0, r).Remaining / s.unit
	need := int64(1)
	if !r.Fits && cost <= p.Capacity { // a larger cost never fits, so it has no wait
		need = cost
	}
	switch {
	case p.Limit.Algorithm == sluice.LeakyBucket && r.Fits && cost > 0:
		r.Used = cost*p.Unit + ticksUntil(p, r.Now, plan.Decide(s.Cost(cost), r).Delay)*p.Drain
	case p.Kernel == kernel.Meter && left < need:
		r.Used = p.Size - need*p.Unit + ticksUntil(p, r.Now, s.wait(need, r))*p.Drain
	case p.Kernel == kernel.Meter:
		r.Used = p.Size - left*p.Unit
	case p.Kernel.Log():
		r.Tick = r.Tick * plan.Tick / p.Tick // a limit near kernel.FineLogCount may have a share with other ticks
		r.Wait = r.Now/p.Tick + ticksUntil(p, r.Now, s.wait(need, r))
		r.Used = p.Capacity - left
	case left < need && p.Sliding:
		r.Used, r.Prev = s.slidingCounts(need, &r)
	default:
		r.Used, r.Prev = p.Capacity-left, 0
	}
	return r
}

// slidingCounts returns counts of the windows of the whole limit with which the given units fit at the same time as
// in the share.
func (s Share) slidingCounts(need int64, r *sluice.Receipt) (used, prev int64) {
	p, plan, cost := s.limit, s.Plan, s.Cost(need)
	room := plan.Capacity - r.Used - cost
	switch {
	case cost > plan.Capacity:
		return p.Capacity, 0
	case room >= 0: // the units fit when the previous window counts less
		return p.Capacity - need - room, r.Prev
	case cost == plan.Capacity: // the units fit when both windows are over
		return (p.Capacity-need)*p.Span + 1, 0
	}
	// The units fit when the current window has become the previous one, and counts less.
	most := (p.Capacity-need)*p.Span + 1
	hi, lo := bits.Mul64(uint64(p.Capacity-need), uint64(r.Used))
	of := uint64(plan.Capacity - cost)
	if hi >= of {
		return most, 0
	}
	q, rest := bits.Div64(hi, lo, of)
	if rest > 0 {
		q++
	}
	return int64(min(q, uint64(most))), 0
}

// wait returns the time until units of the limit fit the share with receipt r. A cost that never fits the share
// gets a wait, too, because it may fit when the instances count together again.
func (s Share) wait(units int64, r sluice.Receipt) time.Duration {
	r.Fits = false
	d := s.Plan.Decide(s.Cost(units), r)
	if d.RetryAfter == sluice.Never {
		return max(d.ResetAfter, time.Second)
	}
	return d.RetryAfter
}

// ticksUntil returns the number of ticks from the tick that contains the time now to the first tick that begins at
// the time now + d or later.
func ticksUntil(p *sluice.Plan, now int64, d time.Duration) int64 {
	return ceilDiv(now+d.Microseconds(), p.Tick) - now/p.Tick
}

// Owes is [Share.Cost] for units that are owed. It is not limited to the Most of the share's plan, so that a
// receipt shows how much was cut.
func (s Share) Owes(units int64) int64 {
	const most = 1 << 51 // more than any state contains
	if units > most/s.unit {
		return most
	}
	return units * s.unit
}

// Units converts a cost from units of the share to units of the limit, rounded up.
func (s Share) Units(cost int64) int64 { return ceilDiv(cost, s.unit) }

// ceilDiv returns a/b rounded up, for a ≥ 0 and b > 0.
func ceilDiv(a, b int64) int64 { return (a + b - 1) / b }
