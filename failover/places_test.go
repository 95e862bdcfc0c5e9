package failover_test

import (
	"testing"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/failover"
	"github.com/sluicehq/sluice/internal/faultstore"
)

// While the store is away, the holder of a permit takes it again in a share, and what does not fit that is refused.
// When it is back, nothing has been written back, and holders take their permits again there.
func TestPlacesWhileAway(t *testing.T) {
	t.Parallel()
	p, err := sluice.NewInFlight(4)
	if err != nil {
		t.Fatal(err)
	}
	for name, f := range faults {
		bubble(t, failover.Config{Instances: 2}, func(t *testing.T, sv *faultstore.Store, s *failover.Store) {
			type step struct {
				number uint64
				cost   int64
				fits   bool
				left   int64
			}
			ask := func(by sluice.Origin, steps ...step) {
				t.Helper()
				for _, want := range steps {
					r := charge(t, s, sluice.Charge{Key: "k", Plan: p, Place: want.number, Cost: want.cost, OnError: sluice.Local})[0]
					if n := p.Decide(want.cost, r).Remaining; r.Fits != want.fits || n != want.left || r.Origin != by {
						t.Errorf("%s, %+v: fits %v, %d are left, by %v", name, want, r.Fits, n, r.Origin)
					}
				}
			}
			ask(sluice.ByStore, step{1, 1, true, 3}, step{2, 1, true, 2}, step{3, 1, true, 1})
			cut(t, sv, s, f)
			ask(sluice.ByLocalShare,
				step{99, 0, true, 2}, step{1, 1, true, 1}, step{1, 1, true, 1}, step{2, 1, true, 0},
				step{3, 1, false, 0}, // its request goes on, and no other starts
				step{4, 1, false, 0}, step{1, -1, true, 1}, step{1, -1, true, 1}, step{5, 1, true, 0})
			limit := plan(t, "10/10d", sluice.FixedWindow)
			take(t, s, "limit", limit, sluice.Local)
			mend(t, sv, s)
			uses(t, sv, limit, map[string]int64{"limit": 1}) // so all that is owed is written back
			ask(sluice.ByStore,
				step{99, 0, true, 1}, // 1 was given back to the share alone, and expires by itself
				step{2, 1, true, 1}, step{3, 1, true, 1}, step{5, 1, true, 0}, step{6, 1, false, 0}, step{5, -1, true, 1})
			time.Sleep(sluice.PlaceLasts)
			ask(sluice.ByStore, step{99, 0, true, 4})
		})
	}
}
