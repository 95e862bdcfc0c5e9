package failover_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/failover"
	"github.com/sluicehq/sluice/internal/faultstore"
)

// many returns n calls of one key each, in turn with each on_error.
func many(p *sluice.Plan, n int) []sluice.TakeCall {
	calls := make([]sluice.TakeCall, n)
	for i := range calls {
		on := sluice.OnError(i % 3)
		calls[i].Charges = []sluice.Charge{{Key: fmt.Sprint("k", i%3), Plan: p, Cost: 1, OnError: on}}
		calls[i].Receipts = make([]sluice.Receipt, 1)
	}
	return calls
}

// checkAway checks the receipts of many while the shared store is away, of a limit of n/3.
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

// A list is decided by a store that answers, and within one deadline where it does not, each Take by its
// on_error. One list that fails is one failure and opens no circuit by itself; those that go on failing do.
func TestEach(t *testing.T) {
	t.Parallel()
	for name, f := range faults {
		bubble(t, failover.Config{}, func(t *testing.T, sv *faultstore.Store, s *failover.Store) {
			p, fresh := plan(t, "100/day", sluice.TokenBucket), plan(t, "50/day", sluice.FixedWindow)
			calls := many(p, 999)
			s.TakeEach(t.Context(), calls)
			for i, c := range calls {
				if r := c.Receipts[0]; c.Err != nil || r.Origin.Degraded() || r.Fits != (i/3 < 100) {
					t.Fatalf("Take %d: %+v, %v", i, r, c.Err)
				}
			}
			sv.Set(f)
			began := time.Now()
			calls = many(fresh, 999)
			s.TakeEach(t.Context(), calls)
			if took := time.Since(began); took > failover.DefaultDeadline {
				t.Errorf("%s: a list took %v", name, took)
			}
			checkAway(t, calls, 50)
			if s.Status().Degraded() {
				t.Errorf("%s: a single list has opened the circuit", name)
			}
			for range 20 {
				time.Sleep(50 * time.Millisecond)
				s.TakeEach(t.Context(), many(p, 3))
			}
			if !s.Status().Degraded() {
				t.Errorf("%s: the circuit is closed after a second of failures", name)
			}
			asked := sv.Calls.Load()
			s.TakeEach(t.Context(), many(p, 30))
			if n := sv.Calls.Load() - asked; n != 0 {
				t.Errorf("%s: %d calls of a store that is away", name, n)
			}
		})
	}
}
