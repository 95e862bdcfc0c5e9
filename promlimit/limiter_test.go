package promlimit_test

import (
	"fmt"
	"io"
	"log/slog"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/failover"
	"github.com/sluicehq/sluice/internal/faultstore"
	"github.com/sluicehq/sluice/internal/testkit"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/promlimit"
)

func limiter(t *testing.T, store sluice.Store, name, limit string) *sluice.Limiter {
	t.Helper()
	of, err := sluice.ParseLimit(limit)
	if err != nil {
		t.Fatal(err)
	}
	if name == "queue" {
		of.Algorithm = sluice.LeakyBucket
	}
	l, err := sluice.NewLimiter(store, name, of)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// expect compares the values of series, as in {"sluice_…_total limiter=a,outcome=deny": 2}.
func (p page) expect(t *testing.T, want map[string]float64) {
	t.Helper()
	for series, value := range want {
		var name, labels string
		fmt.Sscan(series, &name, &labels)
		found := false
		for _, m := range p[name].GetMetric() {
			text := ""
			for _, l := range m.Label { // in the order of their names
				text += "," + l.GetName() + "=" + l.GetValue()
			}
			if text != ","+labels {
				continue
			}
			found = true
			if got := m.GetCounter().GetValue() + m.GetGauge().GetValue(); got != value {
				t.Errorf("%s is %v, want %v", series, got, value)
			}
		}
		if !found {
			t.Errorf("%s is missing", series)
		}
	}
}

// Names distinguish the limiters in a registry, and only Takes are counted.
func TestLimiter(t *testing.T) {
	t.Parallel()
	store := memory.New()
	login, queue, plain := limiter(t, store, "login", "2/day"), limiter(t, store, "queue", "1/second burst 3"), limiter(t, store, "", "1/day")
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(promlimit.Limiter(login), promlimit.Limiter(queue), promlimit.Limiter(plain))
	ctx := t.Context()
	for _, key := range []string{"alice", "alice", "alice", "bob"} {
		if _, err := login.Take(ctx, key, 1); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := login.TakeLimit(ctx, "carol", 5, sluice.Limit{Count: 9, Period: login.Plan().Limit.Period}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := queue.Take(ctx, "k", 1); err != nil {
			t.Fatal(err)
		}
	}
	_, peeked := login.Peek(ctx, "alice")
	_, refunded := login.Refund(ctx, "alice", 1)
	reset := login.Reset(ctx, "alice")
	if peeked != nil || refunded != nil || reset != nil {
		t.Fatal(peeked, refunded, reset)
	}
	p := scrape(t, registry)
	p.expect(t, map[string]float64{
		"sluice_limiter_decisions_total limiter=login,outcome=allow":   4,
		"sluice_limiter_decisions_total limiter=login,outcome=deny":    1,
		"sluice_limiter_decisions_total limiter=queue,outcome=allow":   1,
		"sluice_limiter_decisions_total limiter=queue,outcome=delayed": 1,
		"sluice_limiter_decisions_total limiter=queue,outcome=deny":    0,
		"sluice_limiter_decisions_total limiter=default,outcome=allow": 0,
		"sluice_limiter_errors_total limiter=login,on_error=returned":  0,
	})
	if n := p.series(); n != 2+3+2+3*4 {
		t.Errorf("%d series", n)
	}
	if err := registry.Register(promlimit.Limiter(limiter(t, store, "login", "9/day"))); err == nil {
		t.Error("two limiters with the same name were registered")
	}
}

// While the shared store is unavailable, the label on_error is the setting that decided instead.
func TestLimiterOnError(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		shared := faultstore.New(memory.New())
		store := failover.New(shared, failover.Config{Instances: 2, Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
		defer store.Close()
		shared.Set(faultstore.Refused)
		registry := prometheus.NewPedanticRegistry()
		for _, onError := range []sluice.OnError{sluice.Allow, sluice.Deny, sluice.Local} {
			l := limiter(t, store, onError.String(), "2/day")
			l.OnError = onError
			registry.MustRegister(promlimit.Limiter(l))
			for range 3 {
				if _, err := l.Take(t.Context(), "k", 1); err != nil {
					t.Fatal(err)
				}
			}
		}
		bare := limiter(t, shared, "bare", "2/day")
		registry.MustRegister(promlimit.Limiter(bare))
		if _, err := bare.Take(t.Context(), "k", 1); err == nil {
			t.Fatal("premise: the store has answered")
		}
		scrape(t, registry).expect(t, map[string]float64{
			"sluice_limiter_errors_total limiter=allow,on_error=allow":      3,
			"sluice_limiter_decisions_total limiter=allow,outcome=degraded": 3,
			"sluice_limiter_errors_total limiter=deny,on_error=deny":        3,
			"sluice_limiter_decisions_total limiter=deny,outcome=deny":      3,
			"sluice_limiter_errors_total limiter=local,on_error=local":      3,
			"sluice_limiter_decisions_total limiter=local,outcome=degraded": 1, // half of the limit
			"sluice_limiter_decisions_total limiter=local,outcome=deny":     2,
			"sluice_limiter_errors_total limiter=bare,on_error=returned":    1,
			"sluice_limiter_decisions_total limiter=bare,outcome=allow":     0,
			"sluice_limiter_decisions_total limiter=bare,outcome=deny":      0,
		})
	})
}

func TestSemaphore(t *testing.T) {
	t.Parallel()
	s, err := sluice.NewSemaphore(memory.New(), "jobs", 2)
	if err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(promlimit.Semaphore(s))
	var releases []func()
	for range 3 {
		release, _, err := s.Acquire(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		releases = append(releases, release)
	}
	scrape(t, registry).expect(t, map[string]float64{
		"sluice_semaphore_decisions_total outcome=allow,semaphore=jobs": 2,
		"sluice_semaphore_decisions_total outcome=deny,semaphore=jobs":  1,
		"sluice_semaphore_held semaphore=jobs":                          2,
	})
	for _, release := range releases {
		release()
	}
	scrape(t, registry).expect(t, map[string]float64{"sluice_semaphore_held semaphore=jobs": 0})
}

// Counting a Take allocates no memory.
func TestLimiterAllocations(t *testing.T) {
	l := limiter(t, memory.New(), "login", "2/day")
	promlimit.Limiter(l)
	ctx := t.Context()
	if n := testkit.Allocations(func() { _, _ = l.Take(ctx, "alice", 1) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
