package sluice_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/plantest"
	"github.com/sluicehq/sluice/storetest"
)

// The kernels, with no more of a store around them than they need, keep the contract of all stores, answer
// as the vectors say, and as the model.
func TestKernels(t *testing.T) {
	t.Parallel()
	newStore := func(*testing.T) storetest.TimedStore { return plantest.NewKernels() }
	storetest.Run(t, func(t *testing.T) sluice.Store { return newStore(t) })
	storetest.RunTimed(t, newStore)
	storetest.RunVectors(t, "testdata/vectors", newStore)
	storetest.Differential(t, plantest.NewKernels(), new(storetest.Model), 10_000, 2)
}

func TestCheckCharges(t *testing.T) {
	second, burst, minute := plantest.Plan(t, "1/second"), plantest.Plan(t, "1/second burst 9"), plantest.Plan(t, "1/minute")
	for _, n := range []int{2, 32, 33, 100} {
		charges := make([]sluice.Charge, n)
		for i := range charges {
			charges[i] = sluice.Charge{Key: fmt.Sprint(i), Plan: second}
		}
		receipts := make([]sluice.Receipt, n)
		if err := sluice.CheckCharges(charges, receipts); err != nil {
			t.Errorf("%d charges: %v", n, err)
		}
		if err := sluice.CheckCharges(charges, receipts[1:]); err == nil {
			t.Errorf("%d charges, and room for one less: no error", n)
		}
		charges[n-1] = sluice.Charge{Key: "0", Plan: minute}
		if err := sluice.CheckCharges(charges, receipts); err != nil {
			t.Errorf("%d charges, two with one key and limits that differ: %v", n, err)
		}
		charges[n-1] = sluice.Charge{Key: "0", Plan: burst, Shadow: true}
		if err := sluice.CheckCharges(charges, receipts); !errors.Is(err, sluice.ErrDuplicateCharge) {
			t.Errorf("%d charges, two with one state: %v", n, err)
		}
		charges[n-1].Plan = nil
		if err := sluice.CheckCharges(charges, receipts); err == nil || errors.Is(err, sluice.ErrDuplicateCharge) {
			t.Errorf("%d charges, one without a plan: %v", n, err)
		}
	}
	if err := sluice.CheckCharges(nil, nil); err != nil {
		t.Errorf("no charges: %v", err)
	}
}

// TestLongWaits: a wait of more than 292 years, which no Duration holds, is a long one.
func TestLongWaits(t *testing.T) {
	const year = 365 * 24 * time.Hour
	b := &bucket{Plan: plan(t, sluice.Limit{Count: 1, Period: 250 * year, Algorithm: sluice.SlidingWindowCounter})}
	d := b.take(start, 1)
	if refused := b.take(start, 1); refused.RetryAfter != d.ResetAfter || d.ResetAfter < 290*year || d.ResetAfter == sluice.Never {
		t.Errorf("the wait of 250 and more years is %v, the reset %v", refused.RetryAfter, d.ResetAfter)
	}
}
