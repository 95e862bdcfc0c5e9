package main

import (
	"context"
	"hash/maphash"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/didip/tollbooth/v8"
	"github.com/didip/tollbooth/v8/limiter"
	"github.com/go-chi/httprate"
	"github.com/sethvargo/go-limiter/memorystore"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/memstore"
	ulule "github.com/ulule/limiter/v3"
	ululememory "github.com/ulule/limiter/v3/drivers/store/memory"
	"go.uber.org/ratelimit"
	"golang.org/x/time/rate"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/memory"
)

// inMemory makes a decider that is meant for about the given number of keys. Its limit is count per period, all of
// which may come at once.
type inMemory func(count int, period time.Duration, keys int) (decide func(key string) bool)

var deciders = []contender{
	{"clock + hash + one locked update", floor, inMemory(floorDecider)},
	{"clock + hash", floor, inMemory(clockAndHash)},
	{"sluice/memory", ours, inMemory(sluiceStore)},
	{"sluice.Limiter", ours, inMemory(sluiceLimiter)},
	{"x/time/rate, sharded", rival, inMemory(xtime)},
	{"sethvargo/go-limiter", rival, inMemory(sethvargo)},
	{"throttled/throttled", rival, inMemory(throttle)},
	{"ulule/limiter", rival, inMemory(ululeMemory)},
	{"go-chi/httprate", rival, inMemory(chi)},
	{"didip/tollbooth", rival, inMemory(tollboothKeys)},
}

// uber's limiter blocks and never denies, so it takes part only in works in which every request is admitted.
var uberDecider = contender{"uber/ratelimit, sharded", rival, inMemory(uber)}

func floorDecider(int, time.Duration, int) func(string) bool {
	const shards = 1 << 16
	table := make([]struct {
		sync.Mutex
		word uint64
	}, shards)
	seed, base := maphash.MakeSeed(), time.Now()
	return func(key string) bool {
		now := uint64(time.Since(base))
		e := &table[maphash.String(seed, key)%shards]
		e.Lock()
		e.word += now
		e.Unlock()
		return true
	}
}

var sink uint64

func clockAndHash(int, time.Duration, int) func(string) bool {
	seed, base := maphash.MakeSeed(), time.Now()
	return func(key string) bool {
		// The comparison keeps the compiler from removing the code, without a write to shared memory.
		return uint64(time.Since(base))^maphash.String(seed, key) != sink
	}
}

func limitOf(count int, period time.Duration) sluice.Limit {
	return sluice.Limit{Count: int64(count), Period: period, Burst: int64(count)}
}

// storeFor returns a store with enough memory for the given number of keys.
func storeFor(keys int) *memory.Store { return memory.NewSize(max(1<<20, int64(keys)*64)) }

func sluiceStore(count int, period time.Duration, keys int) func(string) bool {
	store := storeFor(keys)
	plan, err := sluice.NewPlan(limitOf(count, period))
	must(err)
	ctx := context.Background()
	return func(key string) bool {
		charges, receipts := [1]sluice.Charge{{Key: key, Plan: plan, Cost: 1}}, [1]sluice.Receipt{}
		must(store.Take(ctx, charges[:], receipts[:]))
		return receipts[0].Fits
	}
}

func sluiceLimiter(count int, period time.Duration, keys int) func(string) bool {
	l, err := sluice.NewLimiter(storeFor(keys), "", limitOf(count, period))
	must(err)
	ctx := context.Background()
	return func(key string) bool {
		d, err := l.Take(ctx, key, 1)
		must(err)
		return d.Allowed
	}
}

// sharded is the usual map of limiters, with a mutex for each shard.
type sharded[L any] struct {
	seed   maphash.Seed
	shards [256]struct {
		sync.Mutex
		m map[string]L
		_ [40]byte
	}
	make func() L
}

func newSharded[L any](make_ func() L) *sharded[L] {
	s := &sharded[L]{seed: maphash.MakeSeed(), make: make_}
	for i := range s.shards {
		s.shards[i].m = map[string]L{}
	}
	return s
}

func (s *sharded[L]) get(key string) L {
	shard := &s.shards[maphash.String(s.seed, key)&255]
	shard.Lock()
	defer shard.Unlock()
	l, ok := shard.m[key]
	if !ok {
		l = s.make()
		shard.m[strings.Clone(key)] = l
	}
	return l
}

func xtime(count int, period time.Duration, _ int) func(string) bool {
	s := newSharded(func() *rate.Limiter {
		return rate.NewLimiter(rate.Limit(float64(count)/period.Seconds()), count)
	})
	return func(key string) bool { return s.get(key).Allow() }
}

func uber(count int, period time.Duration, _ int) func(string) bool {
	s := newSharded(func() ratelimit.Limiter {
		return ratelimit.New(count, ratelimit.Per(period))
	})
	return func(key string) bool { s.get(key).Take(); return true }
}

func sethvargo(count int, period time.Duration, keys int) func(string) bool {
	s, err := memorystore.New(&memorystore.Config{Tokens: uint64(count), Interval: period, InitialAlloc: keys})
	must(err)
	ctx := context.Background()
	return func(key string) bool {
		_, _, _, ok, err := s.Take(ctx, key)
		must(err)
		return ok
	}
}

func throttle(count int, period time.Duration, _ int) func(string) bool {
	s, err := memstore.NewCtx(0)
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

func ululeMemory(count int, period time.Duration, _ int) func(string) bool {
	l := ulule.New(ululememory.NewStore(), ulule.Rate{Period: period, Limit: int64(count)})
	ctx := context.Background()
	return func(key string) bool {
		c, err := l.Get(ctx, key)
		must(err)
		return !c.Reached
	}
}

func chi(count int, period time.Duration, _ int) func(string) bool {
	// With this counter, the windows are aligned to the clock, like the windows of our limiters.
	l := httprate.NewRateLimiter(count, period, httprate.WithLimitCounter(httprate.NewLocalLimitCounter(period)))
	return func(key string) bool {
		// This is the decision of httprate, without the header fields that OnLimit would write.
		_, used, err := l.Status(key)
		must(err)
		ok := int(math.Round(used))+1 <= count
		if ok {
			must(l.Counter().Increment(key, time.Now().UTC().Truncate(period)))
		}
		return ok
	}
}

func tollboothKeys(count int, period time.Duration, _ int) func(string) bool {
	l := tollbooth.NewLimiter(float64(count)/period.Seconds(), &limiter.ExpirableOptions{DefaultExpirationTTL: time.Hour})
	l.SetBurst(count)
	return func(key string) bool { return !l.LimitReached(key) }
}
