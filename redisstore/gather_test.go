package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/redistest"
	"github.com/sluicehq/sluice/redisstore"
)

// hammer has callers take units of a few keys, and returns how many fitted for each.
func hammer(t *testing.T, s sluice.Store, p *sluice.Plan, callers, takes, keys int) []int64 {
	t.Helper()
	admitted := make([]atomic.Int64, keys)
	var wg sync.WaitGroup
	for c := range callers {
		wg.Go(func() {
			var r [1]sluice.Receipt
			for i := range takes {
				k := (c + i) % keys
				if err := s.Take(t.Context(), []sluice.Charge{{Key: fmt.Sprint("key", k), Plan: p, Cost: 1}}, r[:]); err != nil {
					t.Error(err)
					return
				}
				if r[0].Fits {
					admitted[k].Add(1)
				}
			}
		})
	}
	wg.Wait()
	counts := make([]int64, keys)
	for i := range admitted {
		counts[i] = admitted[i].Load()
	}
	return counts
}

// Requests that are gathered are each decided for themselves, exactly.
func TestGathering(t *testing.T) {
	server := redistest.Start(t)
	for _, a := range sluice.Algorithms() {
		server.Do("FLUSHALL")
		store := open(t, server.URL())
		limit := "500/10d"
		if a <= sluice.GCRA {
			limit += " burst 500"
		}
		p := plan(t, a, limit)
		calls := commandCalls(t, server, "evalsha")
		for k, n := range hammer(t, store, p, 200, 20, 4) {
			if n != 500 {
				t.Errorf("%v: key %d: %d admitted of a limit of 500", a, k, n)
			}
		}
		if calls = commandCalls(t, server, "evalsha") - calls; calls > 3000 {
			t.Errorf("%v: %d calls for 4000 requests: they were not gathered", a, calls)
		}
	}
}

// commandCalls returns how often the server has run a command.
func commandCalls(t testing.TB, s *redistest.Server, command string) int64 {
	t.Helper()
	var n int64
	fmt.Sscanf(s.Info("cmdstat_"+command), "calls=%d,", &n)
	return n
}

// The script comes back by itself, and not by every caller.
func TestScriptFlush(t *testing.T) {
	server := redistest.Start(t)
	store := open(t, server.URL())
	p := plan(t, sluice.TokenBucket, "500/10d")
	const flushes = 20
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range flushes {
			server.Do("SCRIPT", "FLUSH")
			time.Sleep(2 * time.Millisecond)
		}
	}()
	for k, n := range hammer(t, store, p, 1000, 20, 4) {
		if n != 500 {
			t.Errorf("key %d: %d admitted of a limit of 500", k, n)
		}
	}
	<-done
	loads := commandCalls(t, server, "eval")
	if loads == 0 || loads > 2*flushes {
		t.Errorf("the script was loaded %d times after %d flushes", loads, flushes)
	}
}

// A caller goes when its context ends. It is told whether it may have been charged, and
// is not if it was told so.
func TestCallersLeave(t *testing.T) {
	server := redistest.Start(t)
	store := open(t, server.URL())
	p := plan(t, sluice.FixedWindow, "5000/10d")
	take(t, store, "k", p) // connects

	server.Freeze()
	// The first callers take the workers, one after the other, and those in place of the
	// ones that are written off. Whoever comes then has to wait.
	var unknown, notSent int64
	for range 120 {
		told := leaving(t, store, p)
		unknown += told[redisstore.Unknown]
		if notSent = told[redisstore.NotSent]; unknown >= 2 && notSent == 50 {
			break
		}
	}
	server.Thaw()
	if unknown < 2 || notSent != 50 {
		t.Errorf("%d callers do not know, and of the last 50 %d were not sent", unknown, notSent)
	}
	// Of those under way to a server that goes on some arrive: not those that waited for a
	// connection for too long. Nobody else does.
	_ = store.Close() // waits for them
	if got := used(t, open(t, server.URL()), "k", p); got < 2 || got > 1+unknown {
		t.Errorf("%d units are used, want 2 to %d", got, 1+unknown)
	}
}

