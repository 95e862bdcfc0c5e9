package failover_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/failover"
	"github.com/sluicehq/sluice/internal/redistest"
)

// many makes n calls of one key each, in turn with each on_error.
func many(p *sluice.Plan, n int) []sluice.TakeCall {
	calls := make([]sluice.TakeCall, n)
	for i := range calls {
		on := sluice.OnError(i % 3)
		calls[i].Charges = []sluice.Charge{{Key: fmt.Sprint("k", i%3), Plan: p, Cost: 1, OnError: on}}
		calls[i].Receipts = make([]sluice.Receipt, 1)
	}
	return calls
}

// checkAway checks what many are told while the shared store is away, of a limit of n/3.
func checkAway(t *testing.T, calls []sluice.TakeCall, most int) {
	t.Helper()
	for i, c := range calls {
		r, on := c.Receipts[0], sluice.OnError(i%3)
		fits := on == sluice.Allow || on == sluice.Local && i/3 < most
		if c.Err != nil || !r.Origin.Degraded() || r.Fits != fits {
			t.Fatalf("Take %d with %v: %+v, %v; want %v", i, on, r, c.Err, fits)
		}
	}
}

// A list of a thousand that a silent server keeps waiting is decided within one deadline, each
// Take by its on_error. What was asked of one that answers is decided by it.
func TestEachOverRedis(t *testing.T) {
	server := redistest.Start(t)
	s := overRedis(t, server.URL(), quiet())
	p := plan(t, "100/day", sluice.TokenBucket)
	calls := many(p, 999)
	s.TakeEach(t.Context(), calls)
	for i, c := range calls {
		if r := c.Receipts[0]; c.Err != nil || r.Origin.Degraded() || r.Fits != (i/3 < 100) {
			t.Fatalf("Take %d: %+v, %v", i, r, c.Err)
		}
	}
	server.Do("FLUSHALL")
	server.Freeze()
	defer server.Thaw()
	began := time.Now()
	fresh := plan(t, "50/day", sluice.GCRA)
	calls = many(fresh, 999)
	for i := range calls {
		calls[i].Charges[0].Key += "/fresh"
	}
	s.TakeEach(t.Context(), calls)
	if took := time.Since(began); took > 10*patient {
		t.Errorf("a list took %v, with a deadline of %v", took, patient)
	}
	checkAway(t, calls, 50)
}

// One list that fails is one failure, and opens no circuit by itself; those that go on failing do.
func TestEachIsOneFailure(t *testing.T) {
	bubble(t, failover.Config{}, func(t *testing.T, sv *server, s *failover.Store) {
		p := plan(t, "100/day", sluice.TokenBucket)
		sv.set(unsent)
		calls := many(p, 300)
		s.TakeEach(t.Context(), calls)
		checkAway(t, calls, 100)
		if s.Status().Degraded() {
			t.Error("a single list has opened the circuit")
		}
		for range 20 {
			time.Sleep(50 * time.Millisecond)
			s.TakeEach(t.Context(), many(p, 3))
		}
		if !s.Status().Degraded() {
			t.Error("the circuit is closed after a second of failures")
		}
		asked := sv.calls.Load()
		s.TakeEach(t.Context(), many(p, 30))
		if n := sv.calls.Load() - asked; n != 0 {
			t.Errorf("%d calls of a store that is away", n)
		}
	})
}
