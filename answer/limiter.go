package answer

import (
	"context"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/policy"
)

// Take takes one unit of a limiter, and sets d to what a policy with this one rule would have
// decided. d is empty, or has been set by Take before: its memory is used again.
func Take(ctx context.Context, l *sluice.Limiter, rule, key string, d *policy.Decision) {
	took, err := take(ctx, l, rule, key, d)
	d.Allowed, d.RetryAfter, d.Delay, d.Now = took.Allowed, took.RetryAfter, took.Delay, took.Now
	d.Degraded, d.Unavailable = took.Origin.Degraded(), took.Origin == sluice.ByOnError && !took.Allowed
	if d.Err != nil { // hardly ever, and to write is dear
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

// GiveBack undoes a [Take] whose turn did not come.
func GiveBack(ctx context.Context, l *sluice.Limiter, key string) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	// A place that cannot be given back drains by itself.
	_ = l.LeaveQueue(ctx, key, 1)
}

// take sets the results of d to what each limit says, and returns what all say together.
func take(ctx context.Context, l *sluice.Limiter, rule, key string, d *policy.Decision) (sluice.Decision, error) {
	if len(l.Plans()) > 1 {
		return takeEach(ctx, l, rule, key, d)
	}
	took, err := l.Take(ctx, key, 1)
	if len(d.Results) != 1 {
		*d = policy.Decision{Results: make([]policy.Result, 1)}
	}
	one := &d.Results[0]
	one.Rule, one.Plan, one.Cost, one.Decision = rule, l.Plan(), 1, took
	return took, err
}

func takeEach(ctx context.Context, l *sluice.Limiter, rule, key string, d *policy.Decision) (sluice.Decision, error) {
	each := make([]sluice.Decision, len(l.Plans()))
	took, err := l.TakeEach(ctx, key, 1, each)
	*d = policy.Decision{Results: newResults(l, rule)}
	for i := range each {
		d.Results[i].Decision = each[i]
	}
	return took, err
}

// newResults returns results of the limits of l, without what they say.
func newResults(l *sluice.Limiter, rule string) []policy.Result {
	all := make([]policy.Result, len(l.Plans()))
	names := policy.LimitNames(rule, l.Plans())
	for i, plan := range l.Plans() {
		all[i] = policy.Result{Rule: rule, Name: names[i], Plan: plan, Cost: 1}
	}
	return all
}