// leaving has 50 callers that wait for 30 ms, and returns what they were told.
func leaving(t *testing.T, store sluice.Store, p *sluice.Plan) map[redisstore.Kind]int64 {
	t.Helper()
	var mu sync.Mutex
	told := map[redisstore.Kind]int64{}
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
			defer cancel()
			err := store.Take(ctx, []sluice.Charge{{Key: "k", Plan: p, Cost: 1}}, make([]sluice.Receipt, 1))
			e, ok := errors.AsType[*redisstore.Error](err)
			if !ok || !errors.Is(err, context.DeadlineExceeded) || e.NotCharged() != (e.Kind == redisstore.NotSent) {
				t.Errorf("error %v", err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			told[e.Kind]++
		})
	}
	wg.Wait()
	return told
}

// used returns how many units of a window or log are used.
func used(t testing.TB, s sluice.Store, key string, p *sluice.Plan) int64 {
	t.Helper()
	var r [1]sluice.Receipt
	if err := s.Take(t.Context(), []sluice.Charge{{Key: key, Plan: p}}, r[:]); err != nil {
		t.Fatal(err)
	}
	return r[0].Used
}

// A context that has ended costs nothing.
func TestEndedContext(t *testing.T) {
	server := redistest.Start(t)
	store := open(t, server.URL())
	p := plan(t, sluice.FixedWindow, "5/10d")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := store.Take(ctx, []sluice.Charge{{Key: "k", Plan: p, Cost: 1}}, make([]sluice.Receipt, 1))
	if e, ok := errors.AsType[*redisstore.Error](err); !ok || e.Kind != redisstore.NotSent || !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	if n := server.Do("DBSIZE"); n != "0" {
		t.Errorf("%s keys", n)
	}
}

func TestClose(t *testing.T) {
	server := redistest.Start(t)
	store := open(t, server.URL())
	p := plan(t, sluice.FixedWindow, "1000000/10d")
	var admitted, refused atomic.Int64
	var wg sync.WaitGroup
	started := make(chan struct{}, 100)
	for range 100 {
		wg.Go(func() {
			started <- struct{}{}
			for {
				err := store.Take(t.Context(), []sluice.Charge{{Key: "k", Plan: p, Cost: 1}}, make([]sluice.Receipt, 1))
				if err == nil {
					admitted.Add(1)
					continue
				}
				if e, ok := errors.AsType[*redisstore.Error](err); !ok || e.Kind != redisstore.NotSent {
					t.Errorf("error %v", err)
				}
				refused.Add(1)
				return
			}
		})
	}
	for range 100 {
		<-started
	}
	redistest.Eventually(t, "there is load", func() bool { return admitted.Load() > 1000 })
	if err := errors.Join(store.Close(), store.Close()); err != nil {
		t.Error(err)
	}
	wg.Wait()
	redistest.Eventually(t, "the closed store has no connections", func() bool {
		return strings.Count(server.Do("CLIENT", "LIST"), " addr=") == 1 // who asks
	})
	second := open(t, server.URL())
	if n := used(t, second, "k", p); n != admitted.Load() || refused.Load() != 100 {
		t.Errorf("%d admitted, %d in the store; %d callers were told that it is closed", admitted.Load(), n, refused.Load())
	}
}

func TestTooManyCharges(t *testing.T) {
	server := redistest.Start(t)
	store := open(t, server.URL())
	p := plan(t, sluice.SlidingWindowLog, "5/hour")
	for n, good := range map[int]bool{1: true, 1024: true, 1025: false} {
		charges := make([]sluice.Charge, n)
		for i := range charges {
			charges[i] = sluice.Charge{Key: fmt.Sprint("k", i), Plan: p, Cost: 1}
		}
		receipts := make([]sluice.Receipt, n)
		err := store.Take(t.Context(), charges, receipts)
		if good != (err == nil) {
			t.Errorf("%d charges: %v", n, err)
		}
		if good && (!receipts[n-1].Fits || receipts[n-1].Used == 0) {
			t.Errorf("%d charges: the last has %+v", n, receipts[n-1])
		}
	}
}
