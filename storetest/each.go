package storetest

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/seed"
)

// testMany makes lists of Takes, and compares them with the same Takes made one by one in the model.
func testMany(t *testing.T, s takes) {
	seed := seed.Of(t)
	rng := rand.New(rand.NewPCG(seed, 3))
	var plans []*sluice.Plan
	each(t, still(20), func(t *testing.T, p *sluice.Plan) { plans = append(plans, p) })
	once, err := sluice.NewOnce(24 * time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	lock, err := sluice.Penalty{First: 24 * time.Hour}.Plan()
	if err != nil {
		t.Fatal(err)
	}
	var model Model
	refused := 0
	for list := range 60 {
		calls := make([]sluice.TakeCall, rng.IntN(50))
		for i := range calls {
			tag := fmt.Sprintf("{%s/%d}", t.Name(), rng.IntN(4)) // all keys of a Take are in one slot of a cluster
			var charges []sluice.Charge
			for n := range 1 + rng.IntN(3) {
				p := plans[rng.IntN(len(plans))]
				charges = append(charges, sluice.Charge{Key: fmt.Sprint(tag, n), Plan: p, Cost: rng.Int64N(6) - 1, Shadow: rng.IntN(6) == 0})
			}
			if rng.IntN(4) == 0 {
				charges = append(charges, sluice.Charge{Key: fmt.Sprint(tag, "question", rng.IntN(9)), Plan: once, Cost: 1})
			}
			if rng.IntN(9) == 0 {
				charges = append(charges, sluice.Charge{Key: charges[0].Key, Plan: lock, Cost: 1, Shadow: charges[0].Shadow})
			}
			calls[i] = sluice.TakeCall{Charges: charges, Receipts: make([]sluice.Receipt, len(charges))}
		}
		sluice.TakeEach(t.Context(), s.store, calls)
		for i, c := range calls {
			want := make([]sluice.Receipt, len(c.Charges))
			if err := model.Take(t.Context(), c.Charges, want); err != nil || c.Err != nil {
				t.Fatalf("seed %d, list %d, Take %d: %v, %v", seed, list, i, err, c.Err)
			}
			admitted := sluice.Admitted(c.Charges, want)
			if got := sluice.Admitted(c.Charges, c.Receipts); got != admitted {
				t.Fatalf("seed %d, list %d, Take %d of %+v: admitted %v, one by one %v", seed, list, i, c.Charges, got, admitted)
			}
			if !admitted {
				refused++
			}
			for j := range want {
				got, p := c.Receipts[j], c.Charges[j].Plan
				left, least := p.Decide(0, got).Remaining, p.Decide(0, want[j]).Remaining
				// If a denial comes from a deny cache, the receipts of its Take may lack the units that the list
				// has taken before.
				stale := got.Origin == sluice.ByDenyCache && !admitted && left >= least && (got.Fits || !want[j].Fits)
				if (got.Fits != want[j].Fits || left != least) && !stale {
					t.Fatalf("seed %d, list %d, Take %d, charge %d of %+v: %+v, one by one %+v", seed, list, i, j, c.Charges, got, want[j])
				}
			}
		}
	}
	if refused < 100 {
		t.Errorf("premise, seed %d: %d Takes were denied", seed, refused)
	}
	wrong := []sluice.TakeCall{{Charges: make([]sluice.Charge, 1)}, {}, {Charges: []sluice.Charge{{Key: "k", Plan: plans[0]}}, Receipts: make([]sluice.Receipt, 1)}}
	sluice.TakeEach(t.Context(), s.store, wrong)
	if wrong[0].Err == nil || wrong[1].Err != nil || wrong[2].Err != nil {
		t.Errorf("a Take without a plan, an empty Take and a valid Take returned the errors %v, %v and %v; want only the first to fail", wrong[0].Err, wrong[1].Err, wrong[2].Err)
	}
}

// testOnce makes the same Take many times at once, and checks that only one is committed.
func testOnce(t *testing.T, s takes) {
	once, err := sluice.NewOnce(24 * time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	lock, err := sluice.Penalty{First: 24 * time.Hour}.Plan()
	if err != nil {
		t.Fatal(err)
	}
	each(t, still(10), func(t *testing.T, p *sluice.Plan) {
		key := "{" + t.Name() + "}"
		var taken atomic.Int64
		var all sync.WaitGroup
		for range 32 {
			all.Go(func() {
				charges := []sluice.Charge{{Key: key, Plan: p, Cost: 7}, {Key: key + "question", Plan: once, Cost: 1}, {Key: key, Plan: lock, Cost: 1}}
				receipts := make([]sluice.Receipt, len(charges))
				switch err := s.store.Take(t.Context(), charges, receipts); {
				case err != nil:
					t.Error(err)
				case sluice.Admitted(charges, receipts):
					taken.Add(1)
				case receipts[1].Fits || !receipts[2].Fits:
					t.Errorf("the receipts of a repeated Take are %+v", receipts)
				}
			})
		}
		all.Wait()
		if used := (takes{t, s.store}).used(key, p); taken.Load() != 1 || used != 7 {
			t.Errorf("%d Takes were committed, with %d units; want one Take with 7 units", taken.Load(), used)
		}
	})
}
