package policy

import (
	"math"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/printable"
	"github.com/sluicehq/sluice/internal/spelling"
)

// A rule with cost.usd has its costs in micro-USD, and its limits count in units of so many micro-USD as make their
// numbers exact (Limit.Money). A cost is rounded up to these units where it becomes a charge, and so is the cost
// that settles it: the difference is one of units. Two limits of different units have different fingerprints, so a
// limit that changes its unit starts to count from zero.

// coarsest is the largest unit of a limit in USD, in micro-USD: a cent. Beyond it, what rounding up costs would
// exceed what many requests do.
const coarsest = 10_000

// newPlan returns the plan of a limit. One in USD gets the finest unit with which its numbers are exact, and its
// amounts are rounded down to that. There is room for a debt as large as the limit, if a unit allows for that.
func newPlan(l sluice.Limit) (*sluice.Plan, error) {
	plan, err := sluice.NewPlan(l)
	if l.Money == 0 || plan != nil && roomForDebt(plan) {
		return plan, err
	}
	for l.Money < coarsest && l.Count >= 10 && (l.Burst == 0 || l.Burst >= 10) {
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

// roomForDebt reports whether states of a plan can hold twice its capacity.
func roomForDebt(p *sluice.Plan) bool {
	_, err := p.WithMost(2 * p.Capacity)
	return err == nil
}

// unitsOf returns a cost in units of a limit. For a limit in USD, the cost is in micro-USD and is rounded up. A negative cost gives back as much as the cost takes.
func unitsOf(cost int64, p *sluice.Plan) int64 {
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

// refundOf returns what giving back so much, which is negative, takes of a limit. In USD it is rounded down.
func refundOf(cost int64, p *sluice.Plan) int64 {
	if p.Limit.Money <= 1 || cost == sluice.All {
		return cost
	}
	return cost / p.Limit.Money
}

// checkMoney complains about a limit in USD of a rule that does not count money, and the reverse.
func (c *compiler) checkMoney(field string, l sluice.Limit, r *rule) bool {
	switch inUSD := l.Money > 0; {
	case inUSD && !r.cost.usd:
		c.fail(field, `write "cost: {usd: prices}" in the rule, or leave USD out`, "the limit %v is in USD, and the rule's costs are not", l)
	case !inUSD && r.cost.usd:
		c.fail(field, `write for example "50 USD/day", or give it a rule of its own`, "the limit %v is not in USD, and the rule's costs are", l)
	default:
		return true
	}
	return false
}

// tooMuch complains about a limit in USD that cannot be counted, and says what can. It reports whether that is
// because the amount is too large.
func (c *compiler) tooMuch(field string, l sluice.Limit) bool {
	most := mostOf(l)
	if most == 0 || most >= l.Count {
		return false
	}
	fits := l
	fits.Count, fits.Burst = most, min(most, l.Burst)
	hint := "use at most " + spelling.Quote(fits.String())
	var use []string
	for _, a := range sluice.Algorithms() {
		other := l
		if other.Algorithm = a; a > sluice.GCRA {
			other.Burst = 0
		}
		if _, err := newPlan(other); err == nil && a != sluice.LeakyBucket {
			use = append(use, a.String())
		}
	}
	if len(use) > 0 {
		hint += ", or the algorithm " + spelling.OneOf(use)
	}
	c.fail(field, hint, "a %s cannot count the limit %v exactly, not even in units of %s", l.Algorithm, l, printable.FormatMoney(coarsest))
	return true
}

// mostOf returns about the largest count, with two digits that are not zero, with which a limit in USD compiles, or
// 0 if none does.
func mostOf(l sluice.Limit) int64 {
	compiles := func(count int64) bool {
		l := l
		l.Count, l.Burst = count, min(count, l.Burst)
		_, err := newPlan(l)
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
