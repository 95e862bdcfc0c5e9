//go:build long

package e2e

import (
	"fmt"
	"testing"
	"time"

	"github.com/sluicehq/sluice/internal/redistest"
	"github.com/sluicehq/sluice/internal/testkit"
)

// stage has the processes that a fault affects.
type stage struct {
	server *redistest.Server
	px     *redistest.Proxy
	policy string // the path of the file
	both   [2]*gateway
	reload int
}

// disturbances are faults. begin starts one, and returns a function that ends it.
var disturbances = []struct {
	name  string
	begin func(s *stage) (end func())
}{
	{"killed", func(s *stage) func() {
		s.server.Kill()
		return func() { s.server.Restart() }
	}},
	{"frozen", func(s *stage) func() {
		s.server.Freeze()
		return s.server.Thaw
	}},
	{"20 ms late", func(s *stage) func() {
		s.px.Delay(20 * time.Millisecond)
		return s.px.Heal
	}},
	{"5 % of resets", resets},
	{"a byte a second", dribble},
	{"memory full", func(s *stage) func() {
		s.server.Do("CONFIG", "SET", "maxmemory", "1")
		return func() { s.server.Do("CONFIG", "SET", "maxmemory", "0") }
	}},
	{"flapping", flap},
	{"script gone", func(s *stage) func() {
		s.server.Do("SCRIPT", "FLUSH")
		return func() {}
	}},
	{"clients thrown out", func(s *stage) func() {
		s.server.Do("CLIENT", "KILL", "TYPE", "normal")
		return func() {}
	}},
	{"policy loaded", func(s *stage) func() {
		s.reload++
		overwrite(s.both[0], s.policy, byRule(fmt.Sprintf("%d/second burst 20", 20+s.reload)))
		for _, g := range s.both {
			g.Await("the policy is loaded", loaded)
		}
		return func() {}
	}},
}

func resets(s *stage) (end func()) {
	s.px.Reset(0.05)
	return s.px.Heal
}

func dribble(s *stage) (end func()) {
	s.px.Trickle.Store(true)
	return func() {
		s.px.Heal()
		s.px.Cut()
	}
}

// flap cuts all connections and blocks new ones for 300 ms, lets them pass for 300 ms, and so on.
func flap(s *stage) (end func()) {
	done := make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for down := true; ; down = !down {
			s.px.Deaf.Store(down)
			if down {
				s.px.Cut()
			}
			select {
			case <-done:
				return
			case <-time.After(300 * time.Millisecond):
			}
		}
	}()
	return func() {
		close(done)
		<-ended
		s.px.Heal()
	}
}

// One fault follows another. All answers are those that the rules allow, and memory does not grow. The long form takes
// eight minutes.
func TestLongChaosMixed(t *testing.T) {
	t.Parallel()
	s := &stage{server: redistest.Start(t), policy: testkit.File(t, "policy.yaml", byRule("20/second burst 20"))}
	s.px = redistest.StartProxy(t, s.server.Addr)
	t.Cleanup(func() { // when both gateways have ended
		s.px.Cut()
		testkit.Await(t, "no connection is left", func() bool { return s.server.Info("connected_clients") == "1" })
	})
	// Statistics grow for an hour. The tests of telemetry bound them.
	s.both = pair(t, "", "redis://"+s.px.Addr, "--policy", s.policy, "--telemetry=false")
	l := fire(t, sized(200, 500), func(n int) shot {
		// There are always new keys, as with real clients.
		return shot{s.both[n%2], []string{open, shared, closed}[n/2%3], fmt.Sprint("k", n/6%50+n/3000)}
	})
	growth := watchMemory(s.both)
	each := sized(600*time.Millisecond, 20*time.Second)
	var slowest time.Duration
	for n := range sized(len(disturbances), 24) {
		next := time.Now().Add(each)
		forget(s.both)
		d := disturbances[n%len(disturbances)]
		end := d.begin(s)
		time.Sleep(each * 3 / 10)
		end()
		mended := time.Now()
		for _, g := range s.both {
			testkit.Await(t, "the store is used again after: "+d.name, func() bool { return g.Metric("sluice_store_unavailable") == 0 })
		}
		slowest = max(slowest, time.Since(mended))
		if n := changesOf(s.both); long && n > 12 {
			t.Errorf("%s: %d changes of state", d.name, n)
		}
		t.Logf("%s: used again after %v, %d changes of state", d.name, time.Since(mended).Round(time.Millisecond), changesOf(s.both))
		time.Sleep(time.Until(next))
	}
	l.done()
	settled(t, s.both)
	limit(t, "slowest to be used again", slowest, 2*time.Second)
	t.Logf("all: %v", answers(l.all))
	growth.check(t)
}

// memory is the size of the live heap of processes over time. The memory of the process itself would vary by as much as
// the collector allows.
type memory struct {
	stop, ended chan struct{}
	minutes     []float64
	megabytes   [2][]float64
}

func watchMemory(both [2]*gateway) *memory {
	m := &memory{stop: make(chan struct{}), ended: make(chan struct{})}
	begin := time.Now()
	go func() {
		defer close(m.ended)
		for {
			m.minutes = append(m.minutes, time.Since(begin).Minutes())
			for i, g := range both {
				m.megabytes[i] = append(m.megabytes[i], liveHeap(g)/1e6)
			}
			select {
			case <-m.stop:
				return
			case <-time.After(sized(500*time.Millisecond, 2*time.Second)):
			}
		}
	}()
	return m
}

// liveHeap returns about how many bytes were live when the collector last ran: it runs again when twice as many are
// allocated.
func liveHeap(g *gateway) float64 { return g.Metric("go_memstats_next_gc_bytes") / 2 }

// check fails a long run if a live heap grows by more than a megabyte a minute after the second minute.
func (m *memory) check(t *testing.T) {
	t.Helper()
	close(m.stop)
	<-m.ended
	first := 0
	for long && m.minutes[first] < 2 {
		first++
	}
	for i, mb := range m.megabytes {
		grows := slope(m.minutes[first:], mb[first:])
		t.Logf("instance %d: %.1f MB live after the start, %.1f MB at the end, %+.2f MB a minute after the second minute", i, mb[0], mb[len(mb)-1], grows)
		if mb[0] == 0 || long && grows > 1 {
			t.Errorf("instance %d grows by %.2f MB a minute", i, grows)
		}
	}
}

// slope returns the slope of the line of least squares.
func slope(x, y []float64) float64 {
	var sx, sy, sxx, sxy float64
	for i := range x {
		sx, sy, sxx, sxy = sx+x[i], sy+y[i], sxx+x[i]*x[i], sxy+x[i]*y[i]
	}
	n := float64(len(x))
	return (n*sxy - sx*sy) / (n*sxx - sx*sx)
}
