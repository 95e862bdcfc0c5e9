package sluice_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/memory"
)

func TestParseConsistency(t *testing.T) {
	for want, name := range map[sluice.Consistency]string{sluice.Strict: "strict", sluice.Leased: "leased", sluice.Synced: "synced"} {
		if c, err := sluice.ParseConsistency(name); err != nil || c != want || c.String() != name {
			t.Errorf("%q is read as %v (%v), and written as %q", name, c, err, want.String())
		}
	}
	if _, err := sluice.ParseConsistency("eventual"); err == nil || !strings.Contains(err.Error(), "strict, leased or synced") {
		t.Errorf("eventual: %v", err)
	}
}

// What needs the shared store each time is what nobody can know part of: where each unit is, whose
// turn it is, and what has happened before.
func TestLeasable(t *testing.T) {
	leasable := map[sluice.Algorithm]bool{sluice.TokenBucket: true, sluice.GCRA: true, sluice.FixedWindow: true, sluice.SlidingWindowCounter: true}
	for _, a := range sluice.Algorithms() {
		p, err := sluice.NewPlan(sluice.Limit{Count: 10, Period: time.Minute, Algorithm: a})
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Leasable(); (err == nil) != leasable[a] || err != nil && !errors.Is(err, sluice.ErrUsage) {
			t.Errorf("%v: %v", a, err)
		}
	}
	month, err := sluice.NewPlan(sluice.Limit{Count: 10, Algorithm: sluice.FixedWindow, MonthDay: 1})
	if err != nil {
		t.Fatal(err)
	}
	once, err := sluice.NewOnce(time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	places, err := sluice.NewInFlight(3)
	if err != nil {
		t.Fatal(err)
	}
	lock, err := sluice.Penalty{First: time.Minute}.Plan()
	if err != nil {
		t.Fatal(err)
	}
	for what, p := range map[string]*sluice.Plan{"month": month, "once": once, "in flight": places, "lock": lock} {
		if err := p.Leasable(); err == nil {
			t.Errorf("%s may be leased", what)
		}
	}
}

// asked is a store that keeps what it was asked last.
type asked struct {
	sluice.Store
	charges []sluice.Charge
}

func (a *asked) Take(ctx context.Context, charges []sluice.Charge, receipts []sluice.Receipt) error {
	a.charges = slices.Clone(charges)
	return a.Store.Take(ctx, charges, receipts)
}

// A limiter has all its limits counted as it says, also those of With.
func TestLimiterConsistency(t *testing.T) {
	store := &asked{Store: memory.New()}
	minute, hour := sluice.Limit{Count: 10, Period: time.Minute}, sluice.Limit{Count: 100, Period: time.Hour}
	for _, limits := range [][]sluice.Limit{{minute}, {minute, hour}} {
		l, err := sluice.NewLimiter(store, "a", limits...)
		if err != nil {
			t.Fatal(err)
		}
		l.Consistency = sluice.Synced
		other, err := l.With(sluice.Limit{Count: 7, Period: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range []*sluice.Limiter{l, other} {
			if _, err := l.Take(t.Context(), "k", 1); err != nil {
				t.Fatal(err)
			}
			for _, c := range store.charges {
				if c.Consistency != sluice.Synced {
					t.Errorf("%+v", c)
				}
			}
		}
	}
}
