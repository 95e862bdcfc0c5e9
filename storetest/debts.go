package storetest

import (
	"fmt"
	"math/big"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/kernel"
)

// withMost returns a copy of p with the given Most.
func withMost(t testing.TB, p *sluice.Plan, units int64) *sluice.Plan {
	t.Helper()
	with, err := p.WithMost(units)
	if err != nil {
		t.Fatal(err)
	}
	return with
}

// testOwed charges owed costs that do not fit. Owed costs are committed up to Most, deny no other charge of their
// Take, and are not an offence. Afterwards, other charges do not fit.
func testOwed(t *testing.T, s takes) {
	lock, err := sluice.Penalty{First: time.Hour}.Plan()
	if err != nil {
		t.Fatal(err)
	}
	each(t, still(10), func(t *testing.T, p *sluice.Plan) {
		s := takes{t, s.store}
		p = withMost(t, p, 20)
		key, beside := t.Name(), t.Name()+"/beside"
		owe := func(units int64) sluice.Charge { return sluice.Charge{Key: key, Plan: p, Cost: units, Owe: true} }
		expect := func(what string, c sluice.Charge, fits bool, used, cut int64) {
			t.Helper()
			receipts, admitted := s.all(c, sluice.Charge{Key: beside, Plan: p, Cost: 1}, sluice.Charge{Key: key, Plan: lock, Cost: 1})
			s.one(beside, p, -1)
			if r := receipts[0]; !admitted || r.Fits != fits || (r.Used+p.Level(1)-1)/p.Level(1) != used || r.Cut != cut {
				t.Fatalf("%s: %+v, admitted %v; want fits %v, %d units used, and %d cut", what, r, admitted, fits, used, cut)
			}
		}
		expect("3 owed of 10", owe(3), true, 3, 0)
		expect("9 owed with 3 used", owe(9), false, 12, 0)
		if d := s.one(key, p, 1); d.Allowed || d.Remaining != 0 || d.RetryAfter <= 0 {
			t.Errorf("a take with 12 of 10 used: %+v", d)
		}
		// Neither a peek nor a denial has cut the level.
		expect("11 owed with 12 used", owe(11), false, 20, 3)
		s.one(key, p, -8)
		expect("nothing after 8 were given back", sluice.Charge{Key: key, Plan: p}, true, 12, 0)
		receipts, admitted := s.all(owe(5), sluice.Charge{Key: beside, Plan: p, Cost: 11})
		if admitted || receipts[0].Fits || receipts[0].Cut != 0 {
			t.Errorf("5 owed in a Take that another charge denies: %+v, admitted %v", receipts[0], admitted)
		}
		expect("nothing after that", sluice.Charge{Key: key, Plan: p}, true, 12, 0)
		s.one(key, p, sluice.All)
		expect("30 owed after all was given back", owe(30), false, 20, 10)
	})
}

// testConcurrentDebts makes owed and other charges at the same time, and checks that every owed unit is committed.
func testConcurrentDebts(t *testing.T, s takes) {
	each(t, still(300), func(t *testing.T, p *sluice.Plan) {
		s := takes{t, s.store}
		p = withMost(t, p, 600)
		var total atomic.Int64
		together(func(caller int) {
			charges, receipts := []sluice.Charge{{Key: t.Name(), Plan: p, Cost: 1}}, make([]sluice.Receipt, 1)
			for i := range 32 {
				charges[0].Owe = (i+caller)%2 == 0
				if err := s.store.Take(t.Context(), charges, receipts); err != nil {
					t.Error(err)
					return
				}
				if sluice.Admitted(charges, receipts) {
					total.Add(1)
				}
			}
		})
		r, _ := s.all(sluice.Charge{Key: t.Name(), Plan: p})
		if used := (r[0].Used + p.Level(1) - 1) / p.Level(1); used != total.Load() || used <= 300 {
			t.Errorf("%d units were committed, and %d are used, of a limit of 300", total.Load(), used)
		}
	})
}

// testBursts charges one state under two bursts. Neither a peek nor a denial under the smaller burst gives the
// larger burst more room.
func testBursts(t *testing.T, s takes) {
	for a := sluice.TokenBucket; a <= sluice.GCRA; a++ {
		t.Run(a.String(), func(t *testing.T) {
			s := takes{t, s.store}
			small, large := still(60), still(60)
			small.Algorithm, small.Burst = a, 5
			large.Algorithm, large.Burst = a, 100
			five, hundred := plan(t, small), plan(t, large)
			s.one(t.Name(), five, 1)
			if d := s.one(t.Name(), hundred, 99); !d.Allowed {
				t.Fatalf("a cost of 99 with 1 of 100 used: %+v", d)
			}
			s.one(t.Name(), five, 0)
			if d := s.one(t.Name(), five, 1); d.Allowed || d.Remaining != 0 {
				t.Errorf("a cost of 1 under a burst of 5, with 100 used: %+v", d)
			}
			s.one(t.Name(), five, -2)
			if d := s.one(t.Name(), hundred, 0); d.Remaining != 2 {
				t.Errorf("2 of 100 used units were given back, and %d remain", d.Remaining)
			}
		})
	}
}

