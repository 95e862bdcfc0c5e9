//go:build long

package failover_test

import (
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/failover"
	"github.com/sluicehq/sluice/internal/redistest"
	"github.com/sluicehq/sluice/redisstore"
)

// chaos says that the machine has nothing else to do, so that the times are asserted that the documentation states.
var chaos = os.Getenv("SLUICE_CHAOS") != ""

func scaled[T any](short, full T) T {
	if chaos {
		return full
	}
	return short
}

func quantile(l *load, q float64) time.Duration {
	slices.Sort(l.took)
	return l.took[min(len(l.took)-1, int(q*float64(len(l.took))))]
}

// limit logs a time that is longer than the stated one, and fails where times are asserted.
func limit(t *testing.T, what string, got, most time.Duration) {
	t.Helper()
	if got > most {
		t.Logf("%s: %v, the figure to reach is %v", what, got, most)
		if chaos {
			t.Fail()
		}
	}
}

func eventually(t *testing.T, what string, most time.Duration, holds func() bool) {
	t.Helper()
	begin := time.Now()
	redistest.Eventually(t, what, holds)
	limit(t, what, time.Since(begin), most)
}

// Each fault comes again and again under a high load. Circuits open within a second and close within two, no decision
// takes longer than twice the deadline, and what is admitted is a burst more for each time that counts are forgotten.
func TestLongRedis(t *testing.T) {
	for name, f := range redisFaults {
		t.Run(name, func(t *testing.T) {
			server := redistest.Start(t)
			px := redistest.StartProxy(t, server.Addr)
			var log lines
			s := overRedis(t, "redis://"+px.Addr, failover.Config{Instances: 1, Deadline: scaled(patient, failover.DefaultDeadline), Logger: logTo(&log)})
			p := plan(t, "200/second burst 100", sluice.TokenBucket)
			begin := time.Now()
			l := start(s, 2000, p, "a", "b", "c", "d")
			rounds := scaled(2, 20)
			for range rounds {
				time.Sleep(300 * time.Millisecond)
				px.Opened.Store(0)
				f.begin(server, px)
				eventually(t, "opens", time.Second, func() bool { return s.Status().Degraded() })
				time.Sleep(scaled(500*time.Millisecond, 3*time.Second))
				f.end(server, px)
				eventually(t, "closes", 2*time.Second, func() bool { return !s.Status().Degraded() })
			}
			redistest.Eventually(t, "all is written back", func() bool { return s.Status().Owing == 0 })
			l.done(t)
			elapsed := time.Since(begin)
			for key, n := range l.fit {
				// A burst at first, and one more for what each outage has forgotten or overseen. A busy machine may add some.
				outages := max(rounds, (log.about("")+1)/2)
				if most := p.Capacity*int64(1+outages) + int64(elapsed.Seconds()*200) + 1; n > most || chaos && n < int64(elapsed.Seconds()*120) {
					t.Errorf("%s was admitted %d times, at most %d are right", key, n, most)
				}
			}
			limit(t, "longest decision", quantile(l, 1), 2*failover.DefaultDeadline)
			limit(t, "p50", quantile(l, 0.5), time.Millisecond)
		})
	}
}

