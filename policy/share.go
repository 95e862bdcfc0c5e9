package policy

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/spelling"
	"github.com/sluicehq/sluice/policy/internal/fair"
)

// Share divides a limit among tenants. While the limit has room, every tenant gets its demand. Otherwise each
// active tenant gets the smaller of its demand and its allocation by weight, and the unused part of an allocation
// is divided among the others in the same way (max-min fairness). The limit itself is counted as in any rule, and
// is never exceeded.
//
// A tenant is active if it sent a request, allowed or not, within the window. The window is one second or, for a
// limit below 32 units a second, the time in which the limit allows 32 units. Four times in a window, the limit is
// divided among the tenants again, in line with their present demand. A new tenant has its allocation at once.
// Allocations settle within two windows after demand exceeds the limit, or later if the burst is less than a quarter
// of the units that the limit allows in a window. Unused units of an allocation go to the others within half a
// window. A tenant above its allocation cannot use the last part of the burst, the reserve, which is kept for the
// other tenants. The reserve has as many units as the limit allows in a quarter of the window, but at most half of
// the burst. A tenant can save up what it is allocated in a quarter of a window, or one request if that is more.
// RetryAfter and ResetAfter assume that allocations stay as they are.
//
// If requests cost several units, units are divided, and not requests. Processes that share a store divide the limit in
// line with the demand in all of them, if they exchange their demand: see [Engine.Demand]. During an outage, each
// process divides its local allowance, if any, among its own tenants. A limit keeps track of 10,000 tenants at a time.
// Each further tenant has an allocation of its own, like that of a tenant with weight 1, but cannot use the reserve.
// Each value of the rule's Key has a limit of its own to divide. An engine divides at most 1000 such limits, and counts
// further ones without dividing them. A shadow charges the limit only for requests that it would have allowed.
type Share struct {
	// Of is the limit to divide, such as "1000/second", of a token_bucket or gcra. Each value of the rule's Key has
	// a limit of its own.
	Of string `json:"of,omitempty"`
	// By are the key parts that identify the tenant: see Key of a [Rule]. The key of a subject, as in overrides, has
	// the parts of Key, and then the parts of By.
	By []string `json:"by,omitempty"`
	// Weights are the weights of tenants by their tier, from 1 to 1000. Tenants in other tiers have the weight 1.
	Weights map[string]int64 `json:"weights,omitempty"`
}

// isZero reports whether nothing is set.
func (s *Share) isZero() bool { return s.Of == "" && len(s.By) == 0 && len(s.Weights) == 0 }

// sharing is how a rule shares its limit.
type sharing struct {
	owner   int // how many parts of the key identify the limit; the others identify the tenant
	weights map[string]int64
	// ahead and alone are how far a tenant can be ahead of its time, in nanoseconds. ahead is a quarter of the
	// window. alone applies while the limit has enough for all tenants; it is the time in which the burst refills, if
	// that is longer than ahead.
	ahead, alone int64
	most         int64 // the most units of a request
}

// The capacities of the smallest and the largest of turnPlans, in nanoseconds.
const (
	minTurn = 250_000_000
	maxTurn = 1 << 50 // 13 days
)

// sharing compiles the share of a rule. The key of the rule must be complete.
func (c *compiler) sharing(p *Policy, r *Rule, out *rule, owner int) {
	before := len(c.problems)
	c.checkShare(r, out)
	switch {
	case r.Share.Of == "":
		c.fail("share", "write for example \"of: 1000/second\"", "the share has no \"of\"")
	case len(r.Share.By) == 0:
		c.fail("share", "write for example \"by: [header:X-Tenant]\"", "the share has no \"by\", so the tenants are unknown")
	}
	weights := c.weights(p, r)
	if len(c.problems) > before {
		return
	}
	limits := c.limits("share.of", []string{r.Share.Of}, out)
	if limits == nil {
		return
	}
	plan := limits[0].plan
	l := plan.Limit
	if l.MonthDay > 0 {
		c.fail("share.of", "share a limit such as 1000/day", "a limit by the month cannot be shared: what is unused early could all be used late")
		return
	}
	if fair.Window(l.Count, l.Period) > fair.MaxWindow.Microseconds() {
		c.fail("share.of", "use key and limit instead of by and of, so that each tenant has its own limit", "%v is too little to be shared: it must be at least 32 a day", l)
		return
	}
	if fair.Units(l.Count, l.Period) > fair.MaxUnits {
		c.fail("share.of", "lower it", "%v is too much to be shared: it must be at most %d/second", l, fair.MaxUnits)
		return
	}
	fills := float64(l.Burst) / float64(l.Count) * float64(l.Period) // nanoseconds
	if fills > maxTurn/2 {
		c.fail("share.of", "lower the burst", "the burst of %v takes more than 6 days to refill, which is too long to be shared", l)
		return
	}
	out.own = resolved{limits: limits, from: "rule", source: r.Source}
	ahead := fair.Window(l.Count, l.Period) * 1000 / 4
	out.sharing = &sharing{
		owner: owner, weights: weights, most: max(out.cost.fixed, out.cost.max, 1),
		ahead: ahead, alone: max(ahead, int64(fills)),
	}
}

