package synced_test

import (
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/failover"
	"github.com/sluicehq/sluice/internal/redistest"
	"github.com/sluicehq/sluice/redisstore"
	"github.com/sluicehq/sluice/synced"
)

// process is one of several processes that share a real server.
type process struct {
	*failover.Store
	end func()
}

func start(t *testing.T, server *redistest.Server) *process {
	t.Helper()
	shared, err := redisstore.Open(t.Context(), server.URL())
	if err != nil {
		t.Fatal(err)
	}
	counts := synced.New(shared)
	p := &process{Store: failover.New(counts, failover.Config{Deadline: 2 * time.Second, Logger: slog.New(slog.DiscardHandler)})}
	p.end = sync.OnceFunc(func() {
		p.Close()
		counts.Close()
		shared.Close()
	})
	t.Cleanup(p.end)
	return p
}

func (p *process) take(t *testing.T, plan *sluice.Plan, cost int64, c sluice.Consistency) sluice.Receipt {
	t.Helper()
	charges := [1]sluice.Charge{{Key: "k", Plan: plan, Cost: cost, Consistency: c, OnError: sluice.Deny}}
	var r [1]sluice.Receipt
	if err := p.Take(t.Context(), charges[:], r[:]); err != nil {
		t.Error(err)
	}
	return r[0]
}

// Several processes admit the limit and at most the documented excess. In the end, the server has counted all admitted
// units.
func TestRedisFleet(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	const limit, n = 1000, 4
	p := plan(t, fmt.Sprintf("%d/365d", limit), sluice.FixedWindow)
	var passed atomic.Int64
	var running sync.WaitGroup
	for range n {
		one := start(t, server)
		running.Go(func() {
			for refused := 0; refused < 20; time.Sleep(time.Millisecond) {
				if one.take(t, p, 1, sluice.Synced).Fits {
					passed.Add(1)
				} else {
					refused++
				}
			}
			one.end()
		})
	}
	running.Wait()
	if got := passed.Load(); got < limit || got > limit+synced.Excess(p, n) {
		t.Errorf("%d passed, want %d and at most %d more", got, limit, synced.Excess(p, n))
	}
	if got := start(t, server).take(t, p, 0, sluice.Strict).Used; got != passed.Load() {
		t.Errorf("%d passed, and %d are counted", passed.Load(), got)
	}
}
