// Package plantest has functions for tests of stores: they make plans from texts, and Takes that must not fail.
package plantest

import (
	"context"
	"strings"
	"testing"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/storetest"
)

// Limit reads a limit such as "5/hour burst 2", which is a token bucket, or "5/hour as fixed_window".
func Limit(t testing.TB, text string) sluice.Limit {
	t.Helper()
	text, algorithm, named := strings.Cut(text, " as ")
	l, err := sluice.ParseLimit(text)
	if err == nil && named {
		l.Algorithm, err = sluice.ParseAlgorithm(algorithm)
	}
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// Plan compiles a limit as [Limit] reads it.
func Plan(t testing.TB, text string) *sluice.Plan {
	t.Helper()
	return Of(t, Limit(t, text))
}

// As compiles a limit with the given algorithm.
func As(t testing.TB, a sluice.Algorithm, text string) *sluice.Plan {
	t.Helper()
	l := Limit(t, text)
	l.Algorithm = a
	return Of(t, l)
}

// Of compiles a limit.
func Of(t testing.TB, l sluice.Limit) *sluice.Plan {
	t.Helper()
	p, err := sluice.NewPlan(l)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// InFlight returns the plan of permits in flight.
func InFlight(t testing.TB, permits int64) *sluice.Plan {
	t.Helper()
	p, err := sluice.NewInFlight(permits)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Distinct returns the plan of a limit of distinct values, such as "5/hour".
func Distinct(t testing.TB, text string) *sluice.Plan {
	t.Helper()
	l, err := sluice.ParseLimit(text)
	if err != nil {
		t.Fatal(err)
	}
	p, err := sluice.NewDistinct(l)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Lock returns the plan of a penalty.
func Lock(t testing.TB, p sluice.Penalty) *sluice.Plan {
	t.Helper()
	plan, err := p.Plan()
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

// Take makes one Take of all charges, and returns their receipts.
func Take(t testing.TB, s sluice.Store, charges ...sluice.Charge) []sluice.Receipt {
	t.Helper()
	receipts := make([]sluice.Receipt, len(charges))
	if err := s.Take(context.WithoutCancel(t.Context()), charges, receipts); err != nil {
		t.Fatal(err)
	}
	return receipts
}

// One makes a Take of one charge, and returns its receipt.
func One(t testing.TB, s sluice.Store, key string, p *sluice.Plan, cost int64) sluice.Receipt {
	t.Helper()
	return Take(t, s, sluice.Charge{Key: key, Plan: p, Cost: cost})[0]
}

// TakeAt is [Take] at a time in microseconds.
func TakeAt(t testing.TB, s storetest.TimedStore, now int64, charges ...sluice.Charge) []sluice.Receipt {
	t.Helper()
	receipts := make([]sluice.Receipt, len(charges))
	if err := s.TakeAt(context.WithoutCancel(t.Context()), now, charges, receipts); err != nil {
		t.Fatal(err)
	}
	return receipts
}

// OneAt is [One] at a time in microseconds.
func OneAt(t testing.TB, s storetest.TimedStore, now int64, key string, p *sluice.Plan, cost int64) sluice.Receipt {
	t.Helper()
	return TakeAt(t, s, now, sluice.Charge{Key: key, Plan: p, Cost: cost})[0]
}

// Twins has two stores that have to return the same receipts.
type Twins struct{ Store, Like storetest.TimedStore }

// At makes a Take of the same charges in both stores, and fails the test unless the receipts are equal. Only
// their origins may differ: a Redis store may answer from its cache of denials.
func (w Twins) At(t testing.TB, now int64, charges ...sluice.Charge) []sluice.Receipt {
	t.Helper()
	got, want := TakeAt(t, w.Store, now, charges...), TakeAt(t, w.Like, now, charges...)
	for i := range got {
		if got[i].Receipt != want[i].Receipt {
			t.Fatalf("at %d, charge %d of %d, cost %d of %v: %+v, want %+v", now, i, len(charges), charges[i].Cost, charges[i].Plan.Limit, got[i], want[i])
		}
	}
	return got
}
