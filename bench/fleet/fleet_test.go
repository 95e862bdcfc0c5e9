package fleet

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/lease"
	"github.com/sluicehq/sluice/memory"
)

// simulate runs a fleet of processes with leases in a bubble of synctest, and returns the outcome.
func (f fleet) simulate(t *testing.T) (o outcome) {
	plan := f.plan()
	shared := &server{Store: memory.New()}
	nodes := make([]*lease.Store, f.nodes)
	for i := range nodes {
		nodes[i] = lease.New(shared)
		defer nodes[i].Close()
	}
	return f.watch(plan, func(node int) (int64, bool) {
		charge := [1]sluice.Charge{{Key: "hot", Plan: plan, Cost: 1, Consistency: sluice.Leased}}
		var r [1]sluice.Receipt
		if err := nodes[node].Take(t.Context(), charge[:], r[:]); err != nil {
			t.Error(err)
		}
		return r[0].Now, r[0].Fits
	}, shared.calls.Load)
}

// Processes with leases admit no more than one exact bucket, not much less, and make few calls.
func TestFleet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := fleet{3, 2_000, 100 * time.Millisecond, 2, time.Second}.simulate(t)
		if o.over > 0 || o.admitted == 0 || o.under() > 20 || o.callsADecision() > 0.5 {
			t.Errorf("%+v", o)
		}
	})
}