// testAlternatingBursts charges one state alternately under two bursts, and checks that no more units pass than the
// larger burst allows.
func testAlternatingBursts(t *testing.T, store TimedStore) {
	for a := sluice.TokenBucket; a <= sluice.GCRA; a++ {
		t.Run(a.String(), func(t *testing.T) {
			hourly := func(burst int64) *sluice.Plan {
				return plan(t, sluice.Limit{Algorithm: a, Count: 60, Period: time.Hour, Burst: burst})
			}
			small, large := hourly(5), hourly(100)
			s := &timed{store: store, now: 1_700_000_000_000_000, takes: takes{t: t}}
			passed := int64(0)
			take := func(p *sluice.Plan, cost int64) {
				if cost > 0 && s.one(p, cost).Allowed {
					passed += cost
				}
			}
			for range 120 {
				take(large, s.one(large, 0).Remaining)
				take(small, s.one(small, 0).Remaining)
				take(small, 1)
				s.now += 30 * time.Second.Microseconds()
			}
			if passed > 160 || passed < 155 {
				t.Errorf("%d units passed in an hour, with 60 an hour and a burst of 100; want at most 160", passed)
			}
		})
	}
}

// testManyBursts charges one state under 1,000 bursts of one rate. It compares each answer with an exact level that
// is never cut.
func testManyBursts(t *testing.T, store TimedStore) {
	for _, l := range []sluice.Limit{
		{Count: 60, Period: time.Hour},
		{Count: 7, Period: time.Minute, Algorithm: sluice.GCRA},
		{Count: 999_983, Period: time.Hour, Algorithm: sluice.LeakyBucket},
	} {
		t.Run(l.String(), func(t *testing.T) {
			r := rand.New(rand.NewPCG(1, uint64(l.Count)))
			const largest, debt = 10_000, 5_000
			plans := make([]*sluice.Plan, 1000)
			for i := range plans {
				l.Burst = 1 + r.Int64N(largest)
				if i%2 == 0 {
					l.Burst = 1 + r.Int64N(50)
				}
				plans[i] = withMost(t, plan(t, l), largest+debt)
				if plans[i].Tick != 1 || plans[i].Fingerprint != plans[0].Fingerprint {
					t.Fatal("premise: the plans are not exact to a microsecond, or do not share a state")
				}
			}
			s := &timed{store: store, now: 1_700_000_000_000_000, takes: takes{t: t}}
			rate := big.NewRat(l.Count, l.Period.Microseconds())
			level, refused := new(big.Rat), 0
			for n := range 4000 {
				if n%3 == 0 {
					passed := r.Int64N(int64(float64(50*l.Period.Microseconds()) / float64(l.Count)))
					s.now += passed
					level.Sub(level, new(big.Rat).Mul(integer(passed), rate))
					if level.Sign() < 0 {
						level.SetInt64(0)
					}
				}
				p := plans[r.IntN(len(plans))]
				c := sluice.Charge{Key: t.Name(), Plan: p, Cost: 1 + r.Int64N(p.Capacity)}
				switch r.IntN(6) {
				case 0:
					c.Cost = 0
				case 1:
					c.Cost = -r.Int64N(10)
				case 2:
					c.Cost, c.Owe = 1+r.Int64N(40), true
				}
				next := new(big.Rat).Add(level, integer(c.Cost))
				fits := c.Cost <= 0 || next.Cmp(integer(p.Capacity)) <= 0
				if fits || c.Owe {
					level = next
				}
				if level.Sign() < 0 {
					level.SetInt64(0)
				}
				if most := integer(largest + debt); level.Cmp(most) > 0 {
					level = most
				}
				s.takes.store = at{s.store, s.now}
				receipts, _ := s.all(c)
				left := new(big.Rat).Sub(integer(p.Capacity), level)
				whole := max(0, new(big.Int).Div(left.Num(), left.Denom()).Int64())
				if d := p.Decide(c.Cost, receipts[0]); d.Allowed != fits || d.Remaining != whole {
					t.Fatalf("step %d: %s: %+v; with exact numbers: fits %v, %d remain", n, describe(c), d, fits, whole)
				}
				if !fits {
					refused++
				}
			}
			if refused < 400 || refused > 3000 {
				t.Fatalf("premise: %d of 4000 charges were denied", refused)
			}
		})
	}
}

