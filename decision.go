package sluice

import (
	"math"
	"time"

	"github.com/sluicehq/sluice/kernel"
)

// Never is the RetryAfter of a cost that can never fit: a cost above the plan's capacity or, for permits and distinct
// values, above 1.
const Never time.Duration = math.MaxInt64

// Decision is the answer to a charge, as [Plan.Decide] derives it from the store's [Receipt].
type Decision struct {
	// Allowed reports that the cost fits. For a Take of several charges, [Admitted] reports whether they were
	// committed.
	Allowed bool
	// Remaining is how many units would fit now, rounded down. It does not include turns in a queue that callers
	// have given up.
	Remaining int64
	// RetryAfter of a denied cost is the exact time until it fits, in whole microseconds, provided that no other
	// call takes or gives back units. One tick of the plan earlier, the cost would not fit. RetryAfter is [Never]
	// if the cost can never fit. For an allowed cost, RetryAfter is zero if units remain, and otherwise the time
	// until one more unit fits. For a charge that [Deny] refuses, RetryAfter is a second, because the end of an
	// outage is unknown. For a denied permit in flight, it is a second; for an allowed one, it is zero even if no
	// permit remains.
	RetryAfter time.Duration
	// ResetAfter is the time until nothing is used. It is zero for permits in flight, because the time when they
	// are given back is unknown.
	ResetAfter time.Duration
	// Delay is how long an admitted request of a [LeakyBucket] has to wait for its turn.
	Delay time.Duration
	// Now is the store's clock at the decision, in microseconds since the Unix epoch.
	Now int64
	// Origin is the part of the system that decided.
	Origin Origin
	// Locked reports that a [Penalty] is in force: the key is denied, whatever remains.
	Locked bool
	// Delay is rounded up to whole ticks, and Early is what drains from the queue in this additional time. It
	// is an amount and not a time, in the same unit as the fields Unit and Size of a [kernel.Plan]. Callers do not need
	// it; [Limiter.LeaveQueue] reads it to compute the turn.
	Early int64
}

// RetryAfterSeconds returns RetryAfter in whole seconds, rounded up, for the Retry-After field. It reports false if
// that field should not be sent, because the request can be repeated at once, or because its cost can never fit.
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

// Decide derives the decision for a charge of cost units from its receipt.
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
	if p.Kernel == kernel.Lock {
		p.decideLock(r, d)
		return
	}
	need := int64(1) // RetryAfter is the wait for this cost
	if !r.Fits {
		need = cost
	}
	d.Remaining, d.ResetAfter, d.RetryAfter = p.Answer(&r.Receipt, need)
	switch {
	case need > p.Capacity || p.Kernel.Permits() && need > 1:
		d.RetryAfter = Never
	case p.Kernel == kernel.InFlight && !r.Fits:
		d.RetryAfter = time.Second
	}
	if p.Queue && r.Fits {
		d.Delay, d.Early = p.Delay(cost, &r.Receipt)
	}
}
