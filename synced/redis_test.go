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
	"github.com/sluicehq/sluice/storetest"
	"github.com/sluicehq/sluice/synced"
)

// process is one of several that share a server.
type process struct {
	shared *redisstore.Store
	counts *synced.Store
	store  *failover.Store
}

func start(t *testing.T, server *redistest.Server) *process {
	t.Helper()
	shared, err := redisstore.Open(t.Context(), server.URL())
	if err != nil {
		t.Fatal(err)
	}
	counts := synced.New(shared)
	p := &process{shared, counts, failover.New(counts, failover.Config{Deadline: 2 * time.Second, Logger: slog.New(slog.DiscardHandler)})}
	t.Cleanup(func() { p.end(t) })
	return p
}

func (p *process) end(t *testing.T) {
	if p.store == nil {
		return
	}
	p.store.Close()
	p.counts.Close()
	if err := p.shared.Close(); err != nil {
		t.Error(err)
	}
	p.store = nil
}

func (p *process) take(t *testing.T, key string, plan *sluice.Plan, cost int64) sluice.Receipt {
	t.Helper()
	charges := [1]sluice.Charge{{Key: key, Plan: plan, Cost: cost, Consistency: sluice.Synced, OnError: sluice.Deny}}
	var r [1]sluice.Receipt
	if err := p.store.Take(t.Context(), charges[:], r[:]); err != nil {
		t.Error(err)
	}
	return r[0]
}

// counted returns what a server has counted of a key.
func counted(t *testing.T, server *redistest.Server, key string, plan *sluice.Plan) int64 {
	t.Helper()
	shared, err := redisstore.Open(t.Context(), server.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer shared.Close()
	charges := [1]sluice.Charge{{Key: key, Plan: plan}}
	var r [1]sluice.Receipt
	if err := shared.Take(t.Context(), charges[:], r[:]); err != nil {
		t.Fatal(err)
	}
	return r[0].Used
}

// year is a limit by the year: it ends in a test once in a while, which starts anew then.
func year(t *testing.T, count int64) *sluice.Plan {
	t.Helper()
	p, err := sluice.NewPlan(sluice.Limit{Count: count, Period: 365 * 24 * time.Hour, Algorithm: sluice.FixedWindow})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestRedisConformance(t *testing.T) {
	server := redistest.Start(t)
	storetest.Run(t, func(t *testing.T) sluice.Store {
		server.Do("FLUSHALL")
		shared, err := redisstore.Open(t.Context(), server.URL())
		if err != nil {
			t.Fatal(err)
		}
		s := synced.New(shared)
		t.Cleanup(func() {
			s.Close()
			if err := shared.Close(); err != nil {
				t.Error(err)
			}
		})
		if differs.MatchString(t.Name()) {
			return alone{s, sluice.Strict}
		}
		return alone{s, sluice.Synced}
	})
}

// Several processes let pass what the limit says and what may be above it, know of all of it in the
// end, and hardly ask.
func TestRedisFleet(t *testing.T) {
	server := redistest.Start(t)
	const limit, n = 3000, 4
	p := year(t, limit)
	var all []*process
	for range n {
		all = append(all, start(t, server))
	}
	var passed, asked atomic.Int64
	var running sync.WaitGroup
	for _, one := range all {
		for range 4 {
			running.Go(func() {
				for refused := 0; refused < 20; {
					asked.Add(1)
					if one.take(t, "k", p, 1).Fits {
						passed.Add(1)
					} else {
						refused++
					}
					time.Sleep(2 * time.Millisecond)
				}
			})
		}
	}
	running.Wait()
	for _, one := range all {
		one.end(t)
	}
	if got := passed.Load(); got < limit || got > limit+synced.Excess(p, n) {
		t.Errorf("%d passed, want %d and at most %d more", got, limit, synced.Excess(p, n))
	}
	if got := counted(t, server, "k", p); got != passed.Load() {
		t.Errorf("%d passed, and %d are counted", passed.Load(), got)
	}
	t.Logf("%d of %d passed, limit %d", passed.Load(), asked.Load(), limit)
}

// Whatever happens to the server, nothing is told twice, and what is not told is at most what was on
// its way when it stopped.
func TestRedisFaults(t *testing.T) {
	faults := map[string]struct {
		strike, mend func(s *redistest.Server)
		forgets      bool
	}{
		"frozen": {(*redistest.Server).Freeze, (*redistest.Server).Thaw, false},
		"killed": {(*redistest.Server).Kill, func(s *redistest.Server) { s.Restart() }, true},
	}
	for name, f := range faults {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			p := year(t, 1_000_000)
			one, other := start(t, server), start(t, server)
			// Some for the server to know of.
			before := int64(0)
			for range 50 {
				if one.take(t, "k", p, 1).Fits && other.take(t, "k", p, 1).Fits {
					before += 2
				}
			}
			redistest.Eventually(t, "all is told", func() bool { return counted(t, server, "k", p) == before })
			f.strike(server)
			// What passes now is on its way to a server that does not answer, or stays here.
			unheard := int64(0)
			for ; ; unheard++ {
				r := one.take(t, "k", p, 1)
				if r.Origin != sluice.BySync {
					if r.Fits {
						t.Errorf("let pass without the store: %+v", r)
					}
					break
				}
				time.Sleep(time.Millisecond)
			}
			f.mend(server)
			redistest.Eventually(t, "the store is used again", func() bool { return one.take(t, "k", p, 0).Origin == sluice.ByStore })
			after := int64(0)
			for range 50 {
				if one.take(t, "k", p, 1).Fits {
					after++
				}
			}
			one.end(t)
			other.end(t)
			got := counted(t, server, "k", p)
			if f.forgets {
				before = 0
			}
			if got < before+after || got > before+unheard+after {
				t.Errorf("%d are counted, want at least %d, and %d at most", got, before+after, before+unheard+after)
			}
			t.Logf("%d known, %d let pass unheard, %d since: %d are counted", before, unheard, after, got)
		})
	}
}

// A key that holds something else is decided by on_error, and the others as ever.
func TestRedisUnreadable(t *testing.T) {
	server := redistest.Start(t)
	p := year(t, 100)
	one := start(t, server)
	if r := one.take(t, "odd", p, 1); !r.Fits {
		t.Fatalf("%+v", r)
	}
	one.end(t)
	name := server.Do("KEYS", "*odd*")
	server.Do("DEL", name)
	server.Do("RPUSH", name, "x")
	one = start(t, server)
	charges := []sluice.Charge{
		{Key: "fine", Plan: p, Cost: 1, Consistency: sluice.Synced}, {Key: "odd", Plan: p, Cost: 1, Consistency: sluice.Synced, OnError: sluice.Allow},
	}
	receipts := make([]sluice.Receipt, 2)
	for range 3 {
		if err := one.store.Take(t.Context(), charges, receipts); err != nil || receipts[0].Origin.Degraded() || receipts[1].Origin != sluice.ByOnError || !receipts[1].Fits {
			t.Fatalf("%+v, %v", receipts, err)
		}
	}
	if st := one.store.Status(); st.Degraded() || st.Unreadable != 3 {
		t.Errorf("%+v", st)
	}
	one.end(t)
	if got := counted(t, server, "fine", p); got != 3 {
		t.Errorf("%d are counted, want 3", got)
	}
}
