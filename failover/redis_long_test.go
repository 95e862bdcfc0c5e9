//go:build long

package failover_test

import (
	"os"
	"testing"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/failover"
	"github.com/sluicehq/sluice/internal/redistest"
)

// chaos says that the machine has nothing else to do, so that the times are asserted that the documentation states.
var chaos = os.Getenv("SLUICE_CHAOS") != ""

func scaled[T any](short, full T) T {
	if chaos {
		return full
	}
	return short
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
