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

// One answer in ten is lost on its way. What was admitted is counted, what is counted was
// admitted or may have been, and nothing is counted twice: by what the servers have.
func TestLostAnswers(t *testing.T) {
	t.Parallel()
	t.Run("single", func(t *testing.T) {
		t.Parallel()
		server := redistest.Start(t)
		px := redistest.StartProxy(t, server.Addr)
		testLostAnswers(t, "redis://"+px.Addr, []*redistest.Server{server}, px)
	})
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		c := redistest.StartCluster(t, 3, 0)
		proxies, url := c.StartProxies(t)
		testLostAnswers(t, url, c.Masters, proxies...)
	})
}

func testLostAnswers(t *testing.T, url string, servers []*redistest.Server, proxies ...*redistest.Proxy) {
	const keys, callers, each = 16, 8, 500
	store := open(t, url)
	p := plan(t, sluice.FixedWindow, "1000000/10d")
	for _, px := range proxies {
		px.Reset(0.1)
	}
	var admitted, unknown [keys]atomic.Int64
	var unsent, charged atomic.Int64
	ask := func(k int) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		err := store.Take(ctx, []sluice.Charge{{Key: fmt.Sprintf("{key%d}", k), Plan: p, Cost: 1}}, make([]sluice.Receipt, 1))
		if e, ok := errors.AsType[*redisstore.Error](err); ok && e.NotCharged() {
			unsent.Add(1)
		} else if err != nil {
			unknown[k].Add(1)
		} else {
			admitted[k].Add(1)
		}
	}
	var all sync.WaitGroup
	for c := range callers {
		all.Go(func() {
			for i := range each {
				ask((c + i) % keys)
			}
		})
	}
	all.Wait()
	for k := range keys {
		n, least, most := counted(t, servers, fmt.Sprintf("{key%d}", k)), admitted[k].Load(), unknown[k].Load()
		if most += least; n < least || n > most {
			t.Errorf("key %d: %d are counted, want %d to %d", k, n, least, most)
		}
		charged.Add(n)
		if k > 0 {
			admitted[0].Add(admitted[k].Load())
			unknown[0].Add(unknown[k].Load())
		}
	}
	t.Logf("of %d decisions %d were answered, %d may have been charged, %d were not; %d were charged", callers*each,
		admitted[0].Load(), unknown[0].Load(), unsent.Load(), charged.Load())
	if unknown[0].Load() < int64(callers*each/50) || admitted[0].Load() < int64(callers*each/2) {
		t.Error("premise: answers are lost, one in ten")
	}
}

// counted returns what the servers have counted in the window of a key.
func counted(t *testing.T, servers []*redistest.Server, key string) (n int64) {
	t.Helper()
	for _, s := range servers {
		for name := range strings.Lines(s.Do("KEYS", "*"+key)) {
			var window, count int64
			if _, err := fmt.Sscanf(s.Do("GET", strings.TrimSpace(name)), "%d:%d", &window, &count); err != nil {
				t.Errorf("the state of %s: %v", key, err)
			}
			n += count
		}
	}
	return n
}

// However many answers are lost on a server that answers others, those who come after them
// wait for none of them.
func TestLostAnswersHoldUpNobody(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	px := redistest.StartProxy(t, server.Addr)
	store := open(t, "redis://"+px.Addr)
	p := plan(t, sluice.TokenBucket, "1000000/day")
	take(t, store, "k", p)
	const losses = 40 // more than may be written off at a time
	var lose atomic.Bool
	px.Spoil(func() (time.Duration, bool) {
		if lose.Load() {
			return 4 * time.Second, false
		}
		return 0, false
	})
	for n := 0; n < losses; {
		lose.Store(true)
		ctx, cancel := context.WithTimeout(t.Context(), 40*time.Millisecond)
		err := store.Take(ctx, []sluice.Charge{{Key: "k", Plan: p, Cost: 1}}, make([]sluice.Receipt, 1))
		cancel()
		lose.Store(false)
		if e, ok := errors.AsType[*redisstore.Error](err); !ok {
			t.Fatalf("premise: the answer is lost: %v", err)
		} else if !e.NotCharged() { // it was sent in time
			n++
		}
		for range 2 {
			take(t, store, "k", p)
		}
	}
	for range 200 {
		if workers, _ := store.Workers(); workers <= 1 {
			return
		}
		take(t, store, "k", p)
	}
	workers, lost := store.Workers()
	t.Errorf("%d workers are still waited for, and %d are lost", workers, lost)
}
