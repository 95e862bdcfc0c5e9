package sluice_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/storetest"
)

// TestVectors holds the kernels to the vectors, without a store around them.
func TestVectors(t *testing.T) {
	for _, v := range storetest.Vectors(t, "testdata/vectors") {
		if v.Penalty.First > 0 {
			continue // takes of several charges need a store
		}
		t.Run(v.Name, func(t *testing.T) {
			p, b := v.Compile(t), new(bucket)
			var places sluice.Places
			var siblings sluice.Siblings
			for i, want := range v.Steps {
				b.Plan = want.Compile(t, v, p)
				b.Plan = b.Raised(siblings.Most(b.Plan))
				c := sluice.Charge{Cost: want.Cost, Until: want.Until}
				var r sluice.Receipt
				var d sluice.Decision
				switch {
				case b.Kernel == sluice.InFlight:
					r = places.Step(b.Plan, want.Now, want.Place, c.CostAt(want.Now))
					d = b.Decide(want.Cost, r)
				case want.Owe:
					r, d = b.owe(want.Now, want.Cost)
				default:
					r, d = b.receipt(want.Now, c.CostAt(want.Now))
				}
				if r.Fits != want.Fits || r.Used != want.Used || r.Tick != want.Tick || r.Prev != want.Prev || r.Wait != want.Wait || r.Cut != want.Cut {
					t.Fatalf("step %d: receipt %+v, want %+v", i+1, r, want)
				}
				retry := time.Duration(want.RetryAfter) * time.Microsecond
				if want.RetryAfter == -1 {
					retry = sluice.Never
				}
				if d.Allowed != want.Fits || d.Remaining != want.Remaining || d.RetryAfter != retry ||
					d.ResetAfter.Microseconds() != want.ResetAfter || d.Delay.Microseconds() != want.Delay {
					t.Fatalf("step %d: decision %+v, want %+v", i+1, d, want)
				}
			}
		})
	}
}

func TestCheckCharges(t *testing.T) {
	second := plan(t, sluice.Limit{Count: 1, Period: time.Second})
	burst := plan(t, sluice.Limit{Count: 1, Period: time.Second, Burst: 9})
	minute := plan(t, sluice.Limit{Count: 1, Period: time.Minute})
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

func TestAdmitted(t *testing.T) {
	for _, test := range []struct {
		shadow, fits []bool
		want         bool
	}{
		{nil, nil, true},
		{[]bool{false}, []bool{true}, true},
		{[]bool{false}, []bool{false}, false},
		{[]bool{true}, []bool{false}, true},
		{[]bool{true, false}, []bool{false, true}, true},
		{[]bool{true, false}, []bool{true, false}, false},
	} {
		charges, receipts := make([]sluice.Charge, len(test.fits)), make([]sluice.Receipt, len(test.fits))
		for i := range test.fits {
			charges[i].Shadow, receipts[i].Fits = test.shadow[i], test.fits[i]
		}
		if got := sluice.Admitted(charges, receipts); got != test.want {
			t.Errorf("shadow %v, fits %v: %v", test.shadow, test.fits, got)
		}
	}
}
