package main

import (
	"context"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/goredisstore.v9"
	ulule "github.com/ulule/limiter/v3"
	ululeredis "github.com/ulule/limiter/v3/drivers/store/redis"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/redisstore"
)

// overRedis makes a decider that counts in the server at addr.
type overRedis func(addr string, count int, period time.Duration) (decide func(key string) bool)

var redisDeciders = []contender{
	{"go-redis INCR", floor, overRedis(incr)},
	{"sluice/redisstore", ours, overRedis(sluiceRedis)},
	{"redis_rate", rival, overRedis(redisRate)},
	{"ulule/limiter", rival, overRedis(ululeRedis)},
	{"throttled/throttled", rival, overRedis(throttledRedis)},
}

func goRedis(addr string) *redis.Client { return redis.NewClient(&redis.Options{Addr: addr}) }

func incr(addr string, _ int, _ time.Duration) func(string) bool {
	c, ctx := goRedis(addr), context.Background()
	return func(key string) bool { return c.Incr(ctx, key).Val() > 0 }
}

func sluiceRedis(addr string, count int, period time.Duration) func(string) bool {
	return sluiceOf(addr, limitOf(count, period))
}

func sluiceOf(addr string, limit sluice.Limit) func(string) bool {
	ctx := context.Background()
	s, err := redisstore.Open(ctx, "redis://"+addr)
	must(err)
	l, err := sluice.NewLimiter(s, "", limit)
	must(err)
	return func(key string) bool {
		d, err := l.Take(ctx, key, 1)
		must(err)
		return d.Allowed
	}
}

func redisRate(addr string, count int, period time.Duration) func(string) bool {
	l, ctx := redis_rate.NewLimiter(goRedis(addr)), context.Background()
	limit := redis_rate.Limit{Rate: count, Burst: count, Period: period}
	return func(key string) bool {
		r, err := l.Allow(ctx, key, limit)
		must(err)
		return r.Allowed > 0
	}
}

func ululeRedis(addr string, count int, period time.Duration) func(string) bool {
	s, err := ululeredis.NewStore(goRedis(addr))
	must(err)
	l, ctx := ulule.New(s, ulule.Rate{Period: period, Limit: int64(count)}), context.Background()
	return func(key string) bool {
		c, err := l.Get(ctx, key)
		must(err)
		return !c.Reached
	}
}

func throttledRedis(addr string, count int, period time.Duration) func(string) bool {
	s, err := goredisstore.NewCtx(goRedis(addr), "t:")
	must(err)
	l, err := throttled.NewGCRARateLimiterCtx(s, throttled.RateQuota{MaxRate: throttled.PerDuration(count, period), MaxBurst: count - 1})
	must(err)
	l.SetMaxCASAttemptsLimit(1 << 20)
	ctx := context.Background()
	return func(key string) bool {
		limited, _, err := l.RateLimitCtx(ctx, key, 1)
		must(err)
		return !limited
	}
}
