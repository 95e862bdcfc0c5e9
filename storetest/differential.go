package storetest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/kernel"
)

// Differential makes the same random history in two stores; the parameter steps is the number of its Takes. It
// fails at the first receipt that differs between the stores, and prints the history of that receipt's key. The
// same seed gives the same history. The history has Takes of up to eight limits with all algorithms, refunds,
// shadows, owed costs and peeks, clocks that step and jump both ways, periods from a microsecond to thirty days,
// calendar months, penalties, permits in flight, distinct values, refunds that come too late, and limits that change
// while they are in use. A store may forget a state that has drained. If the clock then steps back, Differential accepts
// that the state is empty in one store and unchanged in the other. Both stores must be fresh. With 10,000 steps or
// more, Differential also fails if one of these things does not occur often enough in the history.
func Differential(t testing.TB, a, b TimedStore, steps int, seed uint64) {
	t.Helper()
	h := newHistory(seed)
	var seen coverage
	var past []step // the steps of the present scene
	gone := forgotten{a: a, b: b}
	for n := range steps {
		if n%stepsPerScene == 0 {
			h.newScene()
			past = past[:0]
			gone.keys = map[stateID]*drain{}
		}
		s := h.next()
		gone.agree(t, s)
		ra, rb := spoilt(len(s.charges)), spoilt(len(s.charges))
		if err := a.TakeAt(t.Context(), s.now, s.charges, ra); err != nil {
			t.Fatalf("seed %d, step %d: first store: %v", seed, n, err)
		}
		if err := b.TakeAt(t.Context(), s.now, s.charges, rb); err != nil {
			t.Fatalf("seed %d, step %d: second store: %v", seed, n, err)
		}
		s.receipts = ra
		past = append(past, s)
		for i := range ra {
			if !equal(ra[i], rb[i]) {
				t.Fatalf("seed %d, step %d, charge %d of %d: the receipts differ\n first %+v\nsecond %+v\nthe history of its key, with the receipts of the first store:\n%s",
					seed, n, i+1, len(ra), ra[i], rb[i], replay(past, s.charges[i]))
			}
		}
		h.learn(s)
		gone.learn(s)
		seen.add(s)
	}
	if steps >= 10_000 {
		seen.check(t)
	}
}

// step is one Take and its receipts.
type step struct {
	now      int64
	charges  []sluice.Charge
	receipts []sluice.Receipt
}

// replay returns a text that lists the past Takes with a charge of the same state as the given charge.
func replay(past []step, of sluice.Charge) string {
	var b strings.Builder
	for _, s := range past {
		i := slices.IndexFunc(s.charges, func(c sluice.Charge) bool {
			return c.Key == of.Key && c.Plan.Fingerprint == of.Plan.Fingerprint
		})
		if i < 0 {
			continue
		}
		outcome := "committed"
		if !s.receipts[i].Fits && !s.charges[i].Owe || !sluice.Admitted(s.charges, s.receipts) {
			outcome = "not committed"
		}
		fmt.Fprintf(&b, "now %d: %s: %+v, %s\n", s.now, describe(s.charges[i]), s.receipts[i], outcome)
	}
	return b.String()
}

// coverage counts the kinds of charges and results in a history.
type coverage struct {
	takes, refused, mixed, stepsBack   int
	shadows, refunds, peeks            int
	coarse, coarseUnfit                int    // logs with a Count above FineLogCount
	months, monthsUnfit                int    // windows of calendar months
	charged, unfit                     [7]int // by algorithm
	locks, locked, offences            int
	permits, permitsUnfit, permitsBack int
	values, valuesUnfit, valuesAgain   int // distinct values
	late                               int // refunds that come too late
	owed, owedUnfit, cut, above        int // owed costs; levels and counts above the capacity
	latest                             int64
}