// checkShare complains about settings that have no meaning in a rule that shares its limit.
func (c *compiler) checkShare(r *Rule, out *rule) {
	for _, f := range []struct {
		name string
		set  bool
		hint string
	}{
		{"limit", r.Limit != "", "write it in the share, as \"of\""},
		{"limits", len(r.Limits) > 0, "give each a rule of its own"},
		{"in_flight", r.InFlight != (InFlight{}), "give it a rule of its own"},
		{"tiers", len(r.Tiers) > 0, "give tiers their weights in the share, or a limit in another rule"},
		{"penalty", r.Penalty != Penalty{}, "move it to a rule with a limit for each tenant"},
		{"count", !r.Count.isZero(), "move it to a rule with a limit: a share counts demand"},
		{"cost", out.cost.isReported(), "write the cost of a request, or a request header that contains it"},
	} {
		if f.set {
			c.fail(f.name, f.hint, "there are both share and %s", f.name)
		}
	}
	if a := out.algorithm; a != sluice.TokenBucket && a != sluice.GCRA {
		c.fail("algorithm", "use token_bucket or gcra", "a share cannot use %v: only steady algorithms give every tenant something all the time", a)
	}
}

// weights returns the weights of a share by the canonical names of tiers.
func (c *compiler) weights(p *Policy, r *Rule) map[string]int64 {
	if len(r.Share.Weights) == 0 {
		return nil
	}
	if p.tierFrom == nil && p.tierSubject == nil {
		c.fail("share.weights", "write for example \"tiers: {from: header:X-Plan}\" at the top of the document", "the source of a request's tier is missing")
	}
	all := make(map[string]int64, len(r.Share.Weights))
	for _, name := range sortedKeys(r.Share.Weights) {
		field := fmt.Sprintf("share.weights[%q]", name)
		if !c.checkName(field, "tier", name) {
			continue
		}
		weight := r.Share.Weights[name]
		if weight < 1 || weight > fair.MaxWeight {
			c.fail(field, "write for example 1 for some and 5 for others", "the weight %d of %s must be from 1 to %d", weight, spelling.Quote(name), fair.MaxWeight)
		}
		tier := p.canonicalTier(name)
		if _, twice := all[tier]; twice {
			c.fail(field, "keep one of them", "the tier %s cannot be distinguished from another of the rule", spelling.Quote(name))
		}
		all[tier] = weight
	}
	return all
}

// weightOf returns the weight of the request's tenant.
func (f *sharing) weightOf(s *subjects, in *input) int64 {
	if f.weights == nil {
		return 1
	}
	return f.weight(s.tierName(in))
}

func (f *sharing) weight(tier string) int64 {
	if w := f.weights[tier]; w > 0 {
		return w
	}
	return 1
}

// SharedLimit is a rule with a limit that is divided among tenants.
type SharedLimit struct {
	Rule  string
	Limit sluice.Limit
	By    []string // the key parts that identify a tenant
	// Weights are the weights that tenants can have, the smallest first. They always include the weight of tenants
	// in a tier without a weight.
	Weights []SharedWeight
	// Window is how long a tenant is active after a request, and Settles is the longest time until allocations
	// settle: see [Share]. Settles is 0 if the burst is too small for a bound.
	Window, Settles time.Duration
}

// SharedWeight is a weight in a [SharedLimit].
type SharedWeight struct {
	Weight int64
	Tiers  []string // tiers with this weight, sorted
	Others bool     // tenants in all other tiers, and in no tier, have this weight, too
}

