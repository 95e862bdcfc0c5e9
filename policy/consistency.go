package policy

import (
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/spelling"
)

// beStrict says how to mend a rule that has to ask the store each time.
const beStrict = "write \"consistency: strict\""

var consistencyNames = []string{sluice.Strict.String(), sluice.Leased.String(), sluice.Synced.String()}

// consistency compiles that of a rule, of which all but the limits is there. It is Strict if it is
// wrong.
func (c *compiler) consistency(in *Rule, r *rule) sluice.Consistency {
	how := sluice.Consistency(c.choice("consistency", in.Consistency, consistencyNames))
	if how == sluice.Strict {
		return how
	}
	switch {
	case in.InFlight != 0:
		c.fail("consistency", beStrict, "a rule with in_flight is counted strictly: a place is taken by one request only")
	case !in.Share.isZero():
		c.fail("consistency", beStrict, "a share is counted strictly: what tenants are given follows from what all of them have used")
	case r.lock != nil:
		c.fail("consistency", beStrict, "a rule with a penalty is counted strictly: whoever exceeds it is to be refused everywhere at once")
	case r.counts != nil:
		c.fail("consistency", beStrict, "a rule with a count is counted strictly: what does not count is given back where it was taken")
	case r.cost.isTold():
		c.fail("consistency", beStrict, "a rule whose cost the response tells is counted strictly: the difference is charged where the estimate was")
	case !leasable[r.algorithm]:
		var use []string
		for _, a := range sluice.Algorithms() {
			if leasable[a] {
				use = append(use, a.String())
			}
		}
		c.fail("consistency", "use "+spelling.OneOf(use), "a %s cannot be %s: the store has to be asked each time", r.algorithm, how)
	default:
		return how
	}
	return sluice.Strict
}

// leasable are the algorithms that can be counted without asking the store each time.
var leasable = func() map[sluice.Algorithm]bool {
	all := map[sluice.Algorithm]bool{}
	for _, a := range sluice.Algorithms() {
		p, err := sluice.NewPlan(sluice.Limit{Count: 1, Period: time.Second, Algorithm: a})
		all[a] = err == nil && p.Leasable() == nil
	}
	return all
}()

// checkLeasable complains about a limit that a rule counts strictly only.
func (c *compiler) checkLeasable(field string, plan *sluice.Plan, r *rule) {
	if r.consistency == sluice.Strict || plan.Leasable() == nil {
		return
	}
	c.fail(field, "use a period such as 30d, or "+beStrict, "the limit %v is by the calendar, and cannot be %s: the store has to be asked each time", plan.Limit, r.consistency)
}

// CountedApart is a rule whose instances do not ask the store each time.
type CountedApart struct {
	Rule        string
	Consistency sluice.Consistency
	Plans       []*sluice.Plan // its limits and those of its tiers, one of each kind
}

// CountedApart tells of every rule that is not strict, in the order of the document.
func (p *Policy) CountedApart() (all []CountedApart) {
	for i := range p.rules {
		if r := &p.rules[i]; r.consistency != sluice.Strict {
			all = append(all, CountedApart{r.name, r.consistency, r.plans()})
		}
	}
	return all
}
