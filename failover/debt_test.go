package failover_test

import (
	"testing"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/failover"
	"github.com/sluicehq/sluice/internal/faultstore"
)

// indebted returns a plan whose keys may owe as many units as given.
func indebted(t *testing.T, limit string, a sluice.Algorithm, owe int64) *sluice.Plan {
	t.Helper()
	p := plan(t, limit, a)
	p, err := p.WithMost(p.Capacity + owe)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// owe charges a key with units that are due in any case.
func owe(t *testing.T, s *failover.Store, key string, p *sluice.Plan, units int64, on sluice.OnError) sluice.Receipt {
	t.Helper()
	return charge(t, s, sluice.Charge{Key: key, Plan: p, Cost: units, Owe: true, OnError: on, Shadow: true})[0]
}

// about fails unless so many units are counted in the shared store, or one less, which may have drained.
func about(t *testing.T, sv *faultstore.Store, key string, p *sluice.Plan, want int64) {
	t.Helper()
	if n := sv.Used(t, key, p); n < want-1 || n > want {
		t.Errorf("%v, %s: %d units are counted, want %d", p.Limit, key, n, want)
	}
}

// What a key owes when the store goes away it owes meanwhile, and what it comes to owe meanwhile it owes the store
// afterwards: all of it, and what was counted besides up to the limit.
func TestDebtInOutage(t *testing.T) {
	t.Parallel()
	for _, a := range sluice.Algorithms() {
		if a == sluice.LeakyBucket {
			continue // which cannot owe
		}
		bubble(t, failover.Config{}, func(t *testing.T, sv *faultstore.Store, s *failover.Store) {
			p := indebted(t, "100/day", a, 300)
			refuses := func(key, when string) {
				t.Helper()
				r := take(t, s, key, p, sluice.Local)
				if d := p.Decide(1, r); d.Allowed || d.Remaining != 0 || d.RetryAfter < 6*time.Hour {
					t.Errorf("%v, %s %s: %+v", a, key, when, d)
				}
			}
			spend(t, s, "before", p, 90, sluice.Local)
			owe(t, s, "before", p, 50, sluice.Local)
			spend(t, s, "meanwhile", p, 20, sluice.Local)
			cut(t, sv, s, faultstore.Refused)
			refuses("before", "while the store is away")
			admitted(t, s, 5, "meanwhile", p)
			if r := owe(t, s, "meanwhile", p, 130, sluice.Local); r.Fits || r.Cut != 0 {
				t.Errorf("%v, 130 owed with 25 of 100 used: %+v", a, r)
			}
			refuses("meanwhile", "while the store is away")
			for range 150 {
				take(t, s, "counts", p, sluice.Allow)
			}
			mend(t, sv, s)
			about(t, sv, "before", p, 140)
			about(t, sv, "meanwhile", p, 155)
			about(t, sv, "counts", p, 100)
			refuses("before", "afterwards")
			refuses("meanwhile", "afterwards")
		})
	}
}

// A limit that instances cannot divide evenly owes as any other.
func TestDebtOfAnUnevenShare(t *testing.T) {
	t.Parallel()
	bubble(t, failover.Config{Instances: 3}, func(t *testing.T, sv *faultstore.Store, s *failover.Store) {
		plans := []*sluice.Plan{indebted(t, "100/day", sluice.FixedWindow, 900), indebted(t, "2/day", sluice.TokenBucket, 900)}
		cut(t, sv, s, faultstore.Refused)
		for _, p := range plans {
			owe(t, s, "k", p, 200, sluice.Local)
		}
		mend(t, sv, s)
		for _, p := range plans {
			about(t, sv, "k", p, 200)
		}
	})
}

// What is owed by a request that passed before the outage is counted even where the rule refuses all others, and
// a share of a limit makes up for what it owes at its part of the rate.
func TestDebtOfARuleThatRefuses(t *testing.T) {
	t.Parallel()
	bubble(t, failover.Config{Instances: 2}, func(t *testing.T, sv *faultstore.Store, s *failover.Store) {
		p := indebted(t, "100/hour", sluice.TokenBucket, 300)
		cut(t, sv, s, faultstore.Refused)
		if r := take(t, s, "denied", p, sluice.Deny); r.Fits {
			t.Errorf("%+v", r)
		}
		owe(t, s, "denied", p, 150, sluice.Deny)
		owe(t, s, "share", p, 60, sluice.Local)
		r := take(t, s, "share", p, sluice.Local)
		// 20 of a hundredth of an hour each that are owed, and two for the one that is asked for: by half the rate.
		if d := p.Decide(1, r); d.Allowed || (d.RetryAfter-22*36*time.Second).Abs() > time.Second {
			t.Errorf("a share of 50 that owes 10: %+v", d)
		}
		mend(t, sv, s)
		about(t, sv, "denied", p, 150)
		about(t, sv, "share", p, 60)
	})
}
