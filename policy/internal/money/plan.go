// Package money has the arithmetic of costs in USD: prices of models, and limits that count micro-USD.
//
// The costs of a rule with cost.usd are in micro-USD. A limit with numbers that would not be exact in micro-USD counts
// in larger units (Limit.Money). A cost is rounded up to whole units when it is charged. The final cost, which
// settles the charge, is rounded up as well, so that the difference is a whole number of units. Limits with
// different units have different fingerprints, so if the unit of a limit changes, its counts start from zero.
package money

import (
	"math"

	"github.com/sluicehq/sluice"
)

// Coarsest is the largest unit of a limit in USD, in micro-USD: a cent. With larger units, many requests would cost
// less than the rounding adds.
const Coarsest = 10_000

// NewPlan returns the plan of a limit. A limit in USD gets the smallest unit with which the plan can represent a
// debt as large as the limit, or, if no unit can, the smallest with which the limit compiles. The amounts of the
// limit are rounded down to whole units.
func NewPlan(l sluice.Limit) (*sluice.Plan, error) {
	plan, err := sluice.NewPlan(l)
	if l.Money == 0 || plan != nil && roomForDebt(plan) {
		return plan, err
	}
	for l.Money < Coarsest && l.Count >= 10 && (l.Burst == 0 || l.Burst >= 10) {
		l.Count, l.Burst, l.Money = l.Count/10, l.Burst/10, l.Money*10
		coarser, wrong := sluice.NewPlan(l)
		switch {
		case wrong != nil:
		case roomForDebt(coarser):
			return coarser, nil
		case plan == nil:
			plan, err = coarser, nil
		}
	}
	return plan, err
}

// roomForDebt reports whether a state of the plan can represent twice the plan's capacity.
func roomForDebt(p *sluice.Plan) bool {
	_, err := p.WithMost(2 * p.Capacity)
	return err == nil
}

// Units returns a cost in units of a limit. For a limit in USD, the cost is in micro-USD and is rounded up. A
// negative cost gives back as many units as the positive cost takes.
func Units(cost int64, p *sluice.Plan) int64 {
	unit := p.Limit.Money
	if unit <= 1 {
		return cost
	}
	units := cost / unit
	switch rest := cost % unit; {
	case rest > 0:
		units++
	case rest < 0:
		units--
	}
	return units
}

// Refund converts a negative cost, which gives back an amount, to units of a limit. For a limit in USD, the amount is
// rounded down.
func Refund(cost int64, p *sluice.Plan) int64 {
	if p.Limit.Money <= 1 || cost == sluice.All {
		return cost
	}
	return cost / p.Limit.Money
}

// Most returns the largest count of two significant digits, from 10 to l.Count, with which a limit in USD compiles, or
// 0 if none of them compiles.
func Most(l sluice.Limit) int64 {
	compiles := func(count int64) bool {
		l := l
		l.Count, l.Burst = count, min(count, l.Burst)
		_, err := NewPlan(l)
		return err == nil
	}
	for scale := int64(math.Pow10(17)); scale >= 1; scale /= 10 {
		for n := int64(99); n >= 10; n-- {
			if count := n * scale; count/scale == n && count <= l.Count && compiles(count) {
				return count
			}
		}
	}
	return 0
}
