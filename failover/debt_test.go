package failover_test

import (
	"testing"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/failover"
)

// indebted returns a plan of so many units an hour, whose keys may owe as many as given.
func indebted(t *testing.T, limit string, a sluice.Algorithm, owe int64) *sluice.Plan {
	t.Helper()
	p := plan(t, limit, a)
	p, err := p.WithMost(p.Capacity + owe)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// What a key owes when the store goes away it owes meanwhile, and what it comes to owe meanwhile it owes
// the store afterwards: all of it, and what was counted besides up to the limit.
func TestDebtInOutage(t *testing.T) {
	for _, a := range sluice.Algorithms() {
		if a == sluice.LeakyBucket {
			continue // which cannot owe
		}
		t.Run(a.String(), func(t *testing.T) {
			bubble(t, failover.Config{}, func(t *testing.T, sv *server, s *failover.Store) {
				p := indebted(t, "100/day", a, 300)
				owe := func(key string, units int64) sluice.Receipt {
					return charge(t, s, sluice.Charge{Key: key, Plan: p, Cost: units, Owe: true, OnError: sluice.Local, Shadow: true})[0]
				}
				refuses := func(key, when string) {
					t.Helper()
					r := take(t, s, key, p, sluice.Local)
					if d := p.Decide(1, r); d.Allowed || d.Remaining != 0 || d.RetryAfter < 6*time.Hour {
						t.Errorf("%s %s: %+v", key, when, d)
					}
				}
				charge(t, s, sluice.Charge{Key: "before", Plan: p, Cost: 90, OnError: sluice.Local})
				owe("before", 50)
				charge(t, s, sluice.Charge{Key: "meanwhile", Plan: p, Cost: 20, OnError: sluice.Local})
				cut(t, sv, s, refused)
				refuses("before", "while the store is away")
				for range 5 {
					take(t, s, "meanwhile", p, sluice.Local)
				}
				if r := owe("meanwhile", 130); r.Fits || r.Cut != 0 {
					t.Errorf("130 owed with 25 of 100 used: %+v", r)
				}
				refuses("meanwhile", "while the store is away")
				for range 150 {
					take(t, s, "counts", p, sluice.Allow)
				}
				mend(t, sv, s)
				for key, want := range map[string]int64{"before": 140, "meanwhile": 155, "counts": 100} {
					if n := sv.used(t, key, p); n < want-1 || n > want {
						t.Errorf("%s: %d units are used, want %d", key, n, want)
					}
				}
				refuses("before", "afterwards")
				refuses("meanwhile", "afterwards")
			})
		})
	}
}

// A limit that instances cannot divide evenly owes as any other.
func TestDebtOfAnUnevenShare(t *testing.T) {
	bubble(t, failover.Config{Instances: 3}, func(t *testing.T, sv *server, s *failover.Store) {
		window, bucket := indebted(t, "100/day", sluice.FixedWindow, 900), indebted(t, "2/day", sluice.TokenBucket, 900)
		cut(t, sv, s, refused)
		for _, p := range []*sluice.Plan{window, bucket} {
			charge(t, s, sluice.Charge{Key: "k", Plan: p, Cost: 200, Owe: true, OnError: sluice.Local, Shadow: true})
		}
		mend(t, sv, s)
		for _, p := range []*sluice.Plan{window, bucket} {
			if n := sv.used(t, "k", p); n < 199 || n > 200 {
				t.Errorf("%v: %d units are used, want 200", p.Limit, n)
			}
		}
	})
}

// What a request owes that had passed before the outage is noted even where the rule refuses all others, and
// a share of a limit makes up for what it owes at its part of the rate.
func TestDebtOfARuleThatRefuses(t *testing.T) {
	bubble(t, failover.Config{Instances: 2}, func(t *testing.T, sv *server, s *failover.Store) {
		p := indebted(t, "100/hour", sluice.TokenBucket, 300)
		cut(t, sv, s, refused)
		if r := take(t, s, "denied", p, sluice.Deny); r.Fits {
			t.Errorf("%+v", r)
		}
		charge(t, s, sluice.Charge{Key: "denied", Plan: p, Cost: 150, Owe: true, OnError: sluice.Deny, Shadow: true})
		charge(t, s, sluice.Charge{Key: "share", Plan: p, Cost: 60, Owe: true, OnError: sluice.Local, Shadow: true})
		r := take(t, s, "share", p, sluice.Local)
		// 20 of a hundredth of an hour each that are owed, and two for the one that is asked for: by half the rate.
		if d := p.Decide(1, r); d.Allowed || (d.RetryAfter-22*36*time.Second).Abs() > time.Second {
			t.Errorf("a share of 50 that owes 10: %+v", d)
		}
		mend(t, sv, s)
		if n := sv.used(t, "denied", p); n < 149 || n > 150 {
			t.Errorf("%d units are used, want 150", n)
		}
		if n := sv.used(t, "share", p); n < 59 || n > 60 {
			t.Errorf("%d units are used, want 60", n)
		}
	})
}
