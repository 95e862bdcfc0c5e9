// Package redis_rate has the API of github.com/go-redis/redis_rate, implemented with Sluice.
package redis_rate

import (
	"context"
	"os"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/redisstore"
)

// URL names the environment variable with the URL of the server.
const URL = "PEERS_REDIS"

// Limit is a rate and a burst.
type Limit = redis_rate.Limit

// Result is a decision.
type Result = redis_rate.Result

// PerSecond returns a limit.
func PerSecond(rate int) Limit { return redis_rate.PerSecond(rate) }

// Limiter counts in the Redis server whose URL is in the environment variable [URL].
type Limiter struct {
	limiter *sluice.Limiter
	last    *sluice.Limiter // the limiter for the limit used last
}

// NewLimiter returns a limiter. It ignores the client that it is called with.
func NewLimiter(*redis.Ring) *Limiter {
	store, err := redisstore.Open(context.Background(), os.Getenv(URL))
	if err != nil {
		panic(err)
	}
	l, err := sluice.NewLimiter(store, "", sluice.Limit{Count: 1, Period: time.Second})
	if err != nil {
		panic(err)
	}
	return &Limiter{l, l}
}

// Allow takes one unit.
func (l *Limiter) Allow(ctx context.Context, key string, limit Limit) (*Result, error) {
	return l.AllowN(ctx, key, limit, 1)
}

// AllowN takes n units, and returns how many remain. With n zero, it takes none.
func (l *Limiter) AllowN(ctx context.Context, key string, limit Limit, n int) (*Result, error) {
	of, err := l.with(limit)
	if err != nil {
		return nil, err
	}
	if n == 0 {
		d, err := of.Peek(ctx, key)
		return result(&d, limit, n, 0), err
	}
	d, err := of.Take(ctx, key, int64(n))
	if !d.Allowed {
		return result(&d, limit, n, 0), err
	}
	return result(&d, limit, n, n), err
}

// AllowAtMost takes n units, or all that remain if these are fewer.
func (l *Limiter) AllowAtMost(ctx context.Context, key string, limit Limit, n int) (*Result, error) {
	if n == 0 {
		return l.AllowN(ctx, key, limit, 0)
	}
	of, err := l.with(limit)
	for err == nil {
		var d sluice.Decision
		if d, err = of.Take(ctx, key, int64(n)); d.Allowed {
			return result(&d, limit, n, n), nil
		} else if err == nil && n == 1 {
			return result(&d, limit, n, 0), nil
		}
		n = max(1, int(d.Remaining))
	}
	return nil, err
}

// Reset deletes the count of a key under the limit used last. In redis_rate, a key has one count; in Sluice, a key
// has a count for each rate.
func (l *Limiter) Reset(ctx context.Context, key string) error { return l.last.Reset(ctx, key) }

func (l *Limiter) with(limit Limit) (of *sluice.Limiter, err error) {
	of, err = l.limiter.With(sluice.Limit{Count: int64(limit.Rate), Period: limit.Period, Burst: int64(limit.Burst)})
	if err == nil {
		l.last = of
	}
	return of, err
}

// result returns the result of redis_rate for a request of n units, of which allowed were taken.
func result(d *sluice.Decision, limit Limit, n, allowed int) *Result {
	r := &Result{Limit: limit, Allowed: allowed, Remaining: int(d.Remaining), RetryAfter: -1, ResetAfter: d.ResetAfter}
	switch {
	case n == 0 || allowed > 0:
	case d.RetryAfter == sluice.Never: // redis_rate returns the time in which n units refill, although n units never fit
		r.RetryAfter = time.Duration(n-r.Remaining) * limit.Period / time.Duration(limit.Rate)
	default:
		r.RetryAfter = d.RetryAfter
	}
	return r
}
