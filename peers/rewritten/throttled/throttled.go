// Package throttled has the part of the API of github.com/throttled/throttled that its rate_test.go tests,
// implemented with Sluice.
package throttled

import (
	"context"
	"time"

	"github.com/throttled/throttled/v2"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/memory"
)

// GCRAStoreCtx provides the time.
type GCRAStoreCtx = throttled.GCRAStoreCtx

// RateLimitResult is a decision.
type RateLimitResult = throttled.RateLimitResult

// Rate is a number of requests in a period.
type Rate struct {
	count  int
	period time.Duration
}

// RateQuota is a rate, and the number of requests that may exceed it at once.
type RateQuota struct {
	MaxRate  Rate
	MaxBurst int
}

// PerSec returns a rate.
func PerSec(n int) Rate { return Rate{n, time.Second} }

// PerDuration returns a rate.
func PerDuration(n int, d time.Duration) Rate { return Rate{n, d} }

// GCRARateLimiterCtx is a token bucket with the clock of a store of throttled.
type GCRARateLimiterCtx struct {
	clock GCRAStoreCtx
	store *memory.Store
	plan  *sluice.Plan
}

// NewGCRARateLimiterCtx returns a limiter.
func NewGCRARateLimiterCtx(clock GCRAStoreCtx, q RateQuota) (*GCRARateLimiterCtx, error) {
	plan, err := sluice.NewPlan(sluice.Limit{Count: int64(q.MaxRate.count), Period: q.MaxRate.period, Burst: int64(q.MaxBurst) + 1})
	if err != nil {
		return nil, err
	}
	return &GCRARateLimiterCtx{clock, memory.New(), plan}, nil
}

// SetMaxCASAttemptsLimit does nothing.
func (l *GCRARateLimiterCtx) SetMaxCASAttemptsLimit(int) {}

// RateLimit is RateLimitCtx without a context.
func (l *GCRARateLimiterCtx) RateLimit(key string, quantity int) (bool, RateLimitResult, error) {
	return l.RateLimitCtx(context.Background(), key, quantity)
}

// epoch is the time of the store at the test's Unix time 0.
var epoch = time.Date(2000, time.January, 1, 0, 0, 0, 0, time.UTC)

// RateLimitCtx takes quantity units, and returns the state of the key afterwards. With quantity zero, it takes
// none.
func (l *GCRARateLimiterCtx) RateLimitCtx(ctx context.Context, key string, quantity int) (bool, RateLimitResult, error) {
	_, now, err := l.clock.GetWithTime(ctx, key)
	if err != nil {
		return false, RateLimitResult{}, err
	}
	charges, receipts := []sluice.Charge{{Key: key, Plan: l.plan, Cost: int64(quantity)}}, make([]sluice.Receipt, 1)
	if err := l.store.TakeAt(ctx, epoch.UnixMicro()+max(0, now.UnixMicro()), charges, receipts); err != nil {
		return false, RateLimitResult{}, err
	}
	d := l.plan.Decide(int64(quantity), receipts[0])
	result := RateLimitResult{Limit: int(l.plan.Capacity), Remaining: int(d.Remaining), ResetAfter: d.ResetAfter, RetryAfter: d.RetryAfter}
	if d.RetryAfter == sluice.Never || d.Allowed && quantity > 0 || d.RetryAfter == 0 {
		result.RetryAfter = -1 // for an admitted request, throttled returns no wait
	}
	return !d.Allowed, result, nil
}
