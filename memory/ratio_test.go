package memory_test

import (
	"context"
	"hash/maphash"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/memory"
)

// BenchmarkRatio has all contenders take turns, a thousand operations each, and reports for
// each what its best tenth of turns took, and that as a multiple of clock and hash. So it tells
// the same on a machine that has other things to do. Run it with -cpu 1.
func BenchmarkRatio(b *testing.B) {
	base, seed := time.Now(), maphash.MakeSeed()
	var word atomic.Uint64
	names := []string{"clock+hash", "clock+hash+cas", "allowed", "refused", "window", "counter", "log", "limiter", "limiter-refused", "layers", "layers-refused", "million-floor", "million", "million-3", "million-16"}
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

func must(b *testing.B, err error) {
	if err != nil {
		b.Fatal(err)
	}
}