func (v *coverage) add(s step) {
	v.takes++
	if s.now < v.latest {
		v.stepsBack++
	}
	v.latest = s.now
	fit := false
	for i, c := range s.charges {
		if inTime(c, s.now).Cost != c.Cost {
			v.late++
		}
		switch c.Plan.Kernel {
		case kernel.Lock:
			v.addLock(s, i)
			continue
		case kernel.InFlight:
			v.addPermit(c, s.receipts[i])
			continue
		case kernel.Distinct:
			v.addValue(c, s.receipts[i])
			continue
		}
		if c.Owe {
			v.owed++
			if !s.receipts[i].Fits {
				v.owedUnfit++
			}
			if s.receipts[i].Cut > 0 {
				v.cut++
			}
		}
		if s.receipts[i].Used > c.Plan.Level(c.Plan.Capacity) {
			v.above++
		}
		a := c.Plan.Limit.Algorithm
		v.charged[a]++
		if a == sluice.SlidingWindowLog && c.Plan.Capacity > kernel.FineLogCount {
			v.coarse++
			if !s.receipts[i].Fits {
				v.coarseUnfit++
			}
		}
		if c.Plan.Limit.MonthDay > 0 {
			v.months++
			if !s.receipts[i].Fits {
				v.monthsUnfit++
			}
		}
		switch {
		case !s.receipts[i].Fits:
			v.unfit[a]++
			if c.Shadow {
				v.shadows++
			}
		case c.Cost > 0:
			fit = true
		case c.Cost == 0:
			v.peeks++
		default:
			v.refunds++
		}
	}
	if !sluice.Admitted(s.charges, s.receipts) {
		v.refused++
		if fit {
			v.mixed++
		}
	}
}

// addLock counts a charge of a penalty, and an offence if the charge has just started the penalty.
func (v *coverage) addLock(s step, i int) {
	r := s.receipts[i]
	v.locks++
	switch {
	case r.Fits:
	case exceeded(s.charges[:i], s.receipts, s.charges[i].Key) && r.Tick-r.Now == newTerms(s.charges[i].Plan).penaltyOf(r.Used):
		v.offences++
	default:
		v.locked++
	}
}

// addPermit counts a charge of a permit in flight.
func (v *coverage) addPermit(c sluice.Charge, r sluice.Receipt) {
	v.permits++
	switch {
	case !r.Fits:
		v.permitsUnfit++
	case c.Cost < 0:
		v.permitsBack++
	}
}

// addValue counts a charge of a distinct value.
func (v *coverage) addValue(c sluice.Charge, r sluice.Receipt) {
	v.values++
	switch {
	case !r.Fits:
		v.valuesUnfit++
	case c.Cost == 1 && r.Prev > 0:
		v.valuesAgain++
	}
}

// check fails if something does not occur often enough, or occurs too often, in the history.
func (v *coverage) check(t testing.TB) {
	t.Helper()
	share := func(what string, n, of int, least, most float64) {
		if share := float64(n) / float64(of); share < least || share > most {
			t.Errorf("premise: %s: %d of %d, want a fraction between %v and %v", what, n, of, least, most)
		}
	}
	charges := 0
	for a, n := range v.charged {
		charges += n
		share(sluice.Algorithm(a).String()+" refused", v.unfit[a], n, 0.05, 0.7)
	}
	for a, n := range v.charged {
		share(sluice.Algorithm(a).String(), n, charges, 0.1, 0.25)
	}
	share("logs that do not keep single units", v.coarse, v.charged[sluice.SlidingWindowLog], 0.1, 0.8)
	share("logs that do not keep single units, denied", v.coarseUnfit, v.coarse, 0.04, 0.7)
	share("months of the calendar", v.months, v.charged[sluice.FixedWindow], 0.1, 0.4)
	share("months of the calendar, denied", v.monthsUnfit, v.months, 0.05, 0.7)
	share("takes denied", v.refused, v.takes, 0.2, 0.8)
	share("takes denied though a charge fits", v.mixed, v.takes, 0.1, 0.6)
	share("clock stepped back", v.stepsBack, v.takes, 0.03, 0.2)
	share("shadows that do not fit", v.shadows, charges, 0.01, 0.2)
	share("locks", v.locks, v.takes, 0.1, 1)
	share("locks in force", v.locked, v.locks, 0.05, 0.7)
	share("offences", v.offences, v.locks, 0.02, 0.4)
	share("permits", v.permits, v.takes, 0.1, 0.6)
	share("permits denied", v.permitsUnfit, v.permits, 0.05, 0.6)
	share("permits given back", v.permitsBack, v.permits, 0.1, 0.4)
	share("distinct values", v.values, v.takes, 0.05, 0.4)
	share("distinct values denied", v.valuesUnfit, v.values, 0.05, 0.6)
	share("distinct values used again", v.valuesAgain, v.values, 0.05, 0.6)
	share("refunds that come too late", v.late, charges, 0.01, 0.1)
	share("owed", v.owed, charges, 0.03, 0.2)
	share("owed costs that do not fit", v.owedUnfit, v.owed, 0.1, 0.7)
	share("cut", v.cut, v.owedUnfit, 0.1, 0.9)
	share("levels and counts above the capacity", v.above, charges, 0.03, 0.4)
	share("peeks", v.peeks, charges, 0.03, 0.2)
	share("refunds", v.refunds, charges, 0.05, 0.3)
}
