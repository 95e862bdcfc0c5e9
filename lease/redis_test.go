package lease_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/redistest"
	"github.com/sluicehq/sluice/lease"
	"github.com/sluicehq/sluice/redisstore"
)

// The client of a cluster waits for seconds before it looks at the nodes again, or closes
// connections to those that have gone.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*clusterClient)._refresh.func2"),
		goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*call).DelayDo.func1"))
}

// process is one of several that share a server: a store of its own, over connections of its own.
type process struct {
	redis *redisstore.Store
	*lease.Store
}

func begin(t *testing.T, url string) *process {
	t.Helper()
	shared, err := redisstore.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	p := &process{redis: shared, Store: lease.New(shared)}
	t.Cleanup(func() {
		p.Store.Close()
		shared.Close()
	})
	return p
}

// traffic is what processes were asked, and have admitted.
type traffic struct {
	plan *sluice.Plan
	key  string

	mu                    sync.Mutex
	admitted              []admission
	wait                  time.Duration
	asked, leased, failed int64
	consistency           sluice.Consistency
	refusedWrong          int64
}

// admission is by the server's clock.
type admission struct{ at, cost int64 }

// ask asks a process once.
func (l *traffic) ask(ctx context.Context, p *process, cost int64) {
	charge := [1]sluice.Charge{{Key: l.key, Plan: l.plan, Cost: cost, Consistency: l.consistency}}
	var r [1]sluice.Receipt
	err := p.TakeWithin(ctx, cmp.Or(l.wait, time.Minute), charge[:], r[:])
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked++
	switch {
	case err != nil:
		l.failed++
		return
	case r[0].Origin == sluice.ByLease:
		l.leased++
	}
	if d := l.plan.Decide(cost, r[0]); d.Allowed {
		l.admitted = append(l.admitted, admission{r[0].Now, cost})
	} else if d.RetryAfter <= 0 {
		l.refusedWrong++
	}
}

// open asks the processes in turn, so many times a second together, until the time is over. What a late
// tick has missed is asked, too.
func (l *traffic) open(t *testing.T, perSecond int, lasts time.Duration, processes ...*process) {
	var all sync.WaitGroup
	for _, p := range processes {
		all.Go(func() {
			began := time.Now()
			for n := 0; time.Since(began) < lasts; time.Sleep(time.Millisecond) {
				for due := int(time.Since(began).Seconds() * float64(perSecond) / float64(len(processes))); n < due; n++ {
					l.ask(t.Context(), p, 1)
				}
			}
		})
	}
	all.Wait()
}

// over returns how many of the units that were admitted since then the exact limiter refuses.
func (l *traffic) over(from int64) (over int64) {
	slices.SortFunc(l.admitted, func(a, b admission) int { return cmp.Compare(a.at, b.at) })
	var s sluice.State
	var r sluice.Receipt
	for _, a := range l.admitted {
		if a.at < from {
			continue
		}
		if s = l.plan.Step(s, a.at, a.cost, &r); !r.Fits {
			over += a.cost
		}
	}
	return over
}

func (l *traffic) units() (n int64) {
	for _, a := range l.admitted {
		n += a.cost
	}
	return n
}

func calls(s *redistest.Server) (n int64) {
	_, _ = fmt.Sscanf(s.Info("cmdstat_evalsha"), "calls=%d", &n)
	return n
}

func newPlan(t *testing.T, l sluice.Limit) *sluice.Plan {
	t.Helper()
	p, err := sluice.NewPlan(l)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Several processes on one key: at its limit, at half of it and above it, nothing is admitted that the
// exact limiter refuses at the same times, and the server is called for a fraction of the decisions.
func TestHotKey(t *testing.T) {
	const rate = 4_000
	for _, c := range []struct {
		name      string
		limit     sluice.Limit
		perSecond int
	}{
		{"half", sluice.Limit{Count: rate, Period: time.Second}, rate / 2},
		{"full", sluice.Limit{Count: rate, Period: time.Second, Burst: rate / 4}, rate},
		{"above", sluice.Limit{Count: rate, Period: time.Second, Burst: rate / 4}, 2 * rate},
		{"fixed window", sluice.Limit{Algorithm: sluice.FixedWindow, Count: rate, Period: time.Second}, 2 * rate},
		{"sliding window", sluice.Limit{Algorithm: sluice.SlidingWindowCounter, Count: rate, Period: time.Second}, 2 * rate},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			var processes []*process
			for range 4 {
				processes = append(processes, begin(t, server.URL()))
			}
			l := &traffic{plan: newPlan(t, c.limit), key: "hot", consistency: sluice.Leased}
			before := calls(server)
			l.open(t, c.perSecond, 1200*time.Millisecond, processes...)
			per := float64(calls(server)-before) / float64(l.asked)
			t.Logf("%d asked, %d admitted, %d by lease, %.4f calls a decision", l.asked, l.units(), l.leased, per)
			if over := l.over(0); over > 0 {
				t.Errorf("%d units too many", over)
			}
			if l.failed > 0 || l.refusedWrong > 0 {
				t.Errorf("%d have failed, and %d refusals name no wait", l.failed, l.refusedWrong)
			}
			if l.leased < l.asked/2 || per > 0.5 {
				t.Errorf("%d of %d are by lease, %.3f calls a decision", l.leased, l.asked, per)
			}
			if l.units() < l.asked/4 {
				t.Errorf("only %d of %d were admitted", l.units(), l.asked)
			}
		})
	}
}

