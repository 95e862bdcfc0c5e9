package memory_test

import (
	"context"
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/memory"
)

// The benchmarks of one key are to be read beside BenchmarkFloor, in the same run.

func plan(tb testing.TB, limit string, a sluice.Algorithm) *sluice.Plan {
	tb.Helper()
	l, err := sluice.ParseLimit(limit)
	if err != nil {
		tb.Fatal(err)
	}
	l.Algorithm = a
	p, err := sluice.NewPlan(l)
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

const benchKey = "api/per-address/192.0.2.117"

// BenchmarkFloor is what no limiter with a lock can do without: the clock and the hash,
// and with "update" one number changed under a lock that is free.
func BenchmarkFloor(b *testing.B) {
	base, seed := time.Now(), maphash.MakeSeed()
	b.Run("clock+hash", func(b *testing.B) {
		for b.Loop() {
			sink += uint64(time.Since(base)) ^ maphash.String(seed, benchKey)
		}
	})
	b.Run("clock+hash+update", func(b *testing.B) {
		var mu sync.Mutex
		for b.Loop() {
			n := uint64(time.Since(base)) ^ maphash.String(seed, benchKey)
			mu.Lock()
			sink += n
			mu.Unlock()
		}
	})
}

// share fails unless the share of takes that were admitted is within 1 % of want.
func share(b *testing.B, admitted, takes int, want float64) {
	b.Helper()
	if got := float64(admitted) / float64(takes); takes > 100 && (got < want-0.01 || got > want+0.01) {
		b.Errorf("%.3f of %d takes were admitted, want %.3f: this measures something else", got, takes, want)
	}
}

// BenchmarkHotKey takes one unit of one key again and again.
func BenchmarkHotKey(b *testing.B) {
	for _, bm := range []struct {
		name, limit string
		algorithm   sluice.Algorithm
		admitted    float64
	}{
		{"bucket/allowed", "1000000000/second", sluice.TokenBucket, 1},
		{"bucket/refused", "1/day", sluice.TokenBucket, 0},
		{"window/allowed", "1000000000/day", sluice.FixedWindow, 1},
		{"counter/refused", "1/day", sluice.SlidingWindowCounter, 0},
		{"window/refused", "1/day", sluice.FixedWindow, 0},
		{"log/refused", "100/day", sluice.SlidingWindowLog, 0},
	} {
		b.Run(bm.name, func(b *testing.B) {
			store := memory.New()
			charges := []sluice.Charge{{Key: benchKey, Plan: plan(b, bm.limit, bm.algorithm), Cost: 1}}
			receipts := make([]sluice.Receipt, 1)
			var n, admitted int
			b.ReportAllocs()
			for b.Loop() {
				if err := store.Take(context.Background(), charges, receipts); err != nil {
					b.Fatal(err)
				}
				n++
				if receipts[0].Fits {
					admitted++
				}
			}
			if bm.admitted == 0 {
				admitted = max(0, admitted-int(charges[0].Plan.Capacity))
			}
			share(b, admitted, n, bm.admitted)
		})
	}
}

// BenchmarkExpiringLog takes one unit of a log that is full, each time that its oldest unit
// expires. It is to cost about the same for all lengths.
func BenchmarkExpiringLog(b *testing.B) {
	for _, count := range []int64{100, 10_000, million} {
		b.Run(strconv.FormatInt(count, 10), func(b *testing.B) {
			store, gap := memory.New(), int64(10)
			p := plan(b, fmt.Sprintf("%d/%dus", count, count*gap), sluice.SlidingWindowLogExact)
			charges, receipts := []sluice.Charge{{Key: benchKey, Plan: p, Cost: 1}}, make([]sluice.Receipt, 1)
			now, n, admitted := int64(midday), 0, 0
			take := func() {
				now += gap
				if err := store.TakeAt(context.Background(), now, charges, receipts); err != nil {
					b.Fatal(err)
				}
				if receipts[0].Fits && receipts[0].Used == count {
					admitted++
				}
			}
			for range 2 * count {
				take()
			}
			admitted = 0
			b.ReportAllocs()
			for b.Loop() {
				take()
				n++
			}
			share(b, admitted, n, 1)
		})
	}
}

// BenchmarkLimiter is BenchmarkHotKey through a Limiter.
func BenchmarkLimiter(b *testing.B) {
	for _, bm := range []struct {
		name     string
		limit    sluice.Limit
		admitted float64
	}{
		{"allowed", sluice.Limit{Count: 1e9, Period: time.Second}, 1},
		{"refused", sluice.Limit{Count: 1, Period: 24 * time.Hour}, 0},
	} {
		b.Run(bm.name, func(b *testing.B) {
			limiter, err := sluice.NewLimiter(memory.New(), "api", bm.limit)
			if err != nil {
				b.Fatal(err)
			}
			var n, admitted int
			b.ReportAllocs()
			for b.Loop() {
				d, err := limiter.Take(context.Background(), "192.0.2.117", 1)
				if err != nil {
					b.Fatal(err)
				}
				n++
				if d.Allowed {
					admitted++
				}
			}
			share(b, admitted, n, bm.admitted)
		})
	}
}

// BenchmarkLayers takes three charges of three rules at once.
func BenchmarkLayers(b *testing.B) {
	store := memory.New()
	p := plan(b, "1000000000/second", sluice.TokenBucket)
	charges := []sluice.Charge{
		{Key: "global/", Plan: p, Cost: 1},
		{Key: "per-address/192.0.2.117", Plan: p, Cost: 1},
		{Key: "per-user/alice", Plan: plan(b, "1000000000/day", sluice.FixedWindow), Cost: 1},
	}
	receipts := make([]sluice.Receipt, len(charges))
	b.ReportAllocs()
	for b.Loop() {
		if err := store.Take(context.Background(), charges, receipts); err != nil {
			b.Fatal(err)
		}
		if !sluice.Admitted(charges, receipts) {
			b.Fatal("refused: this measures something else")
		}
	}
}

const million = 1_000_000

// numbered makes the keys of a million users, in place: to read them from memory would
// cost as much as to look them up.
type numbered [len("user/100000000")]byte

func newNumbered() *numbered { n := numbered([]byte("user/100000000")); return &n }

// key returns the key of user i, which is good until the next call.
func (n *numbered) key(i int) string {
	for at := len(n) - 1; at >= len(n)-6; at-- {
		n[at] = byte('0' + i%10)
		i /= 10
	}
	return unsafe.String(&n[0], len(n))
}

// filled returns a store in which a million keys have one unit taken, and what it takes
// in memory per key.
func filled(b *testing.B, p *sluice.Plan) (*memory.Store, float64) {
	b.Helper()
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	takes, keys := newTaker(memory.New(), p), newNumbered()
	for i := range million {
		takes.one(keys.key(i))
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if s := takes.store.Stats(); takes.admitted != million || s.Keys != million || s.Evicted != 0 {
		b.Fatalf("%d were admitted and the store has %+v, want a million and no eviction", takes.admitted, s)
	}
	return takes.store, float64(after.HeapAlloc-before.HeapAlloc) / million
}

// minute has a unit drain in a minute, so that a benchmark's keys are all in use.
const minute = "1/minute burst 20000000"

// BenchmarkMillion takes of a million keys, in the order that the name says. The floor
// is to make and hash the keys and to read the clock.
func BenchmarkMillion(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 1))
	zipf := rand.NewZipf(rng, 1.1, 1, million-1)
	for _, bm := range []struct {
		name string
		next func() int
	}{
		{"uniform", func() int { return rng.IntN(million) }},
		{"zipf", func() int { return int(zipf.Uint64()) }},
	} {
		order := make([]uint32, 1<<22)
		for i := range order {
			order[i] = uint32(bm.next())
		}
		at := func(i int) int { return int(order[i%len(order)]) }
		b.Run(bm.name+"/floor", func(b *testing.B) {
			base, seed, keys := time.Now(), maphash.MakeSeed(), newNumbered()
			i := 0
			for b.Loop() {
				sink += uint64(time.Since(base)) ^ maphash.String(seed, keys.key(at(i)))
				i++
			}
		})
		b.Run(bm.name, func(b *testing.B) {
			store, size := filled(b, plan(b, minute, sluice.TokenBucket))
			takes, keys := newTaker(store, plan(b, minute, sluice.TokenBucket)), newNumbered()
			i := 0
			b.ReportAllocs()
			b.ResetTimer()
			for b.Loop() {
				takes.one(keys.key(at(i)))
				i++
			}
			share(b, takes.admitted, i, 1)
			b.ReportMetric(size, "bytes/key")
		})
		b.Run(bm.name+"/parallel", func(b *testing.B) {
			store, _ := filled(b, plan(b, minute, sluice.TokenBucket))
			b.ReportAllocs()
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				takes, keys := newTaker(store, plan(b, minute, sluice.TokenBucket)), newNumbered()
				i, n := rand.IntN(len(order)), 0
				for pb.Next() {
					takes.one(keys.key(at(i)))
					i++
					n++
				}
				share(b, takes.admitted, n, 1)
			})
		})
	}
}

