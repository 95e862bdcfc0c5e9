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
)

// BenchmarkTake has callers take one unit each, one after the other, of a token bucket
// that never refuses, or of one hot key that nearly always does. Beside the time it
// reports the CPU time of this process and of the server per decision.
func BenchmarkTake(b *testing.B) {
	server := redistest.Start(b)
	for _, keys := range []int{10_000, 1} {
		for _, callers := range []int{1, 64, 512} {
			b.Run(fmt.Sprintf("keys=%d/callers=%d", keys, callers), func(b *testing.B) {
				server.Do("FLUSHALL")
				benchmarkTake(b, server, keys, callers)
			})
		}
	}
}

func benchmarkTake(b *testing.B, server *redistest.Server, keys, callers int) {
	store := open(b, server.URL())
	limit := "10000/day"
	if keys == 1 {
		limit = "100/minute"
	}
	p := plan(b, sluice.TokenBucket, limit)
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
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
	for range callers {
		wg.Go(func() {
			var r [1]sluice.Receipt
			for {
				n := left.Add(-1)
				if n < 0 {
					return
				}
				if err := store.Take(ctx, []sluice.Charge{{Key: names[int(n)%keys], Plan: p, Cost: 1}}, r[:]); err != nil {
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
	if keys > 1 && fits.Load() != int64(b.N) {
		b.Fatalf("%d of %d fitted: all should", fits.Load(), b.N)
	}
	if got := server.Do("DBSIZE"); keys > 1 && b.N > 2*keys && got != strconv.Itoa(keys) {
		b.Fatalf("the server has %s keys instead of %d", got, keys)
	}
	// 100 at once and 100 a minute.
	if most := 100 + int64(b.Elapsed().Minutes()*100) + 1; keys == 1 && fits.Load() > most {
		b.Fatalf("%d fitted, of at most %d", fits.Load(), most)
	}
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
