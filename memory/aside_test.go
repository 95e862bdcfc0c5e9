package memory

import (
	"fmt"
	"testing"

	"github.com/sluicehq/sluice"
)

// A charge of a Take must not forget the state that another charge of it has found.
func TestTakeKeepsWhatItHolds(t *testing.T) {
	meter, err := sluice.NewPlan(sluice.Limit{Count: 9973, Period: 60e9, Burst: 3}) // kept aside
	if err != nil {
		t.Fatal(err)
	}
	log, err := sluice.NewPlan(sluice.Limit{Count: 3, Period: 1e9, Algorithm: sluice.SlidingWindowLog})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []*sluice.Plan{meter, log} {
		for others := range 40 {
			s, now := NewSize(0), int64(1e15)
			take := func(keys ...string) bool {
				charges, receipts := make([]sluice.Charge, len(keys)), make([]sluice.Receipt, len(keys))
				for i, k := range keys {
					charges[i] = sluice.Charge{Key: k, Plan: p, Cost: 3}
				}
				if err := s.TakeAt(t.Context(), now, charges, receipts); err != nil {
					t.Fatal(err)
				}
				return sluice.Admitted(charges, receipts)
			}
			take("hot")
			for i := range others {
				take(fmt.Sprint("other", i))
			}
			now += 60e6 // all have drained, and nothing has been forgotten yet
			if !take("new", "hot") {
				t.Fatal("there is room, and no room was found")
			}
			if take("hot") {
				t.Errorf("%v, with %d others: two bursts at one instant", p.Limit, others)
			}
			if got, want := s.asides.bytes.Load(), s.countAsides(); got != want {
				t.Errorf("%v, with %d others: %d bytes are accounted for, and there are %d", p.Limit, others, got, want)
			}
		}
	}
}

// countAsides counts what asides.bytes should be.
func (s *Store) countAsides() (bytes int64) {
	for i := range s.stripes {
		if sa := s.stripes[i].asides; sa != nil {
			bytes += stripeAsideBytes
			for _, a := range sa.byHash {
				bytes += a.bytes()
			}
		}
	}
	return bytes
}
