package policy

import (
	"maps"
	"slices"

	"github.com/sluicehq/sluice"
)

// Anew is a limit whose counts begin anew because it has changed in kind: what was counted
// under the old one means nothing under the new one. A changed burst, or the count of a window
// or a log, is no such change.
type Anew struct {
	Rule string
	From string // "rule", "tier:pro" or "override", as in a [Result]
	// Was and Is are the limits, such as "100/minute burst 20 (token_bucket)". They are the
	// same where it is the rule's key that has changed.
	Was, Is string
}

// Anew returns what begins anew when p takes the place of old, in the order of the rules
// of p: limits of rules that both have, by their names. What only one of them has is left out.
func (p *Policy) Anew(old *Policy) (all []Anew) {
	for i := range p.rules {
		r := &p.rules[i]
		j := slices.IndexFunc(old.rules, func(o rule) bool { return o.name == r.name })
		if j < 0 || r.exempt || old.rules[j].exempt {
			continue
		}
		all = append(all, r.anew(&old.rules[j])...)
	}
	return all
}

func (r *rule) anew(old *rule) (all []Anew) {
	moved := !sameKey(r, old)
	compare := func(was, is *source) {
		if was.plan != nil && is.plan != nil && (moved || was.plan.Fingerprint != is.plan.Fingerprint) {
			all = append(all, Anew{r.name, is.from, limitText(was.plan), limitText(is.plan)})
		}
	}
	compare(&old.own, &r.own)
	for _, name := range slices.Sorted(maps.Keys(r.tiers)) {
		if was := old.tiers[name]; was != nil {
			compare(was, r.tiers[name])
		}
	}
	for _, o := range r.overrides {
		k := slices.IndexFunc(old.overrides, func(was overrides) bool { return was.exact == o.exact })
		for _, subject := range slices.Sorted(maps.Keys(o.bySubject)) {
			if k < 0 {
				break
			}
			if was := old.overrides[k].bySubject[subject]; was != nil {
				compare(&was.source, &o.bySubject[subject].source)
			}
		}
	}
	return all
}

// sameKey reports whether a request has the same key under both rules.
func sameKey(a, b *rule) bool {
	return slices.Equal(a.together, b.together) &&
		slices.EqualFunc(a.key, b.key, func(p, q part) bool { return p.String() == q.String() })
}

func limitText(p *sluice.Plan) string {
	return p.Limit.String() + " (" + p.Limit.Algorithm.String() + ")"
}
