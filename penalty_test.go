package sluice_test

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/plantest"
	"github.com/sluicehq/sluice/kernel"
	"github.com/sluicehq/sluice/memory"
)

var lockOf = plantest.Lock

func TestPenaltyPlan(t *testing.T) {
	const day = 24 * time.Hour
	for _, test := range []struct{ is, want sluice.Penalty }{
		{sluice.Penalty{First: time.Minute}, sluice.Penalty{First: time.Minute, Factor: 1, Most: time.Minute}},
		{sluice.Penalty{First: time.Minute, Factor: 1}, sluice.Penalty{First: time.Minute, Factor: 1, Most: time.Minute}},
		{sluice.Penalty{First: time.Minute, Factor: 2}, sluice.Penalty{First: time.Minute, Factor: 2, Most: day, Forget: day}},
		{sluice.Penalty{First: 2 * day, Factor: 3}, sluice.Penalty{First: 2 * day, Factor: 3, Most: 2 * day, Forget: day}},
		{sluice.Penalty{First: time.Microsecond, Factor: 1000, Most: 3650 * day, Forget: time.Microsecond},
			sluice.Penalty{First: time.Microsecond, Factor: 1000, Most: 3650 * day, Forget: time.Microsecond}},
	} {
		p := lockOf(t, test.is)
		if p.Penalty != test.want || p.Kernel != kernel.Lock || p.Kernel.Log() || p.Fingerprint != lockOf(t, sluice.Penalty{First: 1000}).Fingerprint {
			t.Errorf("%+v: the plan is %+v", test.is, p)
		}
	}
	for _, test := range []struct {
		p    sluice.Penalty
		want string
	}{
		{sluice.Penalty{}, "must be positive"},
		{sluice.Penalty{First: 1500}, "whole number of microseconds"},
		{sluice.Penalty{First: 3651 * day}, "at most ten years"},
		{sluice.Penalty{First: time.Minute, Factor: 1001}, "from 0 to 1000"},
		{sluice.Penalty{First: time.Minute, Most: time.Hour}, "factor of at least 2"},
		{sluice.Penalty{First: time.Minute, Factor: 1, Forget: time.Hour}, "factor of at least 2"},
		{sluice.Penalty{First: time.Minute, Factor: 2, Most: time.Second}, `raise "most"`},
		{sluice.Penalty{First: time.Minute, Factor: 2, Forget: -1}, "forgotten is -1ns"},
	} {
		if _, err := test.p.Plan(); err == nil || !strings.Contains(err.Error(), test.want) || !errors.Is(err, sluice.ErrUsage) {
			t.Errorf("%+v: error %v, want one with %q", test.p, err, test.want)
		}
	}
}

// locked is a lock and its state.
type locked struct {
	*sluice.Plan
	state kernel.State
}

func (l *locked) offend(now int64) (r sluice.Receipt) {
	l.state = l.Offend(l.state, now, &r.Receipt)
	return r
}

// TestPenaltiesAreBounded checks with random penalties and offences that no penalty is shorter than the one before it
// or longer than Most, and that the state is empty at the latest after the plan's Lifetime.
func TestPenaltiesAreBounded(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 5))
	for range 2000 {
		p := sluice.Penalty{First: time.Duration(1+rng.Int64N(1e9)) * time.Microsecond, Factor: 1 + rng.Int64N(1000)}
		if p.Factor > 1 {
			p.Most, p.Forget = p.First+time.Duration(rng.Int64N(3e14))*time.Microsecond, time.Duration(1+rng.Int64N(3e14))*time.Microsecond
		}
		l, now, last := &locked{Plan: lockOf(t, p)}, int64(plantest.Start), int64(0)
		for range 60 {
			r := l.offend(now)
			length := r.Tick - now
			if length <= 0 || length < last || length > max(p.Most, p.First).Microseconds() {
				t.Fatalf("%+v: a penalty of %d µs after one of %d", p, length, last)
			}
			if life := l.EmptyAt(l.state) - now; life > l.Lifetime() || l.EmptyAt(l.state) >= 1<<53 {
				t.Fatalf("%+v: empty after %d µs, want %d at the most, and a time below 2^53", p, life, l.Lifetime())
			}
			last, now = length, min(r.Tick, 1<<52-1)
			if now < r.Tick {
				break
			}
		}
	}
}

