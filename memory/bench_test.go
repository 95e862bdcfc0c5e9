package memory_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/plantest"
	"github.com/sluicehq/sluice/memory"
)

// BenchmarkRatio has all contenders take turns, a thousand operations each, and reports for
// each what its best tenth of turns took, and that as a multiple of clock and hash. So it tells
// the same on a machine that has other things to do. Run it with -cpu 1.
func BenchmarkRatio(b *testing.B) {
	base, seed := time.Now(), maphash.MakeSeed()
	var word atomic.Uint64
	names := []string{"clock+hash", "clock+hash+cas", "allowed", "refused", "window", "counter", "log", "limiter", "limiter-refused", "layers", "layers-refused", "million-floor", "million", "million-3", "million-16",
		"new-key", "flood", "expiring-log-100", "expiring-log-million"}
	contenders := []func(){
		func() { sink += uint64(time.Since(base)) ^ maphash.String(seed, benchKey) },
		func() {
			sink += uint64(time.Since(base)) ^ maphash.String(seed, benchKey)
			w := word.Load()
			word.CompareAndSwap(w, w+1)
		},
		hot(b, true, "1000000000/second", sluice.TokenBucket),
		hot(b, false, "1/day", sluice.TokenBucket),
		hot(b, true, "1000000000/day", sluice.FixedWindow),
		hot(b, true, "16000000/day", sluice.SlidingWindowCounter),
		hot(b, false, "100/day", sluice.SlidingWindowLog),
		hotLimiter(b, true, sluice.Limit{Count: 1e9, Period: time.Second}),
		hotLimiter(b, false, sluice.Limit{Count: 1, Period: 24 * time.Hour}),
		hotLayers(b, true, "1000000000/second"),
		hotLayers(b, false, "1/day"),
		millionFloor(),
		ofMillion(b, 1),
		ofMillion(b, 3),
		ofMillion(b, 16),
		newKeys(b, memory.New()),
		newKeys(b, memory.NewSize(4<<20)),
		expiring(b, 100),
		expiring(b, million),
	}
	const ops = 1000
	took := make([][]time.Duration, len(contenders))
	for b.Loop() {
		for i, f := range contenders {
			start := time.Now()
			for range ops {
				f()
			}
			took[i] = append(took[i], time.Since(start))
		}
	}
	var floor float64
	for i, t := range took {
		slices.Sort(t)
		ns := float64(t[len(t)/10]) / ops
		if i == 0 {
			floor = ns
		}
		b.ReportMetric(ns, "ns/"+names[i])
		b.ReportMetric(ns/floor, "x/"+names[i])
	}
	b.ReportMetric(0, "ns/op")
}

// hot takes one unit of one key, which has to be admitted or not.
func hot(b *testing.B, admitted bool, limit string, a sluice.Algorithm) func() {
	store := memory.New()
	charges := []sluice.Charge{{Key: benchKey, Plan: plan(b, limit, a), Cost: 1}}
	receipts := make([]sluice.Receipt, 1)
	if !admitted {
		charges[0].Cost = charges[0].Plan.Capacity
		must(b, store.Take(context.Background(), charges, receipts))
		charges[0].Cost = 1
	}
	return func() {
		must(b, store.Take(context.Background(), charges, receipts))
		if receipts[0].Fits != admitted {
			b.Fatalf("%s: %+v: this measures something else", limit, receipts[0])
		}
	}
}

func hotLimiter(b *testing.B, admitted bool, limit sluice.Limit) func() {
	l, err := sluice.NewLimiter(memory.New(), "api", limit)
	must(b, err)
	if !admitted {
		_, err := l.Take(context.Background(), "192.0.2.117", 1)
		must(b, err)
	}
	return func() {
		d, err := l.Take(context.Background(), "192.0.2.117", 1)
		if err != nil || d.Allowed != admitted {
			b.Fatalf("%v: %+v, %v: this measures something else", limit, d, err)
		}
	}
}

