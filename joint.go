package sluice

import (
	"context"
	"math"
	"slices"

	"github.com/sluicehq/sluice/internal/turns"
	"github.com/sluicehq/sluice/kernel"
)

// joint is the scratch memory for a Take of several charges, as call is for one.
type joint struct {
	charges  []Charge
	receipts []Receipt
	key      []byte
}

func newJoint(limits int) *joint {
	return &joint{charges: make([]Charge, limits), receipts: make([]Receipt, limits)}
}

// compile sets the limiter's plans.
func (l *Limiter) compile(limits []Limit) error {
	if len(limits) == 0 {
		return usage("sluice: NewLimiter needs a limit: sluice.ParseLimit(\"100/minute\") returns one")
	}
	for i, limit := range limits {
		plan, err := NewPlan(limit)
		if err != nil {
			return &usageError{err}
		}
		same := func(p *Plan) bool { return p.Fingerprint == plan.Fingerprint }
		if j := slices.IndexFunc(l.plans, same); j >= 0 {
			return usage("sluice: the limits %v and %v have the same rate or the same window, so one of them never denies: leave out the one that lets more pass", limits[j], limits[i])
		}
		if limit.Algorithm == LeakyBucket {
			if l.queue != nil {
				return usage("sluice: the limits %v and %v are both a leaky_bucket, and a request waits in one queue only: make the other a token_bucket", l.queue.Limit, limit)
			}
			l.queue = plan
		}
		l.plans = append(l.plans, plan)
	}
	return nil
}

// Plans returns the compiled limits, in the order of the arguments of [NewLimiter]. Callers must not change the
// slice.
func (l *Limiter) Plans() []*Plan { return l.plans }

// TakeEach does what [Limiter.Take] does, and also writes the decision of every limit to the slice decisions, which
// must be as long as Plans. If any limit denies, no limit counts anything, not even those with an Allowed decision.
func (l *Limiter) TakeEach(ctx context.Context, key string, cost int64, decisions []Decision) (d Decision, err error) {
	switch {
	case cost < 1:
		return d, wrongCost(cost)
	case len(decisions) != len(l.plans):
		return d, usage("sluice: TakeEach by %d limits, but room for %d decisions", len(l.plans), len(decisions))
	case len(l.plans) == 1:
		decisions[0], err = l.Take(ctx, key, cost)
		return decisions[0], err
	}
	clear(decisions)
	err = l.takeJoint(ctx, key, cost, &d, decisions)
	l.observers.call(ctx, key, cost, d, err)
	return d, err
}

// LeaveQueue gives up a turn in the queue of a [LeakyBucket], and the limiter gives the turn to a later caller. d
// is the decision of Take for cost units. Call LeaveQueue at most once for each decision, before its Delay is over,
// and do not wait any more. The other limits of the limiter are not refunded, because their units may belong to a
// window that has ended. Without a LeakyBucket, LeaveQueue does nothing. See [Turns].
func (l *Limiter) LeaveQueue(key string, cost int64, d Decision) error {
	switch {
	case cost < 1:
		return usage("sluice: LeaveQueue with %d units: must be at least 1", cost)
	case l.queue == nil || !d.Allowed || d.Delay <= 0 || d.Origin.Degraded():
		return nil
	case cost > l.queue.Capacity:
		return usage("sluice: LeaveQueue with %d units: %v never lets more than %d wait", cost, l.queue.Limit, l.queue.Capacity)
	}
	var text []byte
	l.turns.Leave(d.turn(l.key(&text, key), l.queue, cost))
	return nil
}

// turn returns the turn that a decision waits for.
func (d *Decision) turn(key string, p *Plan, cost int64) turns.Turn {
	tick := (d.Now + d.Delay.Microseconds()) / p.Tick // the tick in which the delay ends
	from := kernel.Point{Tick: tick}
	if d.Early > 0 {
		from = p.PointAt(tick-1, p.Drain-d.Early)
	}
	return turns.New(key, &p.Plan, p.Turn(from, cost), d.Now)
}

