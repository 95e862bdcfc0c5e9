package synced_test

import (
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

// process is one of several that share a real server, as a program has them.
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

// year is a limit by the year: it ends in a test once in a while, which starts again then.
func year(t *testing.T, count int64) *sluice.Plan {
	t.Helper()
	p, err := sluice.NewPlan(sluice.Limit{Count: count, Period: 365 * 24 * time.Hour, Algorithm: sluice.FixedWindow})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Several processes let pass what the limit says and what may be above it, and know of all of it in the end.
func TestRedisFleet(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	const limit, n = 1000, 4
	p := year(t, limit)
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

// Whatever happens to the server, nothing is told twice, and what is not told is at most what was on its way when it
// stopped.
func TestRedisFaults(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]struct {
		strike, mend func(s *redistest.Server)
		forgets      bool
	}{
		"frozen": {(*redistest.Server).Freeze, (*redistest.Server).Thaw, false},
		"killed": {(*redistest.Server).Kill, func(s *redistest.Server) { s.Restart() }, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			p := year(t, 1_000_000)
			one, other := start(t, server), start(t, server)
			passes := func(n int, by ...*process) (passed int64) {
				for range n {
					for _, process := range by {
						if process.take(t, p, 1, sluice.Synced).Fits {
							passed++
						}
					}
				}
				return passed
			}
			counted := func() int64 { return one.take(t, p, 0, sluice.Strict).Used }
			before := passes(50, one, other)
			redistest.Eventually(t, "all is told", func() bool { return counted() == before })
			f.strike(server)
			// What passes now is on its way to a server that does not answer, or stays here.
			unheard := int64(0)
			for ; one.take(t, p, 1, sluice.Synced).Origin == sluice.BySync; unheard++ {
				time.Sleep(time.Millisecond)
			}
			f.mend(server)
			redistest.Eventually(t, "the store is used again", func() bool { return one.take(t, p, 0, sluice.Synced).Origin == sluice.ByStore })
			after := passes(50, one)
			one.end()
			other.end()
			one = start(t, server)
			if f.forgets {
				before = 0
			}
			if got := counted(); got < before+after || got > before+unheard+after {
				t.Errorf("%d are counted, want at least %d, and %d at most", got, before+after, before+unheard+after)
			}
		})
	}
}