// While the server is frozen, and after it, what is admitted stays within the limit, and decisions take
// no longer than they may.
func TestFrozen(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	processes := []*process{begin(t, server.URL()), begin(t, server.URL()), begin(t, server.URL())}
	l := &traffic{plan: newPlan(t, sluice.Limit{Count: 3_000, Period: time.Second, Burst: 1_000}), key: "hot", consistency: sluice.Leased, wait: 100 * time.Millisecond}
	var all sync.WaitGroup
	all.Go(func() { l.open(t, 4_000, 2500*time.Millisecond, processes...) })
	time.Sleep(600 * time.Millisecond)
	server.Freeze()
	time.Sleep(700 * time.Millisecond)
	server.Thaw()
	all.Wait()
	t.Logf("%d asked, %d admitted, %d by lease, %d failed", l.asked, l.units(), l.leased, l.failed)
	if over := l.over(0); over > 0 {
		t.Errorf("%d units too many", over)
	}
	if l.failed == 0 || l.leased < l.asked/2 {
		t.Errorf("%d have failed, and %d of %d were leased", l.failed, l.leased, l.asked)
	}
	last := l.admitted[len(l.admitted)-1]
	if thawed := server.Now().UnixMicro(); thawed-last.at > time.Minute.Microseconds() {
		t.Error("nothing was admitted after that")
	}
}

// A server that is killed forgets what it has counted, as it does without leases. What had been leased
// is spent within the horizon, and from then on the limit is exact again.
func TestRestarted(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	processes := []*process{begin(t, server.URL()), begin(t, server.URL()), begin(t, server.URL())}
	l := &traffic{plan: newPlan(t, sluice.Limit{Count: 3_000, Period: time.Second, Burst: 1_000}), key: "hot", consistency: sluice.Leased, wait: 100 * time.Millisecond}
	var all sync.WaitGroup
	all.Go(func() { l.open(t, 4_000, 2500*time.Millisecond, processes...) })
	time.Sleep(700 * time.Millisecond)
	server.Restart()
	up := server.Now().UnixMicro()
	all.Wait()
	t.Logf("%d asked, %d admitted, %d by lease, %d failed", l.asked, l.units(), l.leased, l.failed)
	if over := l.over(up + lease.Horizon.Microseconds()); over > 0 {
		t.Errorf("%d units too many since the horizon after it", over)
	}
	since := int64(0)
	var before []admission
	for _, a := range l.admitted {
		if a.at > up+lease.Horizon.Microseconds() {
			since += a.cost
		} else if a.at < up {
			before = append(before, a)
		}
	}
	if since < 500 {
		t.Errorf("only %d units were admitted after it", since)
	}
	l.admitted = before
	if over := l.over(0); over > 0 {
		t.Errorf("%d units too many before it", over)
	}
}

// What a process gives back when it closes, the next one has. Of a bucket that is a part.
func TestClose(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	p := newPlan(t, sluice.Limit{Algorithm: sluice.FixedWindow, Count: 1_000_000, Period: 10 * time.Minute})
	one := begin(t, server.URL())
	l := &traffic{plan: p, key: "k", consistency: sluice.Leased}
	l.open(t, 5_000, 400*time.Millisecond, one)
	if l.leased == 0 || l.failed > 0 {
		t.Fatalf("%d of %d leased, %d failed", l.leased, l.asked, l.failed)
	}
	one.Store.Close()
	charge := [1]sluice.Charge{{Key: "k", Plan: p}}
	var r [1]sluice.Receipt
	if err := one.redis.Take(t.Context(), charge[:], r[:]); err != nil || r[0].Used != l.units() {
		t.Errorf("%v: %d are counted, of %d that were admitted", err, r[0].Used, l.units())
	}
	// It goes on without leases.
	charge[0].Cost, charge[0].Consistency = 1, sluice.Leased
	if err := one.Take(t.Context(), charge[:], r[:]); err != nil || r[0].Origin != sluice.ByStore {
		t.Errorf("after Close: %v, %+v", err, r)
	}
}

// On a cluster, too, where what is given back and its budget are one call.
func TestCluster(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3, 0)
	l := &traffic{plan: newPlan(t, sluice.Limit{Count: 3_000, Period: time.Second, Burst: 1_000}), key: "hot", consistency: sluice.Leased}
	processes := []*process{begin(t, c.URL()), begin(t, c.URL())}
	l.open(t, 4_000, time.Second, processes...)
	processes[0].Store.Close()
	l.open(t, 2_000, 500*time.Millisecond, processes[1])
	t.Logf("%d asked, %d admitted, %d by lease, %d failed", l.asked, l.units(), l.leased, l.failed)
	if over := l.over(0); over > 0 || l.failed > 0 {
		t.Errorf("%d units too many, %d failed", over, l.failed)
	}
	if l.leased < l.asked/2 {
		t.Errorf("%d of %d are by lease", l.leased, l.asked)
	}
}
