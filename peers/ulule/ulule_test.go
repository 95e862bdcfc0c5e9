// Package ulule runs the suite that github.com/ulule/limiter exports for its stores against the stores of Sluice.
package ulule

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	ulule "github.com/ulule/limiter/v3"
	"github.com/ulule/limiter/v3/drivers/store/tests"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/redistest"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/redisstore"
)

// store is a [ulule.Store]. The stores of ulule also count denied requests, and Reached is true from the first of them;
// a [sluice.Limiter] does not count them. So store counts all requests a second time, under a limit that is never
// reached.
type store struct {
	algorithm     sluice.Algorithm
	limits, asked *sluice.Limiter
}

const unlimited = 1 << 20

func newStore(t *testing.T, of sluice.Store, algorithm sluice.Algorithm) *store {
	t.Helper()
	limit := sluice.Limit{Count: unlimited, Period: time.Minute}
	limits, err1 := sluice.NewLimiter(of, "limits", limit)
	asked, err2 := sluice.NewLimiter(of, "asked", limit)
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	return &store{algorithm, limits, asked}
}

func (s *store) Get(ctx context.Context, key string, r ulule.Rate) (ulule.Context, error) {
	return s.Increment(ctx, key, 1, r)
}

func (s *store) Increment(ctx context.Context, key string, cost int64, r ulule.Rate) (ulule.Context, error) {
	limits, asked, err := s.limiters(r)
	if err != nil {
		return ulule.Context{}, err
	}
	if _, err = asked.Take(ctx, key, cost); err != nil {
		return ulule.Context{}, err
	}
	d, err := limits.Take(ctx, key, cost)
	return s.context(&d, r, !d.Allowed), err
}

func (s *store) Peek(ctx context.Context, key string, r ulule.Rate) (ulule.Context, error) {
	limits, asked, err := s.limiters(r)
	if err != nil {
		return ulule.Context{}, err
	}
	all, err := asked.Peek(ctx, key)
	if err != nil {
		return ulule.Context{}, err
	}
	d, err := limits.Peek(ctx, key)
	return s.context(&d, r, unlimited-all.Remaining > r.Limit), err
}

func (s *store) Reset(ctx context.Context, key string, r ulule.Rate) (ulule.Context, error) {
	limits, asked, err := s.limiters(r)
	if err != nil {
		return ulule.Context{}, err
	}
	if err = asked.Reset(ctx, key); err == nil {
		err = limits.Reset(ctx, key)
	}
	if err != nil {
		return ulule.Context{}, err
	}
	return s.Peek(ctx, key, r)
}

func (s *store) limiters(r ulule.Rate) (limits, asked *sluice.Limiter, err error) {
	limits, err = s.limits.With(sluice.Limit{Count: r.Limit, Period: r.Period, Algorithm: s.algorithm})
	if err != nil {
		return nil, nil, err
	}
	asked, err = s.asked.With(sluice.Limit{Count: unlimited, Period: r.Period, Algorithm: sluice.SlidingWindowLog})
	return limits, asked, err
}

func (s *store) context(d *sluice.Decision, r ulule.Rate, reached bool) ulule.Context {
	return ulule.Context{Limit: r.Limit, Remaining: d.Remaining, Reset: (d.Now + d.ResetAfter.Microseconds()) / 1e6, Reached: reached}
}

// The memory store passes with the algorithms that forget a request after the period. (In a sliding_window_counter the
// previous window counts for another period; a leaky_bucket delays.)
func TestMemory(t *testing.T) {
	for _, algorithm := range []sluice.Algorithm{sluice.TokenBucket, sluice.FixedWindow, sluice.SlidingWindowLog} {
		t.Run(algorithm.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // its clock starts at the beginning of a minute
				tests.TestStoreSequentialAccess(t, newStore(t, memory.New(), algorithm))
			})
			tests.TestStoreConcurrentAccess(t, newStore(t, memory.New(), algorithm))
		})
	}
}

func TestRedis(t *testing.T) {
	redis, err := redisstore.Open(t.Context(), redistest.Start(t).URL())
	if err != nil {
		t.Fatal(err)
	}
	defer redis.Close()
	s := newStore(t, redis, sluice.TokenBucket)
	tests.TestStoreSequentialAccess(t, s)
	if err := s.limits.Reset(t.Context(), "foo"); err != nil {
		t.Fatal(err)
	}
	tests.TestStoreConcurrentAccess(t, s)
}
