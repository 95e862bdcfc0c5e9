package failover_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/failover"
	"github.com/sluicehq/sluice/internal/redistest"
	"github.com/sluicehq/sluice/redisstore"
)

// Faults of real servers. What counts is asserted always; how long things take is
// asserted in the long form, on a machine that has nothing else to do.
var long = os.Getenv("SLUICE_CHAOS") != ""

// patient is how long decisions wait for the store: in the short form so long that a busy
// machine is not taken for a fault.
var patient = scaled(20*failover.DefaultDeadline, failover.DefaultDeadline)

// overRedis returns a failover store over the server at a URL.
func overRedis(t *testing.T, url string, logger *slog.Logger) *failover.Store {
	t.Helper()
	shared, err := redisstore.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	s := failover.New(shared, failover.Config{Instances: 1, Deadline: patient, Logger: logger})
	t.Cleanup(func() {
		s.Close()
		shared.Close()
	})
	return s
}

// load is an open loop of decisions over some keys, and what has come of them.
type load struct {
	mu       sync.Mutex
	took     []time.Duration
	admitted map[string]int64
	errors   []error
	asked    atomic.Int64
	stop     chan struct{}
	running  sync.WaitGroup
}

// start asks s a number of times a second, for keys in turn, until done is called.
func start(s sluice.Store, perSecond int, p *sluice.Plan, keys ...string) *load {
	l := &load{admitted: map[string]int64{}, stop: make(chan struct{})}
	const every = 2 * time.Millisecond
	l.running.Go(func() {
		tick := time.NewTicker(every)
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
				key := keys[n%len(keys)]
				l.asked.Add(1)
				l.running.Go(func() { l.ask(s, key, p) })
			}
		}
	})
	return l
}

func (l *load) ask(s sluice.Store, key string, p *sluice.Plan) {
	var r [1]sluice.Receipt
	begin := time.Now()
	err := s.Take(context.Background(), []sluice.Charge{{Key: key, Plan: p, Cost: 1, OnError: sluice.Local}}, r[:])
	took := time.Since(begin)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.took = append(l.took, took)
	if err != nil {
		l.errors = append(l.errors, err)
	} else if r[0].Fits {
		l.admitted[key]++
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
	if n := int64(len(l.took)); n != l.asked.Load() || n == 0 {
		t.Errorf("%d answers to %d questions", n, l.asked.Load())
	}
	slices.Sort(l.took)
	t.Logf("%d decisions: p50 %v, p99 %v, longest %v", len(l.took), l.quantile(0.5), l.quantile(0.99), l.quantile(1))
}

func (l *load) quantile(q float64) time.Duration {
	return l.took[min(len(l.took)-1, int(q*float64(len(l.took))))]
}

// limit fails a long run in which a time was longer than it may be.
func limit(t *testing.T, what string, got, most time.Duration) {
	t.Helper()
	if got > most {
		t.Logf("%s: %v, the figure to reach is %v", what, got, most)
		if long {
			t.Fail()
		}
	}
}

// eventually waits for a condition on the real clock, and returns how long it took.
func eventually(t *testing.T, what string, holds func() bool) time.Duration {
	t.Helper()
	begin := time.Now()
	redistest.Eventually(t, what, holds)
	return time.Since(begin)
}

func scaled(short, full time.Duration) time.Duration {
	if long {
		return full
	}
	return short
}

// stalls watches how late timers are, and returns what returns the latest of them.
func stalls() (longest func() time.Duration) {
	var most atomic.Int64
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		const every = 5 * time.Millisecond
		for {
			begin := time.Now()
			select {
			case <-stop:
				return
			case <-time.After(every):
				most.Store(max(most.Load(), int64(time.Since(begin)-every)))
			}
		}
	}()
	return func() time.Duration {
		close(stop)
		<-stopped
		return time.Duration(most.Load())
	}
}

// timed says that a test measures times, and has the machine to itself in the long form.
func timed(t *testing.T) {
	if !long {
		t.Parallel()
	}
}

