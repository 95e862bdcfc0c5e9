package failover_test

import (
	"testing"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/failover"
)

// TestPenaltyWithoutStore exceeds the second of two limits while the store is away.
func TestPenaltyWithoutStore(t *testing.T) {
	lock, err := sluice.Penalty{First: time.Minute, Factor: 2}.Plan()
	if err != nil {
		t.Fatal(err)
	}
	var plans []*sluice.Plan
	for _, text := range []string{"100/second", "10/day"} {
		l, err := sluice.ParseLimit(text)
		if err != nil {
			t.Fatal(err)
		}
		p, err := sluice.NewPlan(l)
		if err != nil {
			t.Fatal(err)
		}
		plans = append(plans, p)
	}
	for on, want := range map[sluice.OnError]int{sluice.Allow: 30, sluice.Deny: 0, sluice.Local: 5} {
		bubble(t, failover.Config{Instances: 2}, func(t *testing.T, sv *server, s *failover.Store) {
			take := func(cost int64) ([]sluice.Receipt, bool) {
				t.Helper()
				charges := []sluice.Charge{
					{Key: "k", Plan: plans[0], Cost: cost, OnError: on}, {Key: "k", Plan: plans[1], Cost: cost, OnError: on},
					{Key: "k", Plan: lock, Cost: min(cost, 1), OnError: on},
				}
				receipts := make([]sluice.Receipt, 3)
				if err := s.Take(t.Context(), charges, receipts); err != nil {
					t.Fatal(err)
				}
				return receipts, sluice.Admitted(charges, receipts)
			}
			cut(t, sv, s, refused)
			n := 0
			for range 30 {
				r, ok := take(1)
				if d := lock.Decide(1, r[2]); ok {
					n++
				} else if on == sluice.Local && (!d.Locked || d.RetryAfter != time.Minute) {
					t.Errorf("%v: the lock says %+v, want a minute", on, d)
				}
			}
			if n != want {
				t.Errorf("%v: %d pass, want %d", on, n, want)
			}
			if on != sluice.Local {
				return
			}
			time.Sleep(59 * time.Second)
			if _, ok := take(1); ok {
				t.Error("somebody passes while it lasts")
			}
			take(sluice.All)
			if r, ok := take(1); !ok || r[2].Used != 0 {
				t.Errorf("lifted: %+v", r)
			}
			for range 5 { // of a limit whose units have come back meanwhile
				take(1)
			}
			sv.set(nil)
			time.Sleep(5 * time.Second)
			if r, ok := take(1); !ok || r[2].Used != 0 || r[2].Origin.Degraded() {
				t.Errorf("with the store: %+v, want nothing of the penalty", r)
			}
		})
	}
}
