package failover_test

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/failover"
	"github.com/sluicehq/sluice/internal/redistest"
	"github.com/sluicehq/sluice/internal/testkit"
	"github.com/sluicehq/sluice/lease"
	"github.com/sluicehq/sluice/redisstore"
	"github.com/sluicehq/sluice/synced"
)

// patient is a deadline that is so long that a busy machine is not taken for a fault.
const patient = 20 * failover.DefaultDeadline

// redisFaults are faults of a server, or of the network to it, in which it is away.
var redisFaults = map[string]struct {
	begin, end func(s *redistest.Server, px *redistest.Proxy)
}{
	"frozen": {
		func(s *redistest.Server, _ *redistest.Proxy) { s.Freeze() },
		func(s *redistest.Server, _ *redistest.Proxy) { s.Thaw() },
	},
	"killed": {
		func(s *redistest.Server, _ *redistest.Proxy) { s.Kill() },
		func(s *redistest.Server, _ *redistest.Proxy) { s.Restart() },
	},
	"memory full": {
		func(s *redistest.Server, _ *redistest.Proxy) { s.Do("CONFIG", "SET", "maxmemory", "1") },
		func(s *redistest.Server, _ *redistest.Proxy) { s.Do("CONFIG", "SET", "maxmemory", "0") },
	},
	"read-only": {
		func(s *redistest.Server, _ *redistest.Proxy) {
			s.Do("CONFIG", "SET", "replica-serve-stale-data", "yes")
			s.Do("REPLICAOF", "127.0.0.1", "1")
		},
		func(s *redistest.Server, _ *redistest.Proxy) { s.Do("REPLICAOF", "NO", "ONE") },
	},
	"busy": {
		func(s *redistest.Server, _ *redistest.Proxy) {
			s.Do("CONFIG", "SET", "lua-time-limit", "10")
			go s.Try("EVAL", "while true do end", "0")
		},
		func(s *redistest.Server, _ *redistest.Proxy) { s.Do("SCRIPT", "KILL") },
	},
	"resets": {
		func(_ *redistest.Server, px *redistest.Proxy) { px.Reset(1); px.Cut() },
		func(_ *redistest.Server, px *redistest.Proxy) { px.Heal() },
	},
	"a byte a second": {
		func(_ *redistest.Server, px *redistest.Proxy) { px.Trickle.Store(true) },
		func(_ *redistest.Server, px *redistest.Proxy) { px.Heal(); px.Cut() },
	},
}

// A circuit opens for any fault of a real server, and closes after it. All decisions are made, of any consistency,
// what is owed is written back, and in the end nothing is left.
func TestRedis(t *testing.T) {
	t.Parallel()
	for name, f := range redisFaults {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			px := redistest.StartProxy(t, server.Addr)
			shared, err := redisstore.Open(t.Context(), "redis://"+px.Addr)
			if err != nil {
				t.Fatal(err)
			}
			leased := lease.New(shared)
			counts := synced.New(leased)
			s := open(counts, failover.Config{Deadline: patient, Instances: 1})
			l := start(s, 200, plan(t, "100/second", sluice.TokenBucket))
			decides := func() bool { st := s.Status(); return !st.Degraded() && st.Owing == 0 }
			testkit.Await(t, "the server decides", func() bool { return decides() && s.Status().Shared > 20 })
			f.begin(server, px)
			testkit.Await(t, "the circuit opens", func() bool { return s.Status().Degraded() })
			testkit.Await(t, "decisions are local", func() bool { return s.Status().Local > 20 })
			f.end(server, px)
			testkit.Await(t, "all is written back", decides)
			before := s.Status().Shared
			testkit.Await(t, "the server decides again", func() bool { return decides() && s.Status().Shared > before+20 })
			l.done(t)
			s.Close()
			counts.Close()
			leased.Close()
			shared.Close()
			testkit.Await(t, "its connections are closed", func() bool {
				return strings.Count(server.Do("CLIENT", "LIST"), " addr=") <= 1 // this question's
			})
		})
	}
}

// load is an open loop of decisions, and what has come of them.
type load struct {
	mu      sync.Mutex
	errors  []error
	asked   atomic.Int64
	made    int64
	stop    chan struct{}
	running sync.WaitGroup
}

// start asks s a number of times a second, for a key of each consistency in turn, until done is called.
func start(s sluice.Store, perSecond int, p *sluice.Plan) *load {
	l := &load{stop: make(chan struct{})}
	l.running.Go(func() {
		tick := time.NewTicker(2 * time.Millisecond)
		defer tick.Stop()
		begin := time.Now()
		for n := 0; ; {
			select {
			case <-l.stop:
				return
			case <-tick.C:
			}
			// What a late tick has missed is asked, too.
			for due := int(time.Since(begin).Seconds() * float64(perSecond)); n < due; n++ {
				c := []sluice.Consistency{sluice.Strict, sluice.Leased, sluice.Synced}[n%3]
				l.asked.Add(1)
				l.running.Go(func() { l.ask(s, c, p) })
			}
		}
	})
	return l
}

func (l *load) ask(s sluice.Store, c sluice.Consistency, p *sluice.Plan) {
	var r [1]sluice.Receipt
	err := s.Take(context.Background(), []sluice.Charge{{Key: c.String(), Plan: p, Cost: 1, OnError: sluice.Local, Consistency: c}}, r[:])
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.made++; err != nil {
		l.errors = append(l.errors, err)
	}
}

// done ends the load, and fails the test for every decision that was lost or an error.
func (l *load) done(t *testing.T) {
	t.Helper()
	close(l.stop)
	l.running.Wait()
	if len(l.errors) > 0 {
		t.Errorf("%d errors, the first: %v", len(l.errors), l.errors[0])
	}
	if n := l.asked.Load(); n != l.made || n == 0 {
		t.Errorf("%d answers to %d questions", l.made, n)
	}
}
