// Package storetest checks stores against the contract of [sluice.Store].
//
// A store's own tests call [Run], which needs only the store. If tests can set the store's clock, they also call
// [RunTimed] and [RunVectors]. They also compare the store with another one by [Differential], starting with a
// [Model]: after the same history, two stores return the same receipts, bit for bit.
//
//	func TestStore(t *testing.T) {
//		storetest.Run(t, func(t *testing.T) sluice.Store { return mystore.New() })
//	}
package storetest

import (
	"context"
	"fmt"
	"testing"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/kernel"
)

// TimedStore is a store with a clock that a test sets. Programs that count real requests must not call TakeAt.
type TimedStore interface {
	sluice.Store
	// TakeAt is a Take with the given time, in microseconds since the Unix epoch. The clock may step back between
	// calls. So in a test, a store needs room for every state, and must not let states expire by the clock of the
	// machine.
	TakeAt(ctx context.Context, now int64, charges []sluice.Charge, receipts []sluice.Receipt) error
}

// plan compiles a limit of the suite.
func plan(t testing.TB, l sluice.Limit) *sluice.Plan {
	t.Helper()
	p, err := sluice.NewPlan(l)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// takes makes Takes of a store, and fails the test instead of returning an error.
type takes struct {
	t     testing.TB
	store sluice.Store
}

// all makes a Take of several charges, and checks the invariants of the receipts.
func (s takes) all(charges ...sluice.Charge) (receipts []sluice.Receipt, admitted bool) {
	s.t.Helper()
	receipts = spoilt(len(charges))
	if err := s.store.Take(s.t.Context(), charges, receipts); err != nil {
		s.t.Fatalf("Take: %v", err)
	}
	for i, r := range receipts {
		if problem := misshapen(charges[i], r); problem != "" {
			s.t.Errorf("receipt %d of %+v for a cost of %d under %.40q: %s", i, r, charges[i].Cost, charges[i].Key, problem)
		}
	}
	return receipts, sluice.Admitted(charges, receipts)
}

// one takes cost units and returns the decision.
func (s takes) one(key string, p *sluice.Plan, cost int64) sluice.Decision {
	s.t.Helper()
	receipts, _ := s.all(sluice.Charge{Key: key, Plan: p, Cost: cost})
	return p.Decide(cost, receipts[0])
}

// used returns how many units of a key are used.
func (s takes) used(key string, p *sluice.Plan) int64 {
	s.t.Helper()
	return p.Capacity - s.one(key, p, 0).Remaining
}

// spoilt returns receipts with invalid values, which a store has to overwrite.
func spoilt(n int) []sluice.Receipt {
	receipts := make([]sluice.Receipt, n)
	for i := range receipts {
		receipts[i] = sluice.Receipt{Receipt: kernel.Receipt{Now: -1, Tick: -2, Used: -3, Prev: -4, Wait: -5, Cut: -6}, Origin: 99}
	}
	return receipts
}

// misshapen returns a message if a receipt is impossible after any history, and "" otherwise.
func misshapen(c sluice.Charge, r sluice.Receipt) string {
	switch {
	case r.Now <= 0:
		return "Now is not set"
	case r.Origin > sluice.ByOnError:
		return "Origin is not set"
	case r.Used < 0, r.Tick < 0, r.Prev < 0, r.Wait < 0:
		return "a field is negative"
	case r.Cut < 0 || r.Cut > 0 && (r.Fits || !c.Owe || r.Cut > c.Cost):
		return "Cut is set, but the charge is not owed or fits"
	case c.Cost <= 0 && !r.Fits:
		return "a peek or a refund does not fit, but must"
	case c.Cost > c.Plan.Capacity && r.Fits && c.Plan.Kernel != kernel.Lock:
		return "a cost above the capacity fits, but must not"
	case (c.Plan.Kernel == kernel.Meter || c.Plan.Kernel == kernel.InFlight) && (r.Tick != 0 || r.Prev != 0 && c.Plan.Limit.Algorithm != sluice.LeakyBucket || r.Wait != 0):
		return "Tick, Prev or Wait is set, which a meter or permits in flight do not use"
	case c.Plan.Kernel == kernel.Distinct && ((r.Used == 0) != (r.Tick == 0) || (r.Used == 0) != (r.Wait == 0)):
		return "Tick and Wait must be set if there are distinct values, and otherwise 0"
	case c.Plan.Kernel == kernel.Lock && (r.Wait != 0 || r.Tick > r.Prev || (r.Used == 0) != (r.Tick == 0)):
		return "Wait must be 0, and a penalty must not be forgotten before its end"
	case c.Plan.Kernel == kernel.Window && r.Wait != 0, c.Plan.Kernel.Log() && r.Prev != 0:
		return "a field is set that the kernel does not use"
	case c.Plan.Kernel.Log() && r.Used == 0 && (r.Tick != 0 || r.Wait != 0):
		return "Tick or Wait of an empty log is set"
	}
	return ""
}

// equal reports whether two receipts are the same. It does not matter whether a receipt comes from a deny cache.
func equal(a, b sluice.Receipt) bool {
	if a.Origin.Degraded() == b.Origin.Degraded() {
		a.Origin = b.Origin
	}
	return a == b
}

// each runs a test for every algorithm, with a plan for the count and period of l.
func each(t *testing.T, l sluice.Limit, test func(t *testing.T, p *sluice.Plan)) {
	for _, a := range sluice.Algorithms() {
		t.Run(a.String(), func(t *testing.T) {
			l.Algorithm, l.Burst = a, 0
			if a <= sluice.GCRA {
				l.Burst = l.Count
			}
			test(t, plan(t, l))
		})
	}
}

func describe(c sluice.Charge) string {
	l := c.Plan.Limit
	s := fmt.Sprintf("%v %v, cost %d", l.Algorithm, l, c.Cost)
	switch c.Plan.Kernel {
	case kernel.Lock:
		s = fmt.Sprintf("penalty %+v, cost %d", c.Plan.Penalty, c.Cost)
	case kernel.Distinct:
		s = fmt.Sprintf("value %d of %v, cost %d", c.Permit, l, c.Cost)
	case kernel.InFlight:
		s = fmt.Sprintf("permit %d of %d in flight, cost %d", c.Permit, c.Plan.Capacity, c.Cost)
	}
	if c.Until != 0 {
		s += fmt.Sprintf(" until %d", c.Until)
	}
	if c.Shadow {
		s += ", shadow"
	}
	if c.Owe {
		s += fmt.Sprintf(", owed, Most %d", c.Plan.Most)
	}
	return s
}
