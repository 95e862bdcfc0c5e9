package failover_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/failover"
	"github.com/sluicehq/sluice/internal/faultstore"
	"github.com/sluicehq/sluice/lease"
	"github.com/sluicehq/sluice/memory"
)

// What was spent by lease is in the local share when the store goes away: an instance that is alone admits nothing
// beyond the limit, as for a key that is counted strictly.
func TestLeasedShare(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sv := faultstore.New(memory.New())
		leased := lease.New(sv)
		defer leased.Close()
		s := failover.New(leased, failover.Config{})
		defer s.Close()
		p := plan(t, "20000/5m", sluice.FixedWindow)
		admitted, origins := int64(0), map[sluice.Origin]int{}
		ask := func() sluice.Receipt {
			r := charge(t, s, sluice.Charge{Key: "k", Plan: p, Cost: 1, OnError: sluice.Local, Consistency: sluice.Leased})[0]
			time.Sleep(100 * time.Microsecond)
			if origins[r.Origin]++; r.Fits {
				admitted++
			}
			return r
		}
		for range 10_000 {
			ask()
		}
		if origins[sluice.ByLease] < 5_000 {
			t.Fatalf("premise: by lease are only few of %v", origins)
		}
		sv.Set(faultstore.Frozen)
		until(t, time.Minute, "the share is used up", func() bool {
			r := ask()
			return r.Origin == sluice.ByLocalShare && !r.Fits
		})
		if admitted > p.Capacity {
			t.Errorf("%d were admitted, %d too many: %v", admitted, admitted-p.Capacity, origins)
		}
	})
}
