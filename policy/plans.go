package policy

import "github.com/sluicehq/sluice"

// RulePlan is a limit of a rule.
type RulePlan struct {
	Rule string
	Plan *sluice.Plan
}

// Plans returns the limits of all rules, their own and those of tiers, in the order of the document.
// Limits of one rule that count alike are there once. Those of overrides are left out.
func (p *Policy) Plans() (all []RulePlan) {
	for i := range p.rules {
		if r := &p.rules[i]; !r.exempt && !r.block {
			for _, l := range r.limits() {
				all = append(all, RulePlan{r.name, l.plan})
			}
		}
	}
	return all
}