// SharedLimits returns all rules with a limit that is divided among tenants, in the order of the document.
func (p *Policy) SharedLimits() (all []SharedLimit) {
	for i := range p.rules {
		if r := &p.rules[i]; r.sharing != nil {
			all = append(all, r.sharedLimit())
		}
	}
	return all
}

func (r *rule) sharedLimit() SharedLimit {
	l := r.own.limits[0].plan.Limit
	s := SharedLimit{Rule: r.name, Limit: l, By: r.key[r.sharing.owner:].Names(), Weights: r.sharing.byWeight()}
	s.Window = time.Duration(fair.Window(l.Count, l.Period)) * time.Microsecond
	if l.Burst >= settlingBurst(l) {
		s.Settles = 2 * s.Window
	}
	return s
}

// settlingBurst returns the least burst with which allocations settle within two windows.
func settlingBurst(l sluice.Limit) int64 { return fair.Units(l.Count, l.Period) / 4 }

// byWeight returns the weights that tenants can have.
func (f *sharing) byWeight() []SharedWeight {
	tiers := make(map[int64][]string)
	for _, name := range sortedKeys(f.weights) {
		w := f.weights[name]
		tiers[w] = append(tiers[w], name)
	}
	var all []SharedWeight
	for w := int64(1); w <= fair.MaxWeight; w++ {
		if w == 1 || tiers[w] != nil {
			all = append(all, SharedWeight{w, tiers[w], w == 1})
		}
	}
	return all
}

// Whole returns the limit without its burst, as in "1000/second".
func (s *SharedLimit) Whole() string {
	l := s.Limit
	l.Burst = 0
	return l.String()
}

// Part returns how much of the limit a tenant gets, such as "83.3/second". weight is the weight of the tenant, and
// total is the sum of all weights.
func (s *SharedLimit) Part(weight, total int64) string {
	return rateText(float64(s.Limit.Count) * float64(weight) / float64(total) / s.Limit.Period.Seconds())
}

// rateText formats a rate in units a second with three digits, in the shortest period that has at least one unit.
func rateText(rate float64) string {
	in, name := rate, "second"
	for _, longer := range []struct {
		name    string
		seconds float64
	}{{"minute", 60}, {"hour", 3600}, {"day", 86400}} {
		if in >= 0.9995 { // rounds to 1
			break
		}
		in, name = rate*longer.seconds, longer.name
	}
	scale := math.Pow10(max(0, 2-int(math.Floor(math.Log10(in)))))
	return strconv.FormatFloat(math.Round(in*scale)/scale, 'f', -1, 64) + "/" + name
}

// sharing warns of weights that leave some tenants less than one request, and of allocations that settle slowly.
func (w *warner) sharing(r *rule) {
	if r.sharing == nil {
		return
	}
	s := r.sharedLimit()
	units := fair.Units(s.Limit.Count, s.Limit.Period)
	sum := int64(0)
	for _, weight := range s.Weights {
		sum += weight.Weight
	}
	if least := s.Weights[0]; len(s.Weights) > 1 && units*least.Weight < sum {
		w.add(r, "", "use weights that differ less, or raise the limit",
			"if one tenant of each weight is active, the tenant of weight %d gets %s of %v, which is less than one request in %v",
			least.Weight, s.Part(least.Weight, sum), s.Whole(), s.Window)
	}
	if s.Settles == 0 {
		w.add(r, "", fmt.Sprintf("give the limit a burst of %d or more", settlingBurst(s.Limit)),
			"the burst of %d is less than the limit allows in %v, so allocations take longer than %v to settle", s.Limit.Burst, s.Window/4, 2*s.Window)
	}
	w.weights(r)
}

// weights warns of a weight for a tier without subjects, if only the document assigns tiers.
func (w *warner) weights(r *rule) {
	p := w.policy
	if p.tierFrom != nil || len(p.subjects.list) == 0 {
		return
	}
	known := slices.Clone(p.subjects.Values())
	if p.tier != "" && !slices.Contains(known, p.tier) {
		known = append(known, p.tier)
	}
	slices.Sort(known)
	for _, name := range sortedKeys(r.sharing.weights) {
		if !slices.Contains(known, name) {
			w.add(r, "", spelling.Suggest(name, known), "the weight of %s names an unknown tier", spelling.Quote(name))
		}
	}
}
