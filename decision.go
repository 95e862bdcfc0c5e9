package sluice

import (
	"math"
	"time"
)

// Never is the RetryAfter of a cost above the plan's capacity: it can never fit.
const Never time.Duration = math.MaxInt64

// Decision is what a [Receipt] means for the caller.
type Decision struct {
	// Allowed says that the cost fits. For one of several charges, see [Admitted].
	Allowed bool
	// Remaining is how many units would fit now, rounded down.
	Remaining int64
	// RetryAfter is, on a refusal, exactly how long until the cost fits if nobody
	// takes or gives back anything, in whole microseconds: it does not fit one tick of
	// the plan earlier. [Never] says that it can never fit. Where the cost was allowed
	// and nothing remains, it is how long until one more unit fits, else zero.
	RetryAfter time.Duration
	// ResetAfter is how long until nothing is used.
	ResetAfter time.Duration
	// Delay is how long an admitted request of a [LeakyBucket] has to wait for its turn.
	Delay time.Duration
}

// Decide derives the decision for a charge of cost from its receipt. This is the one
// place where it is done, for every store and every door.
func (p *Plan) Decide(cost int64, r Receipt) Decision {
	d := Decision{Allowed: r.Fits}
	need := int64(1) // the cost that RetryAfter is about
	if !r.Fits {
		need = cost
	}
	tick := r.Now / p.Tick
	var wait, reset int64 // as ticks since the epoch
	switch p.Kernel {
	case Meter:
		d.Remaining = max(0, p.Size-r.Used) / p.Unit
		wait = tick + p.meterWait(r, need)
		reset = tick + ceilDiv(r.Used, p.Drain)
	case Window:
		d.Remaining = max(0, floorDiv(p.windowRoom(r.window(), tick), p.Span))
		wait = p.windowWait(r, tick, need)
		reset = p.EmptyAt(r.window()) / p.Tick
	case Units:
		d.Remaining = max(0, p.Capacity-r.Used)
		wait = r.Wait
		if r.Used > 0 {
			reset = r.Tick + p.Span
		}
	}
	d.ResetAfter = p.until(reset, r.Now)
	switch {
	case need > p.Capacity:
		d.RetryAfter = Never
	case d.Remaining < need:
		d.RetryAfter = p.until(wait, r.Now)
	}
	if p.Limit.Algorithm == LeakyBucket && r.Fits {
		d.Delay = p.until(tick+ceilDiv(max(0, r.Used-max(0, cost)*p.Unit), p.Drain), r.Now)
	}
	return d
}

// until returns the time from now, in microseconds, to the beginning of a tick.
func (p *Plan) until(tick, now int64) time.Duration {
	return time.Duration(max(0, tick*p.Tick-now)) * time.Microsecond
}

// meterWait returns the ticks until need units fit.
func (p *Plan) meterWait(r Receipt, need int64) int64 {
	if need > p.Capacity {
		return 0
	}
	return ceilDiv(max(0, r.Used+need*p.Unit-p.Size), p.Drain)
}

func (r Receipt) window() State { return State{Tick: r.Tick, Used: r.Used, Prev: r.Prev} }

// windowWait returns the tick at which need units fit.
func (p *Plan) windowWait(r Receipt, tick, need int64) int64 {
	if need > p.Capacity {
		return 0
	}
	end := (r.Tick + 1) * p.Span
	if room := (p.Capacity - r.Used - need) * p.Span; room >= 0 {
		if r.Prev == 0 {
			return tick
		}
		// In this window, as soon as the previous one weighs little enough.
		return end - min(p.left(r.Tick, tick), room/r.Prev)
	}
	if !p.sliding() {
		return end
	}
	// In the next one, where the count of this one is the previous.
	return end + p.Span - min(p.Span, (p.Capacity-need)*p.Span/r.Used)
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}