// hotLayers takes three charges of three rules at once, of which the last may refuse.
func hotLayers(b *testing.B, admitted bool, last string) func() {
	store := memory.New()
	p := plan(b, "1000000000/second", sluice.TokenBucket)
	charges := []sluice.Charge{
		{Key: "global/", Plan: p, Cost: 1},
		{Key: "per-address/192.0.2.117", Plan: plan(b, "1000000000/day", sluice.FixedWindow), Cost: 1},
		{Key: "per-user/alice", Plan: plan(b, last, sluice.TokenBucket), Cost: 1},
	}
	receipts := make([]sluice.Receipt, 3)
	must(b, store.Take(context.Background(), charges, receipts))
	return func() {
		must(b, store.Take(context.Background(), charges, receipts))
		if sluice.Admitted(charges, receipts) != admitted {
			b.Fatalf("%+v: this measures something else", receipts)
		}
	}
}

func millionFloor() func() {
	base, seed, key, rng := time.Now(), maphash.MakeSeed(), newNumbered(), rand.New(rand.NewPCG(1, 1))
	return func() {
		sink += uint64(time.Since(base)) ^ maphash.String(seed, key.key(rng.IntN(million)))
	}
}

// ofMillion takes of n keys of a million at once.
func ofMillion(b *testing.B, n int) func() {
	p, rng := plan(b, minute, sluice.TokenBucket), rand.New(rand.NewPCG(1, 1))
	store := filled(b, p)
	charges, receipts, keys := make([]sluice.Charge, n), make([]sluice.Receipt, n), make([]*numbered, n)
	for i := range keys {
		keys[i] = newNumbered()
	}
	return func() {
		for i, k := range keys {
			charges[i] = sluice.Charge{Key: k.key(rng.IntN(million/n)*n + i), Plan: p, Cost: 1}
		}
		must(b, store.Take(context.Background(), charges, receipts))
		if !sluice.Admitted(charges, receipts) {
			b.Fatal("refused: this measures something else")
		}
	}
}

// newKeys takes of a key that is new each time.
func newKeys(b *testing.B, store *memory.Store) func() {
	takes, i := newTaker(store, plan(b, "10/day", sluice.TokenBucket)), uint64(0)
	return func() {
		takes.one(string(binary.LittleEndian.AppendUint64(nil, i)))
		if i++; takes.admitted != int(i) {
			b.Fatalf("key %d: refused: this measures something else", i)
		}
	}
}

// expiring takes one unit of a full log each time that its oldest unit expires, which is to cost about the
// same for all lengths.
func expiring(b *testing.B, count int64) func() {
	const gap = 10
	store, now := memory.New(), int64(midday)
	p := plan(b, fmt.Sprintf("%d/%dus", count, count*gap), sluice.SlidingWindowLogExact)
	charges, receipts := []sluice.Charge{{Key: benchKey, Plan: p, Cost: 1}}, make([]sluice.Receipt, 1)
	take := func() {
		now += gap
		must(b, store.TakeAt(context.Background(), now, charges, receipts))
		if !receipts[0].Fits {
			b.Fatal("refused: this measures something else")
		}
	}
	for range 2 * count {
		take()
	}
	return take
}

func must(b *testing.B, err error) {
	if err != nil {
		b.Fatal(err)
	}
}

func plan(tb testing.TB, limit string, a sluice.Algorithm) *sluice.Plan {
	tb.Helper()
	return plantest.As(tb, a, limit)
}

const benchKey = "api/per-address/192.0.2.117"

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

// filled returns a store in which a million keys have one unit taken.
func filled(b *testing.B, p *sluice.Plan) *memory.Store {
	b.Helper()
	takes, keys := newTaker(memory.New(), p), newNumbered()
	for i := range million {
		takes.one(keys.key(i))
	}
	if s := takes.store.Stats(); takes.admitted != million || s.Keys != million || s.Evicted != 0 {
		b.Fatalf("%d were admitted and the store has %+v, want a million and no eviction", takes.admitted, s)
	}
	return takes.store
}

// minute has a unit drain in a minute, so that a benchmark's keys are all in use.
const minute = "1/minute burst 20000000"

var sink uint64

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
