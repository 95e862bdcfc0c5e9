package failover

import (
	"math/bits"
	"time"

	"github.com/sluicehq/sluice"
)

// recast turns the receipt of a share, which plan counts in units that cost unit each,
// into one from which p.Decide(cost, …) derives what the share says. A receipt of the
// whole limit has no room for everything: what is exact is how much remains, or if that
// is too little, when the cost fits (a sliding window counter may promise a little more
// time than it takes), or for what is admitted to a queue, the delay.
func recast(p *sluice.Plan, cost int64, plan *sluice.Plan, unit int64, r sluice.Receipt) sluice.Receipt {
	if unit == 1 {
		return r
	}
	left := plan.Decide(0, r).Remaining / unit
	need := int64(1)
	if !r.Fits {
		need = cost
	}
	switch {
	case p.Kernel == sluice.Meter && p.Limit.Algorithm == sluice.LeakyBucket && r.Fits && cost > 0:
		delay := plan.Decide(times(cost, unit, plan), r).Delay
		r.Used = cost*p.Unit + ticks(p, r.Now, delay)*p.Drain
	case p.Kernel == sluice.Meter && left < need:
		r.Used = p.Size - need*p.Unit + ticks(p, r.Now, waitFor(plan, times(need, unit, plan), r))*p.Drain
	case p.Kernel == sluice.Meter:
		r.Used = p.Size - left*p.Unit
	case p.Kernel == sluice.Units:
		r.Tick = r.Tick * plan.Tick / p.Tick // a limit near FineLogCount may have a share with other ticks
		r.Wait = r.Now/p.Tick + ticks(p, r.Now, waitFor(plan, times(need, unit, plan), r))
		r.Used = p.Capacity - left
	case left < need && p.Limit.Algorithm == sluice.SlidingWindowCounter:
		recastSliding(p, need, plan, times(need, unit, plan), &r)
	default:
		r.Used, r.Prev = p.Capacity-left, 0
	}
	return r
}

// recastSliding finds counts of the whole limit under which need units fit when cost
// units do in the share.
func recastSliding(p *sluice.Plan, need int64, plan *sluice.Plan, cost int64, r *sluice.Receipt) {
	room := plan.Capacity - r.Used - cost
	switch {
	case cost > plan.Capacity:
		r.Used, r.Prev = p.Capacity, 0
	case room >= 0: // once the previous window weighs less
		r.Used = p.Capacity - need - room
	case cost == plan.Capacity: // once both windows are over
		r.Used, r.Prev = (p.Capacity-need)*p.Span+1, 0
	default: // once this window weighs less
		hi, lo := bits.Mul64(uint64(p.Capacity-need), uint64(r.Used))
		of := uint64(plan.Capacity - cost)
		most := (p.Capacity-need)*p.Span + 1
		r.Prev = 0
		if r.Used = most; hi < of {
			q, rest := bits.Div64(hi, lo, of)
			if rest > 0 {
				q++
			}
			r.Used = int64(min(q, uint64(most)))
		}
	}
}

// waitFor returns how long it takes until cost units fit a plan whose state is r. What
// never fits a share may fit when the shared store is back, so it has a wait, too.
func waitFor(plan *sluice.Plan, cost int64, r sluice.Receipt) time.Duration {
	r.Fits = false
	d := plan.Decide(cost, r)
	if d.RetryAfter == sluice.Never {
		return max(d.ResetAfter, time.Second)
	}
	return d.RetryAfter
}

// ticks returns how many ticks of p after that of now the first one begins that is not
// earlier than now + d.
func ticks(p *sluice.Plan, now int64, d time.Duration) int64 {
	return (now+d.Microseconds()+p.Tick-1)/p.Tick - now/p.Tick
}