func TestLockOut(t *testing.T) {
	minute := sluice.Decision{Remaining: 0, RetryAfter: time.Minute, Locked: true, Origin: sluice.ByDenyCache}
	peeked := minute
	peeked.Allowed = true
	for _, test := range []struct{ limit, lock, want sluice.Decision }{
		{
			sluice.Decision{Allowed: true, Remaining: 4, ResetAfter: time.Second, Delay: 3},
			sluice.Decision{Allowed: true, Remaining: 1, ResetAfter: time.Hour},
			sluice.Decision{Allowed: true, Remaining: 4, ResetAfter: time.Second, Delay: 3},
		},
		{
			sluice.Decision{Allowed: true, Remaining: 4, ResetAfter: time.Second, Delay: 3}, minute,
			sluice.Decision{RetryAfter: time.Minute, ResetAfter: time.Minute, Locked: true, Origin: sluice.ByDenyCache},
		},
		{
			sluice.Decision{Allowed: true, Remaining: 4}, peeked,
			sluice.Decision{Allowed: true, RetryAfter: time.Minute, ResetAfter: time.Minute, Locked: true},
		},
		{
			sluice.Decision{RetryAfter: time.Hour, ResetAfter: 2 * time.Hour}, minute,
			sluice.Decision{RetryAfter: time.Hour, ResetAfter: 2 * time.Hour, Locked: true},
		},
		{
			sluice.Decision{RetryAfter: sluice.Never, Remaining: 3}, minute,
			sluice.Decision{RetryAfter: sluice.Never, ResetAfter: time.Minute, Locked: true},
		},
	} {
		d := test.limit
		if d.LockOut(test.lock); d != test.want {
			t.Errorf("%+v under %+v: %+v, want %+v", test.limit, test.lock, d, test.want)
		}
	}
}

// TestPenaltyWithoutStore checks that a receipt of on_error "allow" never locks out, whatever it contains.
func TestPenaltyWithoutStore(t *testing.T) {
	p := lockOf(t, sluice.Penalty{First: time.Minute})
	r := sluice.Receipt{Receipt: kernel.Receipt{Now: plantest.Start, Tick: plantest.Start + 60e6, Used: 1, Prev: plantest.Start + 60e6, Fits: true}, Origin: sluice.ByOnError}
	if d := p.Decide(1, r); d.Locked || !d.Allowed || d.RetryAfter != 0 {
		t.Errorf("%+v, want no lockout", d)
	}
}

// TestLimiterLock exceeds limiters with a Lock, of one limit and of two.
func TestLimiterLock(t *testing.T) {
	for _, limits := range [][]string{{"3/day"}, {"2/second", "3/day"}, {"2/second burst 100", "3/day"}} {
		synctest.Test(t, func(t *testing.T) {
			l := limiterOf(t, memory.New(), limits...)
			l.Lock = lockOf(t, sluice.Penalty{First: 10 * time.Minute, Factor: 2})
			ctx := t.Context()
			take := func() sluice.Decision {
				t.Helper()
				each := make([]sluice.Decision, len(limits))
				d, err := l.TakeEach(ctx, "alice", 1, each)
				if err != nil {
					t.Fatal(err)
				}
				for _, one := range each {
					if one.Locked != d.Locked || d.Locked && (one.RetryAfter < time.Minute || one.Remaining != 0 || one.Allowed) {
						t.Errorf("%v: for each limit %+v, combined %+v", limits, each, d)
					}
				}
				return d
			}
			n := 0
			for take().Allowed {
				n++
			}
			if most := 3; n > most || n < 2 {
				t.Errorf("%v: %d were allowed", limits, n)
			}
			time.Sleep(9 * time.Minute)
			peek, err := l.Peek(ctx, "alice")
			if err != nil || !peek.Locked || !peek.Allowed || peek.Remaining != 0 || peek.RetryAfter < time.Minute {
				t.Errorf("%v: Peek: %+v, %v", limits, peek, err)
			}
			if back, err := l.Refund(ctx, "alice", 3); err != nil || !back.Locked {
				t.Errorf("%v: after a refund: %+v, %v", limits, back, err)
			}
			if d := take(); d.Allowed || !d.Locked {
				t.Errorf("%v: a minute before the end: %+v", limits, d)
			}
			if d, err := l.TakeLimit(ctx, "alice", 1, sluice.Limit{Count: 5, Period: time.Hour}); err != nil || d.Allowed || !d.Locked {
				t.Errorf("%v: TakeLimit: %+v, %v", limits, d, err)
			}
			if err := l.Reset(ctx, "alice"); err != nil {
				t.Fatal(err)
			}
			if d := take(); !d.Allowed || d.Locked {
				t.Errorf("%v: after a reset: %+v", limits, d)
			}
			for range 3 {
				take()
			}
			time.Sleep(10 * time.Minute)
			if d, err := l.Peek(ctx, "alice"); err != nil || d.Locked {
				t.Errorf("%v: after the penalty: %+v, %v", limits, d, err)
			}
		})
	}
}