func TestRedisFrozen(t *testing.T) {
	timed(t)
	server := redistest.Start(t)
	s := overRedis(t, server.URL(), quiet())
	p := plan(t, "200/second", sluice.TokenBucket)
	l := start(s, 2000, p, "a", "b", "c", "d")
	eventually(t, "the server decides", func() bool { st := s.Status(); return !st.Degraded() && st.Shared >= 1000 })
	server.Freeze()
	limit(t, "opens", eventually(t, "the circuit opens", func() bool { return s.Status().Degraded() }), time.Second)
	time.Sleep(patient) // what was answered before is read
	shared := s.Status().Shared
	time.Sleep(scaled(time.Second, 4*time.Second))
	if n := s.Status().Shared - shared; n != 0 {
		t.Errorf("%d decisions of a frozen server", n)
	}
	server.Thaw()
	limit(t, "closes", eventually(t, "the circuit closes", func() bool { return !s.Status().Degraded() }), 2*time.Second)
	eventually(t, "all is written back", func() bool { return s.Status().Owing == 0 })
	l.done(t)
	limit(t, "longest decision", l.quantile(1), 100*time.Millisecond)
	limit(t, "p99", l.quantile(0.99), 55*time.Millisecond)
	limit(t, "p50", l.quantile(0.5), time.Millisecond)
}

// A server that is killed and started again has forgotten everything. Nobody notices but
// by a burst more.
func TestRedisKilled(t *testing.T) {
	timed(t)
	server := redistest.Start(t)
	var log lines
	s := overRedis(t, server.URL(), logTo(&log))
	p := plan(t, "200/second burst 100", sluice.TokenBucket)
	l := start(s, 2000, p, "a", "b", "c", "d")
	begin := time.Now()
	cycles := 2
	if long {
		cycles = 20
	}
	for range cycles {
		time.Sleep(300 * time.Millisecond)
		server.Kill()
		limit(t, "opens", eventually(t, "the circuit opens", func() bool { return s.Status().Degraded() }), time.Second)
		server.Restart()
		limit(t, "closes", eventually(t, "the circuit closes", func() bool { return !s.Status().Degraded() }), 2*time.Second)
	}
	l.done(t)
	elapsed := time.Since(begin)
	for key, n := range l.admitted {
		// A burst to begin with, and at most one more for what a cycle has forgotten. A busy
		// machine may add cycles of its own, and ask less.
		outages := max(cycles, (log.count()+1)/2)
		most := p.Capacity*int64(1+outages) + int64(elapsed.Seconds()*200) + 1
		if n > most || long && n < int64(elapsed.Seconds()*150) {
			t.Errorf("%s was admitted %d times, at most %d are right", key, n, most)
		}
	}
}

// The connections of the first second after a restart are few, although all callers
// want one.
func TestRedisReconnects(t *testing.T) {
	timed(t)
	server := redistest.Start(t)
	px := redistest.StartProxy(t, server.Addr)
	s := overRedis(t, "redis://"+px.Addr, quiet())
	p := plan(t, "200/second burst 100", sluice.TokenBucket)
	l := start(s, 2000, p, "a", "b", "c", "d")
	time.Sleep(300 * time.Millisecond)
	pool := px.Opened.Load()
	server.Kill()
	px.Cut()
	eventually(t, "the circuit opens", func() bool { return s.Status().Degraded() })
	server.Restart()
	px.Opened.Store(0)
	time.Sleep(time.Second)
	if n := px.Opened.Load(); n > max(2*pool, 16) {
		t.Errorf("%d new connections in the first second, the pool has %d", n, pool)
	}
	eventually(t, "the circuit closes", func() bool { return !s.Status().Degraded() })
	l.done(t)
}

// One answer in ten is lost. Nothing is charged twice.
func TestRedisLosesAnswers(t *testing.T) {
	timed(t)
	server := redistest.Start(t)
	px := redistest.StartProxy(t, server.Addr)
	s := overRedis(t, "redis://"+px.Addr, quiet())
	decisions := 1000
	if long {
		decisions = 10000
	}
	p := plan(t, "100000/day", sluice.SlidingWindowCounter)
	px.Reset(0.1)
	var refused atomic.Int64
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range decisions / 4 {
				if !take(t, s, "k", p, sluice.Local).Fits {
					refused.Add(1)
				}
			}
		})
	}
	wg.Wait()
	px.Heal()
	eventually(t, "all is written back", func() bool { st := s.Status(); return !st.Degraded() && st.Owing == 0 })
	st := s.Status()
	if refused.Load() > 0 || st.Local == 0 {
		t.Errorf("%d of %d decisions below the limit are refused: %+v", refused.Load(), decisions, st)
	}
	r := charge(t, s, sluice.Charge{Key: "k", Plan: p})[0]
	used := p.Capacity - p.Decide(0, r).Remaining
	t.Logf("%d charged for %d decisions, %d of them local, %d written back", used, decisions, st.Local, st.WrittenBack)
	if r.Origin.Degraded() || used > int64(decisions) {
		t.Errorf("%d units are charged for %d decisions", used, decisions)
	}
}