// takeJoint is take for several charges. It sets d and, unless decisions is nil, writes the decision of every limit
// to decisions.
func (l *Limiter) takeJoint(ctx context.Context, key string, cost int64, d *Decision, decisions []Decision) error {
	if l.Lock != nil && l.Lock.Kernel != kernel.Lock {
		return usage("sluice: the Lock of the limiter %q is the plan of a limit: make it with Penalty.Plan", l.name)
	}
	c := l.joints.Get().(*joint)
	key = l.key(&c.key, key)
	c.charges = c.charges[:0]
	for _, plan := range l.plans {
		c.charges = append(c.charges, Charge{Key: key, Plan: plan, Cost: costOf(plan, cost), OnError: l.OnError, Consistency: l.Consistency})
	}
	if l.Lock != nil {
		c.charges = append(c.charges, Charge{Key: key, Plan: l.Lock, Cost: lockCost(cost), OnError: l.OnError})
	}
	c.receipts = c.receipts[:len(c.charges)]
	err := l.turns.Take(ctx, l.store, c.charges, c.receipts)
	if err == nil {
		for i := range c.charges {
			l.turned(&c.charges[i], cost, &c.receipts[i])
		}
		*d = tightest(c, decisions)
	}
	clear(c.charges)
	l.joints.Put(c)
	return err
}

// costOf returns the cost to charge by a plan. The cost of a refund to a queue is 0, because the turns behind the
// refunded units belong to other callers.
func costOf(p *Plan, cost int64) int64 {
	if cost < 0 && cost != All && p.Queue {
		return 0
	}
	return cost
}

// turned updates the turns after a call of the store: it drops the turns of a queue that was reset, and makes a
// peek return the turn that a unit would get.
func (l *Limiter) turned(c *Charge, cost int64, r *Receipt) {
	switch {
	case c.Plan != l.queue:
	case cost == All:
		l.turns.Forget(c.Key, c.Plan)
	case cost == 0 && l.turns.Offer(c, 1, r):
		c.Cost = 1
	}
}

// lockCost returns the cost to charge to a penalty along with a limit's cost. A refund does not change the penalty;
// a cost of [All] lifts it.
func lockCost(cost int64) int64 {
	if cost < 0 && cost != All {
		return 0
	}
	return min(cost, 1)
}

// tightest returns one decision for all limits, with the smallest Remaining and the longest waits of any.
func tightest(c *joint, decisions []Decision) Decision {
	all := Decision{Allowed: true, Remaining: math.MaxInt64, Now: c.receipts[0].Now}
	limits, lock := len(c.charges), Decision{Allowed: true}
	if last := limits - 1; c.charges[last].Plan.Kernel == kernel.Lock {
		limits = last
		lock = c.charges[last].Plan.Decide(c.charges[last].Cost, c.receipts[last])
	}
	for i := range limits {
		var one Decision
		c.charges[i].Plan.DecideInto(c.charges[i].Cost, &c.receipts[i], &one)
		one.LockOut(lock)
		all.tighten(&one)
		if decisions != nil {
			decisions[i] = one
		}
	}
	if !all.Allowed { // a denied call has no turn to wait for
		all.Delay, all.Early = 0, 0
		for i := range decisions {
			decisions[i].Delay, decisions[i].Early = 0, 0
		}
	}
	return all
}

// tighten combines d with one, the decision of another limit: see tightest.
func (d *Decision) tighten(one *Decision) {
	switch {
	case d.Allowed == one.Allowed:
		d.Origin = max(d.Origin, one.Origin)
	case d.Allowed: // d becomes a denial
		d.Allowed, d.Origin = false, one.Origin
	}
	d.Remaining = min(d.Remaining, one.Remaining)
	d.RetryAfter = max(d.RetryAfter, one.RetryAfter)
	d.ResetAfter = max(d.ResetAfter, one.ResetAfter)
	if one.Delay > d.Delay { // only the queue has a Delay
		d.Delay, d.Early = one.Delay, one.Early
	}
	d.Locked = d.Locked || one.Locked
}