// A slow network is not a dead server, and one that loses some answers costs none but those.
func TestLongRedisNetwork(t *testing.T) {
	deadline := scaled(patient, failover.DefaultDeadline)
	for name, spoil := range map[string]func(px *redistest.Proxy){
		"slow":           func(px *redistest.Proxy) { px.Delay(deadline * 15 / 100) },
		"slower":         func(px *redistest.Proxy) { px.Delay(deadline * 40 / 100) },
		"5 % of resets":  func(px *redistest.Proxy) { px.Reset(0.05) },
		"10 % of resets": func(px *redistest.Proxy) { px.Reset(0.1) },
	} {
		t.Run(name, func(t *testing.T) {
			server := redistest.Start(t)
			px := redistest.StartProxy(t, server.Addr)
			var log lines
			s := overRedis(t, "redis://"+px.Addr, failover.Config{Instances: 1, Deadline: deadline, Logger: logTo(&log)})
			p := plan(t, "10000000/day", sluice.SlidingWindowCounter)
			spoil(px)
			l := start(s, 500, p, "k")
			time.Sleep(scaled(2*time.Second, 20*time.Second))
			l.done(t)
			px.Heal()
			redistest.Eventually(t, "all is written back", func() bool { st := s.Status(); return !st.Degraded() && st.Owing == 0 })
			st := s.Status()
			if chaos && log.about("") > 12 || chaos && px.Opened.Load() < 10 && (log.about("") > 0 || st.Local*100 > st.Shared) {
				t.Errorf("%d changes of state, %+v", log.about(""), st)
			}
			// Nothing is charged twice.
			if used, asked := p.Capacity-p.Decide(0, spend(t, s, "k", p, 0, sluice.Deny)).Remaining, l.asked.Load(); used > asked {
				t.Errorf("%d units are charged for %d decisions", used, asked)
			}
		})
	}
}

// The connections of the first second after a restart are few, although all callers want one.
func TestLongRedisReconnects(t *testing.T) {
	server := redistest.Start(t)
	px := redistest.StartProxy(t, server.Addr)
	s := overRedis(t, "redis://"+px.Addr, failover.Config{Instances: 1, Deadline: scaled(patient, failover.DefaultDeadline)})
	l := start(s, 2000, plan(t, "200/second burst 100", sluice.TokenBucket), "a", "b", "c", "d")
	redistest.Eventually(t, "the server decides", func() bool { return s.Status().Shared > 500 })
	pool := px.Opened.Load()
	server.Kill()
	px.Cut()
	redistest.Eventually(t, "the circuit opens", func() bool { return s.Status().Degraded() })
	server.Restart()
	px.Opened.Store(0)
	time.Sleep(time.Second)
	if n := px.Opened.Load(); n > max(2*pool, 16) {
		t.Errorf("%d new connections in the first second, the pool has %d", n, pool)
	}
	redistest.Eventually(t, "the circuit closes", func() bool { return !s.Status().Degraded() })
	l.done(t)
}

// The master of a cluster is killed: what it counted is decided by the rule, the rest as ever, and its replica takes
// over.
func TestLongRedisClusterMaster(t *testing.T) {
	c := redistest.StartCluster(t, 3, 1)
	shared, err := redisstore.Open(t.Context(), c.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer shared.Close()
	s := open(shared, failover.Config{Instances: 1, Deadline: scaled(patient, failover.DefaultDeadline)})
	defer s.Close()
	// A key of each master, by the server's own answer.
	var keys [3]string
	for i := 0; keys[0] == "" || keys[1] == "" || keys[2] == ""; i++ {
		key := fmt.Sprint("key", i)
		keys[shared.Shard(key)%3] = key
	}
	p := plan(t, "200/second burst 100", sluice.TokenBucket)
	var loads [3]*load
	for i, key := range keys {
		loads[i] = start(s, 300, p, key)
	}
	redistest.Eventually(t, "all masters decide", func() bool { st := s.Status(); return !st.Degraded() && st.Shared >= 300 })
	c.Masters[0].Kill()
	var dead int
	eventually(t, "a circuit opens", time.Second, func() bool {
		dead = slices.IndexFunc(s.Status().Shards, func(h failover.ShardStatus) bool { return h.Away })
		return dead >= 0
	})
	for i, h := range s.Status().Shards {
		if i != dead && h.Away {
			t.Errorf("shard %d is away as well as %d", i, dead)
		}
	}
	eventually(t, "the range is served again", 6*time.Second, func() bool {
		return !take(t, s, keys[dead], p, sluice.Local).Origin.Degraded()
	})
	for i, l := range loads {
		l.done(t)
		if i != dead {
			limit(t, "p99 of the others", quantile(l, 0.99), 10*time.Millisecond)
		}
	}
}
