package answer

import (
	"context"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/policy"
)

// Take takes one unit of a single limiter, and sets d to what a policy with this one rule
// would have decided. d is empty, or has been set by Take before: its memory is used again.
func Take(ctx context.Context, l *sluice.Limiter, rule, key string, d *policy.Decision) {
	TakeCost(ctx, l, rule, key, 1, d)
}

// TakeCost is [Take] of so many units, at least 1.
func TakeCost(ctx context.Context, l *sluice.Limiter, rule, key string, cost int64, d *policy.Decision) {
	took, err := l.Take(ctx, key, cost)
	set(l, rule, cost, &took, err, d)
}

// Decided returns what a policy with this one rule would have decided, of what l.Take has
// returned for so many units.
func Decided(l *sluice.Limiter, rule string, cost int64, took sluice.Decision, err error) (d policy.Decision) {
	set(l, rule, cost, &took, err, &d)
	return d
}

func set(l *sluice.Limiter, rule string, cost int64, took *sluice.Decision, err error, d *policy.Decision) {
	if len(d.Results) != 1 {
		*d = policy.Decision{Results: append(d.Results[:0], policy.Result{})}
	}
	one := &d.Results[0]
	one.Rule, one.Plan, one.Cost, one.Decision = rule, l.Plan(), cost, *took
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
func GiveBack(ctx context.Context, l *sluice.Limiter, key string) { GiveBackCost(ctx, l, key, 1) }

// GiveBackCost undoes a [TakeCost] whose turn did not come.
func GiveBackCost(ctx context.Context, l *sluice.Limiter, key string, cost int64) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	// A place that cannot be given back drains by itself.
	_, _ = l.Refund(ctx, key, cost)
}
