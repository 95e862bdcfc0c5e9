package failover_test

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/failover"
	"github.com/sluicehq/sluice/internal/faultstore"
	"github.com/sluicehq/sluice/memory"
)

// bubble runs f in virtual time, with a failover store over a shared store.
func bubble(t *testing.T, c failover.Config, f func(t *testing.T, sv *faultstore.Store, s *failover.Store)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		sv := faultstore.New(memory.New())
		s := open(sv, c)
		defer s.Close()
		f(t, sv, s)
	})
}

// open is failover.New without a log, unless c has one.
func open(shared failover.Shared, c failover.Config) *failover.Store {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return failover.New(shared, c)
}

// lines collects a log.
type lines struct {
	mu  sync.Mutex
	all []string
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, string(p))
	return len(p), nil
}

// about returns the number of lines that contain a text.
func (l *lines) about(text string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.all {
		n += min(1, strings.Count(line, text))
	}
	return n
}

func logTo(l *lines) *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

func plan(t testing.TB, limit string, a sluice.Algorithm) *sluice.Plan {
	t.Helper()
	return faultstore.Plan(t, limit+" "+a.String())
}

func charge(t testing.TB, s sluice.Store, charges ...sluice.Charge) []sluice.Receipt {
	t.Helper()
	receipts := make([]sluice.Receipt, len(charges))
	if err := s.Take(context.Background(), charges, receipts); err != nil {
		t.Fatalf("Take: %v", err)
	}
	return receipts
}

// spend charges one key with a cost.
func spend(t testing.TB, s sluice.Store, key string, p *sluice.Plan, cost int64, on sluice.OnError) sluice.Receipt {
	t.Helper()
	return charge(t, s, sluice.Charge{Key: key, Plan: p, Cost: cost, OnError: on})[0]
}

// take charges one key with one unit.
func take(t testing.TB, s sluice.Store, key string, p *sluice.Plan, on sluice.OnError) sluice.Receipt {
	t.Helper()
	return spend(t, s, key, p, 1, on)
}

// admitted takes one unit of a key n times, with a local allowance in an outage, and returns the number of units that
// fit.
func admitted(t testing.TB, s sluice.Store, n int, key string, p *sluice.Plan) (fit int64) {
	t.Helper()
	for range n {
		if take(t, s, key, p, sluice.Local).Fits {
			fit++
		}
	}
	return fit
}

// uses fails the test unless the shared store has counted the wanted number of units of each key.
func uses(t testing.TB, sv *faultstore.Store, p *sluice.Plan, want map[string]int64) {
	t.Helper()
	for key, n := range want {
		if got := sv.Used(t, key, p); got != n {
			t.Errorf("%s: %d units are counted, want %d", key, got, n)
		}
	}
}

// until waits for a condition in steps of a millisecond.
func until(t testing.TB, most time.Duration, what string, condition func() bool) {
	t.Helper()
	for start := time.Now(); !condition(); time.Sleep(time.Millisecond) {
		if time.Since(start) > most {
			t.Fatalf("%s: not after %v", what, most)
		}
	}
}

// cut sets a fault, and waits until the circuit is open.
func cut(t testing.TB, sv *faultstore.Store, s *failover.Store, f faultstore.Fault) {
	t.Helper()
	sv.Set(f)
	p := plan(t, "1/second", sluice.TokenBucket)
	until(t, 10*time.Second, "the circuit opens", func() bool {
		take(t, s, "cut", p, sluice.Deny)
		time.Sleep(9 * time.Millisecond)
		return s.Status().Degraded()
	})
}

// mend ends the fault, and waits until the circuit is closed and all debts are written back.
func mend(t testing.TB, sv *faultstore.Store, s *failover.Store) {
	t.Helper()
	sv.Set(nil)
	until(t, 100*time.Second, "the shared store is available again", func() bool {
		st := s.Status()
		return !st.Degraded() && st.Owing == 0
	})
}

// steadily calls take at a rate, without waiting for it to return, until end is called.
func steadily(interval time.Duration, take func()) (end func()) {
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(interval):
				wg.Go(take)
			}
		}
	})
	return func() {
		close(stop)
		wg.Wait()
	}
}

// faults are ways in which a store can be unavailable.
var faults = map[string]faultstore.Fault{"frozen": faultstore.Frozen, "refused": faultstore.Refused, "not sent": faultstore.Unsent}

// TestMain fails if a goroutine is left after all tests. It ignores those in which the client of a cluster waits for
// seconds before it looks at the nodes again, or closes connections to removed nodes. They end by themselves.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*clusterClient)._refresh.func2"),
		goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*clusterClient).redirectOrNew.func1"),
		goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*call).DelayDo.func1"))
}