// testDebts makes requests for an hour. Three of four requests cost more than their first charge, and the rest of the
// cost is charged afterwards.
func testDebts(t *testing.T, store TimedStore) {
	for _, count := range []int64{500, 5000} {
		each(t, sluice.Limit{Count: count, Period: time.Minute}, func(t *testing.T, p *sluice.Plan) {
			t.Parallel()
			for _, callers := range []int{1, 3} {
				estimate := p.Capacity / 5
				overrun := 3 * estimate
				most := p.Capacity + 64*4*estimate
				if p.Kernel.Log() {
					most = 2 * p.Capacity
				}
				if p.Kernel.Log() && callers > 1 {
					continue // with more callers, the plan's Most would cut debts
				}
				d := debts{timed: &timed{store: store, now: 1_700_000_000_000_000, takes: takes{t: t}}, plan: withMost(t, p, most), estimate: estimate, overrun: overrun}
				d.key = fmt.Sprint(t.Name(), callers)
				d.run(callers)
				d.check(int64(callers))
			}
		})
	}
}

// debts has the requests of an hour, and the times at which their units were committed.
type debts struct {
	*timed
	key               string
	plan              *sluice.Plan
	estimate, overrun int64
	landed            []entry // in microseconds
}

// action is the next action of a caller: a new request, or the charge of the rest of the last request's cost.
type action struct {
	at  int64
	owe int64 // the rest of a cost; 0 for a new request
}

func (d *debts) run(callers int) {
	r := rand.New(rand.NewPCG(uint64(callers), 7))
	start := d.now
	actions := make([]action, callers)
	for i := range actions {
		actions[i].at = start + r.Int64N(1_000_000)
	}
	for {
		a := &actions[0]
		for i := range actions {
			if actions[i].at < a.at {
				a = &actions[i]
			}
		}
		if d.now = a.at; d.now >= start+time.Hour.Microseconds() {
			return
		}
		c := sluice.Charge{Key: d.key, Plan: d.plan, Cost: d.estimate}
		if a.owe > 0 {
			c.Cost, c.Owe = a.owe, true
		}
		d.takes.store = at{d.timed.store, d.now}
		receipts, admitted := d.all(c)
		if admitted {
			d.landed = append(d.landed, entry{d.now, c.Cost})
		}
		switch {
		case receipts[0].Cut > 0:
			d.t.Fatalf("%d of %d owed units were cut", receipts[0].Cut, c.Cost)
		case a.owe > 0:
			*a = action{at: a.at + 1}
		case admitted && r.IntN(4) > 0:
			*a = action{at: a.at + 50_000 + r.Int64N(2_000_000), owe: d.overrun}
		case admitted:
			a.at += 50_000
		default:
			a.at += max(1, d.plan.Decide(c.Cost, receipts[0]).RetryAfter.Microseconds())
		}
	}
}

// check compares the committed units with the bounds that are guaranteed.
func (d *debts) check(callers int64) {
	period, total, most := d.plan.Limit.Period.Microseconds(), int64(0), int64(0)
	for i, e := range d.landed {
		total += e.units
		in := int64(0) // the units in the window of e, or in a period that starts at e
		for _, o := range d.landed[i:] {
			if d.plan.Kernel == kernel.Window && o.tick/period != e.tick/period || o.tick >= e.tick+period {
				break
			}
			in += o.units
		}
		most = max(most, in)
	}
	share := float64(total) / float64(60*d.plan.Capacity)
	line, least := 1.02, 0.9
	switch {
	case d.plan.Limit.Algorithm == sluice.SlidingWindowCounter:
		line, least = 1, 0.5
	case d.plan.Kernel != kernel.Meter:
		line, least = float64(d.plan.Capacity+callers*d.overrun)/float64(d.plan.Capacity), 0.5
		if most > d.plan.Capacity+callers*d.overrun {
			d.t.Errorf("%d callers: %d units in a period of a limit of %d; want at most the limit, and %d more for each caller", callers, most, d.plan.Capacity, d.overrun)
		}
	}
	if share > line || share < least {
		d.t.Errorf("%d callers: %.3f of the limit passed in an hour, want %v to %.3f", callers, share, least, line)
	}
}

// testOwedWait checks that a charge that is denied because of a debt fits at the promised time, and not a tick
// earlier.
func testOwedWait(t *testing.T, s *timed, p *sluice.Plan) {
	units := p.Capacity + p.Capacity/2 + 1
	p, err := p.WithMost(units)
	if err != nil {
		t.Skip(err)
	}
	for _, cost := range []int64{1, p.Capacity} {
		s.one(p, max(1, p.Capacity/3))
		s.now += p.Limit.Period.Microseconds() / 7
		s.takes.store = at{s.store, s.now}
		receipts, _ := s.all(sluice.Charge{Key: t.Name(), Plan: p, Cost: units, Owe: true})
		start := s.now
		d := s.one(p, cost)
		if promised := p.Decide(cost, slices.Clone(receipts)[0]); d.Allowed || d.Remaining != 0 || promised.ResetAfter != d.ResetAfter {
			t.Fatalf("a cost of %d in debt: %+v; the decision from the receipt of the owed cost: %+v", cost, d, promised)
		}
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
