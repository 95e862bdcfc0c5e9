// Package migrate has the code of docs/migrating.md, before and after each migration, so that it is compiled and
// tested.
package migrate

import (
	"context"
	"net/http"
	"time"

	"github.com/go-chi/httprate"
	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/memstore"
	ulule "github.com/ulule/limiter/v3"
	"github.com/ulule/limiter/v3/drivers/middleware/stdlib"
	ululestore "github.com/ulule/limiter/v3/drivers/store/memory"
	"golang.org/x/time/rate"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/httplimit"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/stores"
)

func fromTimeRate(next http.Handler) (http.Handler, error) {
	limiter := rate.NewLimiter(rate.Every(time.Hour/5), 5)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !limiter.Allow() {
			http.Error(w, "too many requests", http.StatusTooManyRequests)
			return
		}
		next.ServeHTTP(w, r)
	}), nil
}

func insteadOfTimeRate(next http.Handler) (http.Handler, error) {
	limiter, err := sluice.NewLimiter(memory.New(), "all", sluice.Limit{Count: 5, Period: time.Hour, Burst: 5})
	if err != nil {
		return nil, err
	}
	return httplimit.Limit(limiter, func(*http.Request) string { return "all" })(next), nil
}

func fromHTTPRate(next http.Handler) (http.Handler, error) {
	//lint:ignore SA1019 it is what people have
	return httprate.LimitByIP(5, time.Hour)(next), nil
}

func insteadOfHTTPRate(next http.Handler) (http.Handler, error) {
	limiter, err := sluice.NewLimiter(memory.New(), "address", sluice.Limit{Count: 5, Period: time.Hour, Algorithm: sluice.SlidingWindowCounter})
	if err != nil {
		return nil, err
	}
	return httplimit.Limit(limiter, httplimit.ClientIP{}.Key)(next), nil
}

func fromThrottled(next http.Handler) (http.Handler, error) {
	store, err := memstore.NewCtx(65536)
	if err != nil {
		return nil, err
	}
	limiter, err := throttled.NewGCRARateLimiterCtx(store, throttled.RateQuota{MaxRate: throttled.PerHour(5), MaxBurst: 4})
	if err != nil {
		return nil, err
	}
	limited := throttled.HTTPRateLimiterCtx{RateLimiter: limiter, VaryBy: &throttled.VaryBy{Path: true}}
	return limited.RateLimit(next), nil
}

func insteadOfThrottled(next http.Handler) (http.Handler, error) {
	limiter, err := sluice.NewLimiter(memory.New(), "path", sluice.Limit{Count: 5, Period: time.Hour, Burst: 5})
	if err != nil {
		return nil, err
	}
	return httplimit.Limit(limiter, func(r *http.Request) string { return r.URL.Path })(next), nil
}

func fromUlule(next http.Handler) (http.Handler, error) {
	rate, err := ulule.NewRateFromFormatted("5-H")
	if err != nil {
		return nil, err
	}
	return stdlib.NewMiddleware(ulule.New(ululestore.NewStore(), rate)).Handler(next), nil
}

func insteadOfUlule(next http.Handler) (http.Handler, error) {
	limit, err := sluice.ParseLimit("5/hour")
	if err != nil {
		return nil, err
	}
	limit.Algorithm = sluice.FixedWindow
	limiter, err := sluice.NewLimiter(memory.New(), "address", limit)
	if err != nil {
		return nil, err
	}
	return httplimit.Limit(limiter, nil)(next), nil
}

func fromRedisRate(ctx context.Context, address string) (allow func(key string) (bool, error), end func() error, err error) {
	client := redis.NewClient(&redis.Options{Addr: address})
	limiter := redis_rate.NewLimiter(client)
	allow = func(key string) (bool, error) {
		result, err := limiter.Allow(ctx, key, redis_rate.PerHour(5))
		if err != nil {
			return false, err
		}
		return result.Allowed > 0, nil
	}
	return allow, client.Close, nil
}

func insteadOfRedisRate(ctx context.Context, address string) (allow func(key string) (bool, error), end func() error, err error) {
	store, err := stores.Open(ctx, "redis://"+address, stores.Config{})
	if err != nil {
		return nil, nil, err
	}
	limiter, err := sluice.NewLimiter(store, "users", sluice.Limit{Count: 5, Period: time.Hour})
	if err != nil {
		return nil, nil, err
	}
	allow = func(key string) (bool, error) {
		decision, err := limiter.Take(ctx, key, 1)
		return decision.Allowed, err
	}
	return allow, store.Close, nil
}
