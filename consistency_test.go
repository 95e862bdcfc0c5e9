package sluice_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/plantest"
)

// Names are read and written alike.
func TestNames(t *testing.T) {
	names := "token_bucket leaky_bucket gcra fixed_window sliding_window_counter sliding_window_log sliding_window_log_exact"
	for i, name := range strings.Fields(names) {
		if a, err := sluice.ParseAlgorithm(name); err != nil || a != sluice.Algorithms()[i] || a.String() != name || len(sluice.Algorithms()) != 7 {
			t.Errorf("%q is algorithm %v, %v", name, a, err)
		}
	}
	for _, name := range []string{"", "GCRA", "token bucket", "tokenbucket"} {
		if _, err := sluice.ParseAlgorithm(name); err == nil || !strings.Contains(err.Error(), "token_bucket, leaky_bucket, gcra") {
			t.Errorf("%q: %v, want an error that lists the names", name, err)
		}
	}
	if s := sluice.Algorithm(77).String(); s != "algorithm(77)" {
		t.Errorf("algorithm 77 is %q", s)
	}
	for want, name := range map[sluice.Consistency]string{sluice.Strict: "strict", sluice.Leased: "leased", sluice.Synced: "synced"} {
		if c, err := sluice.ParseConsistency(name); err != nil || c != want || c.String() != name {
			t.Errorf("%q is read as %v (%v), and written as %q", name, c, err, want.String())
		}
	}
	if _, err := sluice.ParseConsistency("eventual"); err == nil || !strings.Contains(err.Error(), "strict, leased or synced") {
		t.Errorf("eventual: %v", err)
	}
	for i, name := range strings.Fields("store deny_cache lease sync local_share on_error") {
		if o := sluice.Origin(i); o.String() != name || o.Degraded() != (i > 3) {
			t.Errorf("%q is origin %v, degraded %v", name, o, o.Degraded())
		}
	}
}

// What needs the shared store each time is what no instance can know part of: where each unit is, whose
// turn it is, and what has happened before.
func TestLeasable(t *testing.T) {
	leasable := map[string]*sluice.Plan{}
	never := map[string]*sluice.Plan{"month": plantest.Plan(t, "10/month"), "in flight": inFlight(t, 3), "lock": lockOf(t, sluice.Penalty{First: time.Minute})}
	for _, a := range sluice.Algorithms() {
		into := never
		switch a {
		case sluice.TokenBucket, sluice.GCRA, sluice.FixedWindow, sluice.SlidingWindowCounter:
			into = leasable
		}
		into[a.String()] = plantest.As(t, a, "10/minute")
	}
	var err error
	if never["once"], err = sluice.NewOnce(time.Minute); err != nil {
		t.Fatal(err)
	}
	for what, p := range leasable {
		if err := p.Leasable(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	for what, p := range never {
		if err := p.Leasable(); !errors.Is(err, sluice.ErrUsage) {
			t.Errorf("%s may be leased: %v", what, err)
		}
	}
}

// A limiter has all its limits counted as it says, also those of With.
func TestLimiterConsistency(t *testing.T) {
	store := newSpy()
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
			for _, c := range store.last {
				if c.Consistency != sluice.Synced {
					t.Errorf("%+v", c)
				}
			}
		}
	}
}
