package answer

import (
	"context"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/policy"
)

// Take takes cost units of a limiter, at least 1, and sets d to the decision that a policy with this one rule would
// make. d must be empty, or set by an earlier Take: its memory is then reused.
func Take(ctx context.Context, l *sluice.Limiter, rule, key string, cost int64, d *policy.Decision) {
	if len(l.Plans()) > 1 {
		each := make([]sluice.Decision, len(l.Plans()))
		took, err := l.TakeEach(ctx, key, cost, each)
		*d = policy.Decision{Results: newResults(l, rule, cost)}
		for i := range each {
			d.Results[i].Decision = each[i]
		}
		set(l, &took, err, d)
		return
	}
	took, err := l.Take(ctx, key, cost)
	if len(d.Results) != 1 {
		*d = policy.Decision{Results: append(d.Results[:0], policy.Result{})}
	}
	one := &d.Results[0]
	one.Rule, one.Plan, one.Cost, one.Decision = rule, l.Plan(), cost, took
	set(l, &took, err, d)
}

// set sets the fields of d that are common to all limits.
func set(l *sluice.Limiter, took *sluice.Decision, err error, d *policy.Decision) {
	d.Allowed, d.RetryAfter, d.Delay, d.Now = took.Allowed, took.RetryAfter, took.Delay, took.Now
	d.Degraded, d.Unavailable = took.Origin.Degraded(), took.Origin == sluice.ByOnError && !took.Allowed
	if d.Err != nil { // rare; writing the field each time would cost time
		d.Err = nil
	}
	if err != nil {
		d.Unavailable = l.OnError == sluice.Deny
		d.Degraded, d.Err, d.Allowed, d.RetryAfter = true, err, !d.Unavailable, time.Second
	}
	if d.Unavailable {
		d.Now = 0
	}
}

// GiveBack gives up the turn that a [Take] has set in d, before the turn comes: see [sluice.Limiter.LeaveQueue].
func GiveBack(l *sluice.Limiter, key string, cost int64, d *policy.Decision) {
	for i := range d.Results {
		if r := &d.Results[i]; d.Allowed && r.Delay > 0 { // a limiter has only one queue
			_ = l.LeaveQueue(key, cost, r.Decision) // no error is possible, because Take accepted the same cost
		}
	}
}

// adjustTimeout bounds the time that Adjust may take if the store has no deadline of its own.
const adjustTimeout = 5 * time.Second

// Adjust corrects the cost of a request that [Take] has allowed to its final cost, as [policy.Engine.Settle] does: an
// excess is given back while it still counts, and a shortfall that does not fit is owed (see [sluice.Limiter.Owe]). The
// time is that at which Take was called, or a little earlier. Call Adjust once; the context may have ended. Adjust does
// nothing for queues, and for requests that only OnError allowed.
func Adjust(ctx context.Context, l *sluice.Limiter, key string, d *policy.Decision, taken time.Time, cost int64) {
	if d.Err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), adjustTimeout)
	defer cancel()
	for i := range d.Results {
		r := &d.Results[i]
		if r.Origin == sluice.ByOnError || r.Plan.Limit.Algorithm == sluice.LeakyBucket {
			continue
		}
		one, err := l.With(r.Plan.Limit) // shares its count with l
		switch more := cost - r.Cost; {
		case err != nil:
		case more > 0:
			_ = one.Owe(ctx, key, more) // units that cannot be charged are lost, as if they had drained
		case more < 0 && time.Since(taken) < r.Lasts():
			_, _ = one.Refund(ctx, key, -more) // units that cannot be given back expire
		}
	}
}

// newResults returns results for the limits of l, without their decisions.
func newResults(l *sluice.Limiter, rule string, cost int64) []policy.Result {
	all := make([]policy.Result, len(l.Plans()))
	names := policy.LimitNames(rule, l.Plans())
	for i, plan := range l.Plans() {
		all[i] = policy.Result{Rule: rule, Name: names[i], Plan: plan, Cost: cost}
	}
	return all
}
