package failover_test

import (
	"context"
	"testing"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/failover"
	"github.com/sluicehq/sluice/internal/redistest"
	"github.com/sluicehq/sluice/lease"
	"github.com/sluicehq/sluice/redisstore"
)

// What was spent by lease is in the local share when the server goes away: an instance that is alone
// admits nothing beyond the limit, as for a key that is counted strictly.
func TestLeasedShare(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	shared, err := redisstore.Open(t.Context(), server.URL())
	if err != nil {
		t.Fatal(err)
	}
	leased := lease.New(shared)
	s := failover.New(leased, failover.Config{Instances: 1, Deadline: patient})
	t.Cleanup(func() {
		s.Close()
		leased.Close()
		shared.Close()
	})
	p, err := sluice.NewPlan(sluice.Limit{Algorithm: sluice.FixedWindow, Count: 20_000, Period: 5 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	// Not at the very end of a window.
	redistest.Eventually(t, "a window that lasts", func() bool {
		now := server.Now().UnixMicro()
		_, _, end := p.WindowAt(now)
		return end-now > time.Minute.Microseconds()
	})
	admitted, byLease := int64(0), 0
	ask := func() (r sluice.Receipt) {
		var receipts [1]sluice.Receipt
		c := [1]sluice.Charge{{Key: "k", Plan: p, Cost: 1, OnError: sluice.Local, Consistency: sluice.Leased}}
		if err := s.Take(context.Background(), c[:], receipts[:]); err != nil {
			t.Fatal(err)
		}
		if r = receipts[0]; r.Fits {
			admitted++
		}
		if r.Origin == sluice.ByLease {
			byLease++
		}
		return r
	}
	for began := time.Now(); admitted < 10_000 && time.Since(began) < 20*time.Second; {
		ask()
	}
	if byLease < 5_000 {
		t.Fatalf("only %d of %d were by lease", byLease, admitted)
	}
	server.Freeze()
	defer server.Thaw()
	local := 0
	redistest.Eventually(t, "the share is used up", func() bool {
		for range 1_000 {
			if r := ask(); r.Origin == sluice.ByLocalShare {
				local++
				if !r.Fits {
					return true
				}
			}
		}
		return false
	})
	t.Logf("%d admitted, %d of them by lease, %d decided locally", admitted, byLease, local)
	if admitted > p.Capacity {
		t.Errorf("%d were admitted, %d too many", admitted, admitted-p.Capacity)
	}
}
