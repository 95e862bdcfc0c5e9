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
	// Remaining is how many units would fit now, rounded down. Turns in a queue that callers have given
	// up are not in it.
	Remaining int64
	// RetryAfter is, on a refusal, exactly how long until the cost fits if nobody
	// takes or gives back anything, in whole microseconds: it does not fit one tick of
	// the plan earlier. [Never] says that it can never fit. If the cost was allowed
	// and nothing remains, it is how long until one more unit fits, else zero. For a
	// charge that [Deny] refuses it is a second, since nobody knows when the store will be back,
	// and so it is if all places in flight are taken. It is zero if the last of them was just taken.
	RetryAfter time.Duration
	// ResetAfter is how long until nothing is used. It is zero for places in flight, where that is not known.
	ResetAfter time.Duration
	// Delay is how long an admitted request of a [LeakyBucket] has to wait for its turn.
	Delay time.Duration
	// Now is the store's clock at the decision, in microseconds since the Unix epoch.
	Now int64
	// Origin says who decided.
	Origin Origin
	// Locked says that a [Penalty] is in force: the key is refused, whatever it has left.
	Locked bool
	// Early is the level that drains between the turn and the end of Delay, which is a whole number of
	// ticks: [Limiter.LeaveQueue] needs to know the turn exactly.
	Early int64
}

// RetryAfterSeconds returns RetryAfter in whole seconds, rounded up, for the Retry-After field.
// It reports false if that field should not be sent, because there is nothing to wait for: the
// request may be made at once or, if RetryAfter is [Never], its cost can never fit.
func (d Decision) RetryAfterSeconds() (seconds int64, ok bool) {
	if d.RetryAfter <= 0 || d.RetryAfter == Never {
		return 0, false
	}
	seconds = int64(d.RetryAfter / time.Second)
	if d.RetryAfter%time.Second > 0 {
		seconds++
	}
	return seconds, true
}

// Decide derives the decision for a charge of cost from its receipt. Every store and every
// door decides here.
func (p *Plan) Decide(cost int64, r Receipt) (d Decision) {
	p.DecideInto(cost, &r, &d)
	return d
}

// DecideInto is [Plan.Decide] without copies: it overwrites d.
func (p *Plan) DecideInto(cost int64, r *Receipt, d *Decision) {
	*d = Decision{}
	d.Allowed, d.Now, d.Origin = r.Fits, r.Now, r.Origin
	if r.Origin == ByOnError && !r.Fits {
		d.RetryAfter = time.Second
		return
	}
	need := int64(1) // the cost that RetryAfter is about
	if !r.Fits {
		need = cost
	}
	tick := p.ticks(r.Now)
	var reset int64 // as ticks since the epoch
	switch p.Kernel {
	case Meter:
		d.Remaining = max(0, div(p.Size-r.Used, p.Unit)) // a share may owe more than the limit holds
		reset = tick + ceilDiv(r.Used, p.Drain)
	case Window:
		d.Remaining = max(0, p.windowRoom(r.window(), tick)/p.Span)
		reset = p.EmptyAt(r.window()) / p.Tick
	case Lock:
		p.decideLock(r, d)
		return
	case InFlight:
		d.Remaining = max(0, p.Capacity-r.Used)
		switch {
		case cost > 1 && !r.Fits:
			d.RetryAfter = Never
		case !r.Fits:
			d.RetryAfter = time.Second
		}
		return
	default:
		d.Remaining = max(0, p.Capacity-r.Used)
		if r.Used > 0 {
			reset = r.Tick + p.Span
		}
	}
	d.ResetAfter = p.until(reset, r.Now)
	switch {
	case need > p.Capacity:
		d.RetryAfter = Never
	case d.Remaining < need:
		d.RetryAfter = p.until(p.fitsAt(r, tick, need), r.Now)
	}
	if p.Limit.Algorithm == LeakyBucket && r.Fits {
		level := max(0, r.turnEnd()-max(0, cost)*p.Unit)
		ticks := ceilDiv(level, p.Drain)
		d.Delay, d.Early = p.until(tick+ticks, r.Now), ticks*p.Drain-level
	}
}

// until returns the time from now, in microseconds, to the beginning of a tick, or the
// 292 years that a Duration can hold.
func (p *Plan) until(tick, now int64) time.Duration {
	const most = math.MaxInt64 / int64(time.Microsecond)
	return time.Duration(min(max(0, tick*p.Tick-now), most)) * time.Microsecond
}

// fitsAt returns the tick at which need units fit, which do not fit at tick.
func (p *Plan) fitsAt(r *Receipt, tick, need int64) int64 {
	switch p.Kernel {
	case Meter:
		return tick + ceilDiv(r.Used+need*p.Unit-p.Size, p.Drain)
	case Window:
		if p.monthly() {
			return p.monthEnd(r.Tick)
		}
		return p.windowFitsAt(r, need)
	}
	return r.Wait
}

func (r *Receipt) window() State { return State{Tick: r.Tick, Used: r.Used, Prev: r.Prev} }

func (p *Plan) windowFitsAt(r *Receipt, need int64) int64 {
	end := (r.Tick + 1) * p.Span
	if room := (p.Capacity - r.Used - need) * p.Span; room >= 0 {
		// In this window, as soon as the previous one weighs little enough.
		return end - room/r.Prev
	}
	if !p.sliding() {
		return end
	}
	// In the next one, where the count of this one is the previous.
	return end + p.Span - (p.Capacity-need)*p.Span/r.Used
}