// A slow network is not a dead server. The short form does it all twenty times slower, since
// a busy machine takes its time as well.
func TestRedisLatency(t *testing.T) {
	timed(t)
	percents := []time.Duration{15}
	if long {
		percents = []time.Duration{10, 40, 80}
	}
	for _, percent := range percents {
		delay := patient * percent / 100
		t.Run(delay.String(), func(t *testing.T) {
			server := redistest.Start(t)
			px := redistest.StartProxy(t, server.Addr)
			px.Delay(delay)
			var log lines
			s := overRedis(t, "redis://"+px.Addr, logTo(&log))
			p := plan(t, "100000/second", sluice.TokenBucket)
			stalled := stalls()
			l := start(s, 500, p, "a", "b", "c", "d")
			time.Sleep(scaled(2*time.Second, 10*time.Second))
			l.done(t)
			// A machine that stalls for so long takes the time that the network has left.
			if pause := stalled(); !long && pause > patient/8 {
				t.Logf("the machine has stalled for %v: nothing can be said of the network", pause)
				return
			}
			if n := log.count(); n > 0 {
				t.Errorf("the circuit was open: %s", log.all)
			}
			if st := s.Status(); st.Local*100 > st.Shared {
				t.Errorf("%d of %d decisions were local, at most 1 %% is right", st.Local, st.Local+st.Shared)
			}
		})
	}
}

// Connections that break, dribble or flap surface no error.
func TestRedisNetwork(t *testing.T) {
	timed(t)
	for name, fault := range map[string]func(t *testing.T, px *redistest.Proxy){
		"5 % of resets": func(t *testing.T, px *redistest.Proxy) {
			px.Reset(0.05)
			time.Sleep(scaled(time.Second, 20*time.Second))
			px.Heal()
		},
		"a byte a second": func(t *testing.T, px *redistest.Proxy) {
			px.Trickle.Store(true)
			time.Sleep(scaled(time.Second, 20*time.Second))
			px.Trickle.Store(false)
			px.Cut()
		},
		"flapping": func(t *testing.T, px *redistest.Proxy) {
			for end := time.Now().Add(scaled(2*time.Second, time.Minute)); time.Now().Before(end); {
				px.Reset(1)
				px.Cut()
				time.Sleep(300 * time.Millisecond)
				px.Heal()
				time.Sleep(300 * time.Millisecond)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			server := redistest.Start(t)
			px := redistest.StartProxy(t, server.Addr)
			shared, err := redisstore.Open(t.Context(), "redis://"+px.Addr)
			if err != nil {
				t.Fatal(err)
			}
			defer shared.Close()
			var log lines
			s := failover.New(shared, failover.Config{Instances: 1, Deadline: patient, Logger: logTo(&log)})
			defer s.Close()
			p := plan(t, "100000/second", sluice.TokenBucket)
			l := start(s, 1000, p, "a", "b", "c", "d")
			time.Sleep(200 * time.Millisecond)
			fault(t, px)
			eventually(t, "the circuit closes", func() bool { return !s.Status().Degraded() })
			if n := log.count(); n > 12 {
				t.Errorf("%d changes of state", n)
			}
			l.done(t)
			limit(t, "longest decision", l.quantile(1), 100*time.Millisecond)
		})
	}
}

// Servers that answer but refuse to count are away, and are back when they count.
func TestRedisRefuses(t *testing.T) {
	timed(t)
	for name, f := range map[string]struct{ begin, end func(s *redistest.Server) }{
		"memory full": {
			func(s *redistest.Server) { s.Do("CONFIG", "SET", "maxmemory", "1") },
			func(s *redistest.Server) { s.Do("CONFIG", "SET", "maxmemory", "0") },
		},
		"read-only": {
			func(s *redistest.Server) {
				s.Do("CONFIG", "SET", "replica-serve-stale-data", "yes")
				s.Do("REPLICAOF", "127.0.0.1", "1")
			},
			func(s *redistest.Server) { s.Do("REPLICAOF", "NO", "ONE") },
		},
		"busy": {
			func(s *redistest.Server) {
				s.Do("CONFIG", "SET", "lua-time-limit", "10")
				go s.Try("EVAL", "while true do end", "0")
			},
			func(s *redistest.Server) { s.Do("SCRIPT", "KILL") },
		},
	} {
		t.Run(name, func(t *testing.T) {
			server := redistest.Start(t)
			s := overRedis(t, server.URL(), quiet())
			p := plan(t, "200/second burst 100", sluice.TokenBucket)
			l := start(s, 1000, p, "a", "b", "c", "d")
			time.Sleep(200 * time.Millisecond)
			f.begin(server)
			limit(t, "opens", eventually(t, "the circuit opens", func() bool { return s.Status().Degraded() }), time.Second)
			time.Sleep(scaled(500*time.Millisecond, 3*time.Second))
			if !s.Status().Degraded() {
				t.Error("the circuit is closed")
			}
			f.end(server)
			limit(t, "closes", eventually(t, "the circuit closes", func() bool { return !s.Status().Degraded() }), 2*time.Second)
			l.done(t)
		})
	}
}

