package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
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
	"hash/maphash"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/memory"
)

// inMemory makes a decider with a limit of count per period, all of which may come at
// once, for about keys keys.
type inMemory func(count int, period time.Duration, keys int) (decide func(key string) bool)

var deciders = []contender{
	{"clock + hash + one locked update", floor, inMemory(floorDecider)},
	{"clock + hash", floor, inMemory(clockAndHash)},
	{"sluice/memory", ours, inMemory(sluiceStore)},
	{"sluice.Limiter", ours, inMemory(sluiceLimiter)},
	{"x/time/rate, sharded", rival, inMemory(xtime)},
	{"sethvargo/go-limiter", rival, inMemory(sethvargo)},
	{"throttled", rival, inMemory(throttle)},
	{"ulule/limiter", rival, inMemory(ululeMemory)},
	{"go-chi/httprate", rival, inMemory(chi)},
	{"didip/tollbooth", rival, inMemory(tollboothKeys)},
}

// uber's limiter blocks and never refuses, so it stands only where all is admitted.
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
		// A use that the compiler cannot see through, without a shared write.
		return uint64(time.Since(base))^maphash.String(seed, key) != sink
	}
}

func limitOf(count int, period time.Duration) sluice.Limit {
	return sluice.Limit{Count: int64(count), Period: period, Burst: int64(count)}
}

// storeFor returns a store that is meant for so many keys.
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

// sharded is the usual map of limiters with a mutex a shard.
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
	// With a counter of its own its windows are aligned to the clock, as ours below.
	l := httprate.NewRateLimiter(count, period, httprate.WithLimitCounter(httprate.NewLocalLimitCounter(period)))
	return func(key string) bool {
		// Its decision, without the header fields that OnLimit would write.
		ok, _, err := l.Status(key)
		must(err)
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

func must(err error) {
	if err != nil {
		panic(err)
	}
}

var (
	budget  = 300 * time.Millisecond // of one run
	million = 1_000_000
)

// deciding measures decisions over keys, with a premise on the share that is refused.
func deciding(threads, keys int, seq func(int) []uint32, count int, period time.Duration, least, most float64) func(contender) (sample, error) {
	return func(c contender) (sample, error) {
		all, sequence := keysOf(keys), seq(keys)
		decide := c.start.(inMemory)(count, period, keys)
		for _, k := range all {
			decide(k) // every key is known
		}
		runtime.GC()
		cost := spend(threads, budget, all, sequence, decide)
		s := cost.sample()
		if c.role != floor && (s["refused"] < least || s["refused"] > most) {
			return nil, fmt.Errorf("%.4f are refused, and should be %.4f to %.4f", s["refused"], least, most)
		}
		return s, nil
	}
}

func one(int) []uint32 { return make([]uint32, 1<<10) }

const plenty = 500_000_000 // a second: never reached by one process

func memoryWorks() []work {
	cols := []string{"ns", "CPU ns", "allocs", "refused"}
	all := append([]contender{}, deciders...)
	withUber := append(append([]contender{}, deciders...), uberDecider)
	return []work{
		{"memory: one hot key, allowed, 1 thread", "limit never reached", withUber, deciding(1, 1, one, plenty, time.Second, 0, 0), cols},
		{"memory: one hot key, allowed, 2 threads", "limit never reached", withUber, deciding(2, 1, one, plenty, time.Second, 0, 0), cols},
		{"memory: one hot key, refused, 1 thread", "1 an hour", all, deciding(1, 1, one, 1, time.Hour, 0.999, 1), cols},
		{"memory: one hot key, refused, 2 threads", "1 an hour", all, deciding(2, 1, one, 1, time.Hour, 0.999, 1), cols},
		{"memory: 1 M keys, uniform, 1 thread", "100 a minute", all, deciding(1, million, uniform, 100, time.Minute, 0, 0.01), cols},
		{"memory: 1 M keys, uniform, 2 threads", "100 a minute", all, deciding(2, million, uniform, 100, time.Minute, 0, 0.01), cols},
		{"memory: 1 M keys, Zipf 1.1, 1 thread", "100 a minute, so that the head is refused", all, deciding(1, million, zipf, 100, time.Minute, 0.05, 0.95), cols},
		{"memory: 1 M keys, Zipf 1.1, 2 threads", "100 a minute, so that the head is refused", all, deciding(2, million, zipf, 100, time.Minute, 0.05, 0.95), cols},
		{"memory: what a key takes", "1 M keys once each; the time of a full collection", all[2:], footprint, []string{"bytes", "GC ms", "ns"}},
	}
}

// footprint measures the memory of a million keys that are in use, and a collection.
func footprint(c contender) (sample, error) {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	decide := c.start.(inMemory)(100, time.Hour, million)
	start := time.Now()
	for i := range million {
		// A key of its own, that only the limiter may keep.
		if !decide(fmt.Sprintf("customer:%011d", i*7919)) {
			return nil, errors.New("the first request of a key is refused")
		}
	}
	took := time.Since(start)
	runtime.GC()
	runtime.ReadMemStats(&after)
	collect := time.Now()
	runtime.GC()
	gc := time.Since(collect)
	s := sample{
		"bytes": float64(after.HeapAlloc-before.HeapAlloc) / float64(million),
		"GC ms": gc.Seconds() * 1000,
		"ns":    float64(took) / float64(million),
	}
	// Nothing was forgotten: nearly every key has 99 left.
	forgotten := 0
	for i := range 1000 {
		key := fmt.Sprintf("customer:%011d", i*7919*997%(million*7919))
		n := 0
		for n < 100 && decide(key) {
			n++
		}
		if n == 100 {
			forgotten++
		}
	}
	if forgotten > 1 {
		return nil, fmt.Errorf("%d of 1000 keys were forgotten", forgotten)
	}
	return s, nil
}