var sink uint64

// BenchmarkCollect is one garbage collection with a million keys in use, beside one
// without them.
func BenchmarkCollect(b *testing.B) {
	b.Run("floor", func(b *testing.B) {
		for b.Loop() {
			runtime.GC()
		}
	})
	b.Run("million", func(b *testing.B) {
		store, _ := filled(b, plan(b, minute, sluice.TokenBucket))
		for b.Loop() {
			runtime.GC()
		}
		runtime.KeepAlive(store)
	})
}

// BenchmarkParallel takes of one key in as many goroutines as there are processors.
func BenchmarkParallel(b *testing.B) {
	for _, bm := range []struct {
		name, limit string
		admitted    float64
	}{{"allowed", "1000000000/second", 1}, {"refused", "1/day", 0}} {
		b.Run(bm.name, func(b *testing.B) {
			store, p := memory.New(), plan(b, bm.limit, sluice.TokenBucket)
			newTaker(store, p).one(benchKey)
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				takes := newTaker(store, p)
				n := 0
				for pb.Next() {
					takes.one(benchKey)
					n++
				}
				share(b, takes.admitted, n, bm.admitted)
			})
		})
	}
}

// BenchmarkNewKey takes of a key that is new each time, up to a million.
func BenchmarkNewKey(b *testing.B) {
	p, keys := plan(b, "10/day", sluice.TokenBucket), newNumbered()
	takes := newTaker(memory.New(), p)
	i := 0
	b.ReportAllocs()
	for b.Loop() {
		if i == million {
			takes, i = newTaker(memory.New(), p), 0
		}
		takes.one(keys.key(i))
		i++
	}
	share(b, takes.admitted, i, 1)
	if n := takes.store.Stats().Keys; n != i {
		b.Errorf("%d keys are kept of %d", n, i)
	}
}

