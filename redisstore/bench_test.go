package redisstore_test

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/redistest"
	"github.com/sluicehq/sluice/redisstore"
)

// BenchmarkTake has callers take one unit each, one after the other, of a token bucket
// that never refuses. Beside the time it reports the CPU time of this process and of the
// server per decision. With a store for each caller nothing is gathered.
func BenchmarkTake(b *testing.B) {
	server := redistest.Start(b)
	for _, test := range []struct{ keys, callers, stores int }{
		{10_000, 1, 1}, {10_000, 64, 1}, {10_000, 512, 1}, {1, 1, 1}, {1, 64, 1}, {1, 512, 1}, {1, 64, 64},
	} {
		b.Run(fmt.Sprintf("keys=%d/callers=%d/stores=%d", test.keys, test.callers, test.stores), func(b *testing.B) {
			server.Do("FLUSHALL")
			stores := make([]*redisstore.Store, test.stores)
			for i := range stores {
				stores[i] = open(b, server.URL())
			}
			calls := commandCalls("evalsha", server)
			if fits := benchmarkTake(b, server, stores, "100000000/10000d", test.keys, test.callers); fits != int64(b.N) {
				b.Fatalf("%d of %d fitted: all should", fits, b.N)
			}
			calls = commandCalls("evalsha", server) - calls
			each := float64(b.N) / float64(calls)
			b.ReportMetric(each, "decisions/call")
			if each > 1 && test.callers == test.stores {
				b.Fatalf("%d decisions in %d calls: each should have its own", b.N, calls)
			}
		})
	}
}

// benchmarkTake returns how many of b.N takes fitted.
func benchmarkTake(b *testing.B, server *redistest.Server, stores []*redisstore.Store, limit string, keys, callers int) int64 {
	p := plan(b, sluice.TokenBucket, limit)
	names := make([]string, keys)
	for i := range names {
		names[i] = "api/" + strconv.Itoa(i)
	}
	var left, fits atomic.Int64
	left.Store(int64(b.N))
	ours, its := cpu(b), serverCPU(b, server)
	b.ReportAllocs()
	b.ResetTimer()
	var wg sync.WaitGroup
	for caller := range callers {
		store := stores[caller%len(stores)]
		wg.Go(func() {
			var r [1]sluice.Receipt
			for n := left.Add(-1); n >= 0; n = left.Add(-1) {
				if err := store.Take(context.Background(), []sluice.Charge{{Key: names[int(n)%keys], Plan: p, Cost: 1}}, r[:]); err != nil {
					b.Error(err)
					return
				}
				if r[0].Fits {
					fits.Add(1)
				}
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "decisions/s")
	b.ReportMetric(float64((cpu(b)-ours).Nanoseconds())/float64(b.N), "client-cpu-ns/op")
	b.ReportMetric(float64((serverCPU(b, server)-its).Nanoseconds())/float64(b.N), "server-cpu-ns/op")
	if got := server.Do("DBSIZE"); b.N > 2*keys && got != strconv.Itoa(keys) {
		b.Fatalf("the server has %s keys instead of %d", got, keys)
	}
	return fits.Load()
}

// cpu returns the CPU time of this process.
func cpu(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func serverCPU(b *testing.B, s *redistest.Server) time.Duration {
	var total float64
	for _, field := range []string{"used_cpu_user", "used_cpu_sys"} {
		v, err := strconv.ParseFloat(s.Info(field), 64)
		if err != nil {
			b.Fatal(err)
		}
		total += v
	}
	return time.Duration(total * float64(time.Second))
}
