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
	took, err := l.Take(ctx, key, 1)
	if len(d.Results) != 1 {
		*d = policy.Decision{Results: make([]policy.Result, 1)}
	}
	one := &d.Results[0]
	one.Rule, one.Plan, one.Cost, one.Decision = rule, l.Plan(), 1, took
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
	_, _ = l.Refund(ctx, key, 1)
}