// BenchmarkFlood takes of a key that is new each time from a store that is full.
func BenchmarkFlood(b *testing.B) {
	store := memory.NewSize(4 << 20)
	takes := newTaker(store, plan(b, "10/day", sluice.TokenBucket))
	var key [8]byte
	i := 0
	next := func() {
		for j := range key {
			key[j] = byte(i >> (8 * j))
		}
		takes.one(string(key[:]))
		i++
	}
	for range 200_000 {
		next()
	}
	before, started := store.Stats().Evicted, i
	for b.Loop() {
		next()
	}
	if evicted := store.Stats().Evicted - before; evicted*10 < int64(i-started)*9 {
		b.Errorf("%d takes evicted %d: the store was not full", i-started, evicted)
	}
}

// BenchmarkFloodLogs takes of a log that is new each time from a store of the default size that
// is full of them.
func BenchmarkFloodLogs(b *testing.B) {
	takes := newTaker(memory.New(), plan(b, "10/day", sluice.SlidingWindowLog))
	i := 0
	for ; takes.store.Losses().Evicted == 0; i++ {
		takes.one(strconv.Itoa(i))
	}
	b.ReportAllocs()
	for b.Loop() {
		takes.one(strconv.Itoa(i))
		i++
	}
}

// taker takes one unit at a time without allocating.
type taker struct {
	store    *memory.Store
	charges  []sluice.Charge
	receipts []sluice.Receipt
	admitted int
}

func newTaker(store *memory.Store, p *sluice.Plan) *taker {
	return &taker{store: store, charges: []sluice.Charge{{Plan: p, Cost: 1}}, receipts: make([]sluice.Receipt, 1)}
}

func (t *taker) one(key string) {
	t.charges[0].Key = key
	if err := t.store.Take(context.Background(), t.charges, t.receipts); err != nil {
		panic(err)
	}
	if t.receipts[0].Fits {
		t.admitted++
	}
}
