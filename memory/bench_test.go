package memory_test

import (
	"context"
	"hash/maphash"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/plantest"
	"github.com/sluicehq/sluice/memory"
)

// BenchmarkRatio runs all contenders in turns of a thousand operations. For each, it reports the time of an operation
// in a fast turn (the tenth percentile), also as a multiple of the time for clock and hash. So the results hardly
// depend on the load of the machine. Run it with -cpu 1. The directory bench measures the cost of a million keys, and
// BenchmarkDecide of package policy measures decisions with three charges.
func BenchmarkRatio(b *testing.B) {
	base, seed := time.Now(), maphash.MakeSeed()
	var word atomic.Uint64
	names := []string{"clock+hash", "clock+hash+cas", "allowed", "refused", "window", "counter", "log"}
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

// hot returns a function that takes one unit of one key and checks whether it is admitted.
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