// The script is gone: it is loaded again, and nobody notices.
func TestRedisForgetsTheScript(t *testing.T) {
	timed(t)
	server := redistest.Start(t)
	shared, err := redisstore.Open(t.Context(), server.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer shared.Close()
	// A thousand callers may keep a busy machine longer than the usual deadline.
	s := failover.New(shared, failover.Config{Deadline: time.Minute, Logger: quiet()})
	defer s.Close()
	p := plan(t, "100000/day", sluice.FixedWindow)
	var wg sync.WaitGroup
	for range 1000 {
		wg.Go(func() {
			for range 3 {
				take(t, s, "k", p, sluice.Local)
			}
		})
	}
	server.Do("SCRIPT", "FLUSH")
	wg.Wait()
	r := charge(t, s, sluice.Charge{Key: "k", Plan: p})[0]
	if st := s.Status(); st.Degraded() || st.Failed > 0 || st.Local != 0 || r.Used != 3000 {
		t.Errorf("%d units are used, want 3000: %+v", r.Used, st)
	}
}

// A master is killed: what it counted is decided by the rule, the rest as ever, and its
// replica takes over.
func TestRedisClusterMaster(t *testing.T) {
	timed(t)
	c := redistest.StartCluster(t, 3, 1)
	shared, err := redisstore.Open(t.Context(), c.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer shared.Close()
	s := failover.New(shared, failover.Config{Instances: 1, Deadline: patient, Logger: quiet()})
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
	away := func(i int) bool { return s.Status().Shards[i].Away }
	eventually(t, "all masters decide", func() bool { st := s.Status(); return !st.Degraded() && st.Shared >= 300 })
	c.Masters[0].Kill()
	var dead int
	limit(t, "opens", eventually(t, "a circuit opens", func() bool {
		dead = slices.IndexFunc(s.Status().Shards, func(h failover.ShardStatus) bool { return h.Away })
		return dead >= 0
	}), time.Second)
	for i := range s.Status().Shards {
		if i != dead && away(i) {
			t.Errorf("shard %d is away as well as %d", i, dead)
		}
	}
	limit(t, "is used again", eventually(t, "the range is served again", func() bool {
		r := take(t, s, keys[dead], p, sluice.Local)
		return !r.Origin.Degraded()
	}), 6*time.Second)
	for i, l := range loads {
		l.done(t)
		if i != dead {
			limit(t, "p99 of the others", l.quantile(0.99), 10*time.Millisecond)
		}
	}
}

// After all that nothing is left of a store.
func TestRedisNothingIsLeft(t *testing.T) {
	server := redistest.Start(t)
	goroutines := runtime.NumGoroutine()
	descriptors := openFiles(t)
	for range 3 {
		shared, err := redisstore.Open(t.Context(), server.URL())
		if err != nil {
			t.Fatal(err)
		}
		s := failover.New(shared, failover.Config{Logger: quiet()})
		l := start(s, 1000, plan(t, "100/second", sluice.TokenBucket), "a", "b")
		time.Sleep(100 * time.Millisecond)
		server.Freeze()
		eventually(t, "the circuit opens", func() bool { return s.Status().Degraded() })
		server.Thaw()
		l.done(t)
		s.Close()
		shared.Close()
	}
	eventually(t, "goroutines and files are gone", func() bool {
		return runtime.NumGoroutine() <= goroutines && openFiles(t) <= descriptors
	})
	if clients := server.Do("CLIENT", "LIST"); strings.Count(clients, "id=") > 1 {
		t.Errorf("connections are left:\n%s", clients)
	}
}

func openFiles(t *testing.T) int {
	t.Helper()
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(files)
}
