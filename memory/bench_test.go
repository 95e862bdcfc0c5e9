package memory_test

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"unsafe"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/plantest"
	"github.com/sluicehq/sluice/memory"
)

func plan(tb testing.TB, limit string, a sluice.Algorithm) *sluice.Plan {
	tb.Helper()
	return plantest.As(tb, a, limit)
}

const benchKey = "api/per-address/192.0.2.117"

// share fails unless the share of takes that were admitted is within 1 % of want.
func share(b *testing.B, admitted, takes int, want float64) {
	b.Helper()
	if got := float64(admitted) / float64(takes); takes > 100 && (got < want-0.01 || got > want+0.01) {
		b.Errorf("%.3f of %d takes were admitted, want %.3f: this measures something else", got, takes, want)
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
