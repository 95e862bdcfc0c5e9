package synced_test

import (
	"context"
	"regexp"
	"testing"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/failover"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/storetest"
	"github.com/sluicehq/sluice/synced"
)

var _ failover.SharedEach = (*synced.Store)(nil)

// alone is one process before its own shared store, which asks for a consistency whatever the charges say.
type alone struct {
	*synced.Store
	consistency sluice.Consistency
}

func (a alone) Take(ctx context.Context, charges []sluice.Charge, receipts []sluice.Receipt) error {
	charges = append([]sluice.Charge(nil), charges...)
	for i := range charges {
		charges[i].Consistency = a.consistency
	}
	return a.TakeWithin(ctx, time.Minute, charges, receipts)
}

// differs matches the tests in which a key has a penalty now and then, and is counted strictly when it has; those whose
// limits are too large for more room; and those in which callers at the same time want all that is free, of whom one
// may be refused for a moment while a call is under way: TestBound and TestToldOnce have what is promised instead.
var differs = regexp.MustCompile("/(penalty_of_others|many_at_once|fingerprints|bursts_of_one_rate|concurrent_layers|concurrent_total)$")

// One process is a store like any other, however it counts.
func TestConformance(t *testing.T) {
	t.Parallel()
	for _, c := range []sluice.Consistency{sluice.Strict, sluice.Synced} {
		t.Run(c.String(), func(t *testing.T) {
			t.Parallel()
			storetest.Run(t, func(t *testing.T) sluice.Store {
				s := synced.New(failover.Bulkhead(memory.New(), 0))
				t.Cleanup(s.Close)
				if differs.MatchString(t.Name()) {
					return alone{s, sluice.Strict}
				}
				return alone{s, c}
			})
		})
	}
}
