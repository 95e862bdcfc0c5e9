package failover_test

import (
	"errors"
	"fmt"
	"strings"
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

// redisFaults are faults of a server, or of the network to it, that make it unavailable. The tests of redisstore check
// the errors of a store in each fault.
var redisFaults = map[string]struct {
	begin, end func(s *redistest.Server, px *redistest.Proxy)
}{
	"frozen": {
		func(s *redistest.Server, _ *redistest.Proxy) { s.Freeze() },
		func(s *redistest.Server, _ *redistest.Proxy) { s.Thaw() },
	},
	"memory full": {
		func(s *redistest.Server, _ *redistest.Proxy) { s.Do("CONFIG", "SET", "maxmemory", "1") },
		func(s *redistest.Server, _ *redistest.Proxy) { s.Do("CONFIG", "SET", "maxmemory", "0") },
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

// The circuit opens for any fault of a real server, and closes after it. Charges of any consistency are always decided,
// debts are written back, and in the end no connection is left.
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
			p := plan(t, "100/second", sluice.TokenBucket)
			var asked atomic.Int64
			end := steadily(5*time.Millisecond, func() {
				c := []sluice.Consistency{sluice.Strict, sluice.Leased, sluice.Synced}[asked.Add(1)%3]
				charge(t, s, sluice.Charge{Key: c.String(), Plan: p, Cost: 1, OnError: sluice.Local, Consistency: c})
			})
			decides := func() bool { st := s.Status(); return !st.Degraded() && st.Owing == 0 }
			testkit.Await(t, "the server decides", func() bool { return decides() && s.Status().Shared > 20 })
			f.begin(server, px)
			testkit.Await(t, "the circuit opens", func() bool { return s.Status().Degraded() })
			testkit.Await(t, "decisions are local", func() bool { return s.Status().Local > 20 })
			f.end(server, px)
			testkit.Await(t, "all debts are written back", decides)
			before := s.Status().Shared
			testkit.Await(t, "the server decides again", func() bool { return decides() && s.Status().Shared > before+20 })
			end()
			s.Close()
			counts.Close()
			leased.Close()
			shared.Close()
			testkit.Await(t, "the connections of the store are closed", func() bool {
				return strings.Count(server.Do("CLIENT", "LIST"), " addr=") <= 1 // the connection of this command
			})
		})
	}
}

// A foreign text in the state of a key affects one decision, because the store deletes it. A foreign list affects
// decisions until it is deleted from the server.
func TestRedisUnreadable(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	var log lines
	s := overRedis(t, server.URL(), failover.Config{Deadline: time.Minute, Logger: logTo(&log)})
	p := plan(t, "3/day", sluice.FixedWindow)
	take(t, s, "k", p, sluice.Deny)
	name := server.Do("KEYS", "*:k")
	look := func(what string, degraded bool, want int64) {
		t.Helper()
		if r := take(t, s, "k", p, sluice.Deny); r.Origin.Degraded() != degraded || !degraded && r.Used != want {
			t.Errorf("%s: %+v", what, r)
		}
	}
	server.Do("SET", name, "garbage")
	look("a text", true, 0)
	look("after it", false, 1)
	server.Do("DEL", name)
	server.Do("RPUSH", name, "x")
	look("a list", true, 0)
	look("a list", true, 0)
	server.Do("DEL", name)
	look("after it", false, 1)
	if log.about("it was deleted") != 1 || log.about("contains foreign data") != 2 || log.about(name) != 2 {
		t.Errorf("%q", log.all)
	}
}

// A Take with more charges than the shared store accepts is a usage error, and not a failure of the store.
func TestRedisTooManyCharges(t *testing.T) {
	t.Parallel()
	failed := 0
	s := overRedis(t, redistest.Shared(t).URL(), failover.Config{Deadline: patient, OnCall: func(time.Duration, error) { failed++ }})
	p := plan(t, "3/day", sluice.FixedWindow)
	calls := []sluice.TakeCall{{Charges: make([]sluice.Charge, 1025), Receipts: make([]sluice.Receipt, 1025)}}
	for i := range calls[0].Charges {
		calls[0].Charges[i] = sluice.Charge{Key: fmt.Sprint(i), Plan: p, Cost: 1}
	}
	one := s.Take(t.Context(), calls[0].Charges, calls[0].Receipts)
	s.TakeEach(t.Context(), calls)
	if st := s.Status(); !errors.Is(one, sluice.ErrUsage) || !errors.Is(calls[0].Err, sluice.ErrUsage) || st.Failed+st.Local > 0 || failed > 0 {
		t.Errorf("Take: %v, TakeEach: %v, %d calls of OnCall, %+v", one, calls[0].Err, failed, st)
	}
}

// overRedis returns a failover store over the server at a URL.
func overRedis(t *testing.T, url string, c failover.Config) *failover.Store {
	t.Helper()
	shared, err := redisstore.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	s := open(shared, c)
	t.Cleanup(func() {
		s.Close()
		shared.Close()
	})
	return s
}
