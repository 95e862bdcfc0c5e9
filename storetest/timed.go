package storetest

import (
	"context"
	"testing"
	"time"

	"github.com/sluicehq/sluice"
)

// RunTimed tests a store with a clock that the test sets: a denied cost must fit exactly after the promised wait, a
// state must be empty at the promised time, and a jump of the clock must not lock out a key.
func RunTimed(t *testing.T, newStore func(t *testing.T) TimedStore) {
	for _, test := range []struct {
		name string
		run  func(t *testing.T, s *timed, p *sluice.Plan)
	}{
		{"wait", testWait},
		{"reset", testReset},
		{"wait in debt", testOwedWait},
		{"clock steps back", testStepBack},
		{"clock jumps back", testJumpBack},
		{"clock jumps forward", testJumpForward},
	} {
		t.Run(test.name, func(t *testing.T) {
			store := newStore(t)
			for _, l := range []sluice.Limit{
				{Count: 7, Period: time.Second},
				{Count: 1, Period: time.Microsecond},
				{Count: 100, Period: time.Minute},
				{Count: 999_983, Period: time.Hour},
				{Count: 3, Period: 30 * 24 * time.Hour},
				{Count: 1_000_000, Period: 365 * 24 * time.Hour},
			} {
				each(t, l, func(t *testing.T, p *sluice.Plan) {
					test.run(t, &timed{store: store, now: 1_700_000_000_123_457, takes: takes{t: t}}, p)
				})
			}
			for _, day := range []int{1, 15, 30, 31} {
				p := plan(t, sluice.Limit{Count: 1000, MonthDay: day, Algorithm: sluice.FixedWindow})
				t.Run(p.Limit.String(), func(t *testing.T) {
					test.run(t, &timed{store: store, now: 1_700_000_000_123_457, takes: takes{t: t}}, p)
				})
			}
		})
	}
	t.Run("permits expire", func(t *testing.T) { testPermitsEnd(t, newStore(t)) })
	t.Run("values expire", func(t *testing.T) { testValuesEnd(t, newStore(t)) })
	t.Run("alternating bursts", func(t *testing.T) { testAlternatingBursts(t, newStore(t)) })
	t.Run("many bursts", func(t *testing.T) { testManyBursts(t, newStore(t)) })
	t.Run("debts of an hour", func(t *testing.T) { testDebts(t, newStore(t)) })
	t.Run("turns", func(t *testing.T) { testTurns(t, newStore(t)) })
}

// timed is a store, and the present time of its clock.
type timed struct {
	takes
	store TimedStore
	now   int64
}

// one takes cost units under the test's key.
func (s *timed) one(p *sluice.Plan, cost int64) sluice.Decision {
	s.t.Helper()
	s.takes.store = at{s.store, s.now}
	return s.takes.one(s.t.Name(), p, cost)
}

// at is a store with a clock that stands still.
type at struct {
	store TimedStore
	now   int64
}

func (a at) Take(ctx context.Context, charges []sluice.Charge, receipts []sluice.Receipt) error {
	return a.store.TakeAt(ctx, a.now, charges, receipts)
}

// fill uses up the capacity in three takes, at some distance in time, and returns the last decision.
func (s *timed) fill(p *sluice.Plan) sluice.Decision {
	s.t.Helper()
	part := max(1, p.Capacity/3)
	s.one(p, part)
	s.now += p.Tick
	s.one(p, part)
	s.now += p.Limit.Period.Microseconds() / 5
	return s.one(p, max(1, s.one(p, 0).Remaining))
}

func testWait(t *testing.T, s *timed, p *sluice.Plan) {
	for _, cost := range []int64{1, max(1, p.Capacity/2), p.Capacity} {
		s.fill(p)
		d := s.one(p, cost)
		if d.Allowed || d.RetryAfter <= 0 {
			t.Fatalf("a cost of %d with a limit that is used up: %+v", cost, d)
		}
		start := s.now
		s.now = start + d.RetryAfter.Microseconds() - p.Tick
		if early := s.one(p, cost); s.now >= start && early.Allowed {
			t.Errorf("a cost of %d fits one tick before the end of the promised wait of %v", cost, d.RetryAfter)
		}
		s.now = start + d.RetryAfter.Microseconds()
		if d := s.one(p, cost); !d.Allowed {
			t.Errorf("a cost of %d does not fit after the promised wait: %+v", cost, d)
		}
		s.one(p, sluice.All)
	}
}

func testReset(t *testing.T, s *timed, p *sluice.Plan) {
	d := s.fill(p)
	start := s.now
	s.now = start + d.ResetAfter.Microseconds() - p.Tick
	if d := s.one(p, 0); s.now >= start && d.ResetAfter <= 0 {
		t.Errorf("the limit is not in use one tick before the promised reset: %+v", d)
	}
	s.now = start + d.ResetAfter.Microseconds()
	if d := s.one(p, 0); d.ResetAfter != 0 || d.Remaining != p.Capacity {
		t.Errorf("the limit is still in use after the promised reset: %+v", d)
	}
	if d := s.one(p, p.Capacity); !d.Allowed {
		t.Errorf("the whole capacity does not fit after the promised reset: %+v", d)
	}
}

// testStepBack steps the clock back a little and forward again, and checks that the state has not changed.
func testStepBack(t *testing.T, s *timed, p *sluice.Plan) {
	period := p.Limit.Period.Microseconds()
	s.now = nextEdge(p, s.now+period)
	s.one(p, p.Capacity/2)
	start, before := s.now, s.one(p, 0)
	for _, back := range []int64{1, p.Tick, period / 2} {
		s.now = start - back
		if d := s.one(p, before.Remaining+1); d.Allowed {
			t.Errorf("after a step of %d µs back, more units fit than before: %+v", back, d)
		}
		s.now = start
		if d := s.one(p, 0); d != before {
			t.Fatalf("a step of %d µs back and forth has changed %+v to %+v", back, before, d)
		}
	}
}

// testJumpBack moves the clock back by ten periods. It checks that no key waits longer than if its capacity had
// been used up at that moment.
func testJumpBack(t *testing.T, s *timed, p *sluice.Plan) {
	s.fill(p)
	s.now -= 10*p.Limit.Period.Microseconds() + 1
	d := s.one(p, p.Capacity)
	if d.Allowed || d.RetryAfter > mostOwed(p) {
		t.Errorf("after the jump: %+v, want a denial for at most %v", d, mostOwed(p))
	}
	s.now += d.RetryAfter.Microseconds()
	if d := s.one(p, p.Capacity); !d.Allowed {
		t.Errorf("after the wait that the denial promised: %+v", d)
	}
}

func testJumpForward(t *testing.T, s *timed, p *sluice.Plan) {
	s.fill(p)
	s.now += mostOwed(p).Microseconds() * 3
	if d := s.one(p, p.Capacity); !d.Allowed || d.Remaining != 0 {
		t.Errorf("a long time later: %+v, want exactly the whole capacity", d)
	}
}

// mostOwed returns the time in which a limit that is used up becomes empty again.
func mostOwed(p *sluice.Plan) time.Duration {
	switch {
	case p.Limit.Algorithm == sluice.SlidingWindowCounter:
		return 2 * p.Limit.Period
	case p.Kernel.Log():
		return time.Duration(p.Span*p.Tick) * time.Microsecond
	}
	return p.Limit.Period // for a meter, too, because its burst is its count
}
