package telemetry

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/sluicehq/sluice/policy"
)

// Tier has the counts of the customers of one tier, whatever rules denied their requests. A customer is a value of
// the key part that tiers.subject names in the policy, such as an API key. If a denied request does not have that part,
// the customer is the subject of the rule that denied it.
type Tier struct {
	Name string // empty for requests that have neither a customer nor a tier; "*other" for tiers that the policy lacks
	// Refused is the number of customers with denials, and Asked the number of customers with requests.
	Refused, Asked [Windows]uint64
	// Refusals has the customers with the most denied requests, and Traffic those with the most requests. Denials by
	// a block, or by a rule in shadow mode, do not count. Traffic has only customers that a request names.
	Refusals, Traffic [Windows]Top
}

// The customers of a tier are kept like the subjects of a rule, under a name that no rule has.
const (
	tierPrefix = "*tier:"
	otherTiers = "*other" // tiers that are not in the policy
)

// tierRules returns these names, by the tiers of a policy.
func tierRules(tiers []string) map[string]string {
	if len(tiers) == 0 {
		return nil
	}
	all := make(map[string]string, len(tiers)+2)
	for _, name := range append(slices.Clip(tiers), otherTiers, "") {
		all[name] = tierPrefix + name
	}
	return all
}

// noteCustomer counts a request for its customer. The time is in Unix nanoseconds.
func (s *subjects) noteCustomer(o *policy.Observation, t *table, at int64) {
	d := &o.Decision
	tier, customer, known := o.Tier()
	if !known || d.Blocked != "" {
		return
	}
	n := note{at: at / 1e6, refused: !d.Allowed && d.Missing == ""}
	rule := t.tiers[tier]
	if rule == "" {
		rule = t.tiers[otherTiers]
	}
	sent := ""
	if n.refused {
		for i := range d.Results {
			if r := &d.Results[i]; !r.Allowed && !r.Shadow {
				n.limit = limitOf(r.Plan)
				if customer == "" {
					customer, sent, n.refusedOnly = o.Key(i), o.Sent(i), true
				}
				break
			}
		}
	}
	if customer != "" {
		s.add(rule, customer, sent, &n)
	}
}

// tiers returns the tiers of a policy with counts, sorted by name.
func (f fleetSubjects) tiers(t *table, p *policy.Policy, at time.Time) (all []Tier) {
	shown := func(key, sent string) (string, string) {
		if !strings.Contains(key, "/") {
			return p.TierCustomer(key)
		}
		return key, p.ShownSent(key, sent)
	}
	for _, name := range slices.Sorted(maps.Keys(t.tiers)) {
		known := f[t.tiers[name]]
		if known == nil {
			continue
		}
		tier := Tier{Name: name}
		for w := range Window(Windows) {
			tier.Refused[w], tier.Refusals[w] = known.top(refusals, w, shown, at)
			tier.Asked[w], tier.Traffic[w] = known.top(traffic, w, shown, at)
		}
		all = append(all, tier)
	}
	return all
}
