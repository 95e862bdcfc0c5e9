package policy

import (
	"slices"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/kernel"
)

// Restart is a limit that starts to count from zero because it has changed in kind: what was counted
// under the old one means nothing under the new one. A changed burst, or the count of a window or a
// log, is no such change.
type Restart struct {
	Rule string
	From string // "rule", "tier:pro" or "override", as in a [Result]
	// Was and Is are the limits that have gone and come, such as "100/minute burst 20
	// (token_bucket)", with ", " between several. They may be the same where it is the rule's
	// key that has changed.
	Was, Is string
}

// Restarts returns the limits that start from zero when p takes the place of old, in the order of the
// rules of p: those of rules that both have, by their names. What only one of them has is left out.
func (p *Policy) Restarts(old *Policy) (all []Restart) {
	for i := range p.rules {
		r := &p.rules[i]
		j, known := old.byName[r.name]
		if !known || !r.charges() || !old.rules[j].charges() {
			continue
		}
		all = append(all, p.restarts(r, old, &old.rules[j])...)
	}
	return all
}

func (p *Policy) restarts(r *rule, before *Policy, old *rule) (all []Restart) {
	moved := !sameKey(r, old)
	compare := func(from string, was, is []limit) {
		if !moved {
			was, is = without(was, is), without(is, was)
		}
		if len(was) > 0 && len(is) > 0 {
			all = append(all, Restart{r.name, from, limitTexts(was), limitTexts(is)})
		}
	}
	compare(r.own.from, old.own.limits, r.own.limits)
	for _, name := range sortedKeys(r.tiers) {
		if was := old.tiers[name]; was != nil {
			compare(was.from, was.limits, r.tiers[name].limits)
		}
	}
	if has, had := p.overrides.of(r), before.overrides.of(old); has != nil && had != nil {
		has.Both(had, func(was, is *resolved) { compare(overridden, was.limits, is.limits) })
	}
	return all
}

// sameKey reports whether a request has the same key under both rules.
func sameKey(a, b *rule) bool {
	return slices.Equal(a.together, b.together) &&
		slices.EqualFunc(a.key, b.key, func(p, q part) bool { return p.String() == q.String() })
}

func limitText(p *sluice.Plan) string {
	if p.Kernel == kernel.InFlight {
		return p.String()
	}
	return p.String() + " (" + p.AlgorithmName() + ")"
}
