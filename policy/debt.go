package policy

import (
	"math"
	"math/bits"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/kernel"
	"github.com/sluicehq/sluice/policy/internal/money"
)

// If no rule bounds the number of requests of a key under way, the key can owe at most overruns times the largest
// cost.
const overruns = 64

// keep sets how many units the states of each limit can keep: the units of the largest limit that counts in the same
// state, and the largest debt of a key. So a request under a smaller limit does not cut off units that were taken
// under a larger one.
func (c *compiler) keep(p *Policy) {
	c.list = "rules"
	for i := range p.rules {
		r := &p.rules[i]
		if !r.charges() || r.inFlight {
			continue
		}
		c.item, c.rule = i, r.name
		r.debt = p.debtOf(r)
		r.most = make(map[uint64]int64)
		for _, l := range r.allLimits() {
			r.most[l.plan.Fingerprint] = max(r.most[l.plan.Fingerprint], l.plan.Capacity)
		}
		for _, set := range r.sets() {
			c.keepIn(set.limits, r)
		}
	}
}

// allLimits returns the rule's own limits and the limits of its tiers.
func (r *rule) allLimits() (all []limit) {
	for _, set := range r.sets() {
		all = append(all, set.limits...)
	}
	return all
}

// largest returns the largest cost that a limit of the rule lets pass.
func (r *rule) largest() (n int64) {
	for _, l := range r.allLimits() {
		n = max(n, l.plan.Limit.Value(l.plan.Capacity))
	}
	return n
}

// keepIn is keep for the limits of a rule, a tier or an override.
func (c *compiler) keepIn(limits []limit, r *rule) {
	for i := range limits {
		plan := limits[i].plan
		if !plan.Fixed && !plan.Kernel.Permits() {
			limits[i].plan = c.withDebt(plan, max(r.most[plan.Fingerprint], plan.Capacity), r)
		}
	}
}

// withDebt returns the plan of a limit with room in its states for capacity units and, on top of them, for the debt of
// the rule, or for as much of the debt as can be counted exactly.
func (c *compiler) withDebt(plan *sluice.Plan, capacity int64, r *rule) *sluice.Plan {
	most := money.Units(r.debt, plan)
	key := keptKey{plan, capacity, most}
	if known := c.kept[key]; known != nil {
		return known
	}
	kept, err := plan.WithMost(capacity)
	if err != nil { // impossible: the limit was compiled before
		c.fail("", "use rounder numbers", "%v", err)
		return plan
	}
	fits := func(debt int64) bool {
		if debt > math.MaxInt64-capacity {
			return false
		}
		more, err := plan.WithMost(capacity + debt)
		if err == nil {
			kept = more
		}
		return err == nil
	}
	if most > 0 && !fits(most) {
		// Find the largest debt that fits, bit by bit from the highest.
		debt := int64(0)
		for step := int64(1) << (bits.Len64(uint64(most)) - 1); step > 0; step /= 2 {
			if debt+step < most && fits(debt+step) {
				debt += step
			}
		}
	}
	c.kept[key] = kept
	return kept
}

// keptKey identifies the plans that withDebt returns.
type keptKey struct {
	plan           *sluice.Plan
	capacity, debt int64
}

// debtOf returns how many units a key of the rule can owe.
func (p *Policy) debtOf(r *rule) int64 {
	if !r.cost.isReported() {
		return 0
	}
	largest := r.cost.max
	if largest == 0 { // without a max, a response can cost a whole limit
		largest = r.largest()
	}
	at := int64(overruns)
	if held := p.atOnce(r); held > 0 {
		at = held
	}
	if hi, lo := bits.Mul64(uint64(at), uint64(largest)); hi == 0 && lo <= math.MaxInt64 {
		return int64(lo)
	}
	return math.MaxInt64
}

// atOnce returns how many requests of a key of the rule can be under way at once, or 0 if no rule with in_flight
// bounds them. Only a rule with the same key that matches at least the same requests bounds them.
func (p *Policy) atOnce(r *rule) (most int64) {
	for i := range p.rules {
		o := &p.rules[i]
		if !o.inFlight || o.neverRefuses() || o.isPartial() || o.missing != r.missing || !sameKey(o, r) || !o.covers(r) {
			continue
		}
		if n := o.largest(); most == 0 || n < most {
			most = n
		}
	}
	return most
}

// Debt is how much a key can owe under a limit of a rule with a cost from the response: see [Engine.Settle].
type Debt struct {
	Rule  string
	Limit sluice.Limit
	// Units is how many units a key can owe. The debt is what a key has used beyond the limit. If several limits share
	// one count, it is what the key has used beyond the largest of them.
	Units int64
	// Largest is the largest cost that is charged, in units of Limit, or 0 if the cost has no max.
	Largest int64
	// AtOnce is how many requests of a key can be under way, or 0 if no rule bounds them.
	AtOnce int64
	// Reserved is the charge before the response for a short request that sets no maximum of its output, and Fit is
	// the number of such requests that fit at once. Both are 0 unless the rule reads the response's body.
	Reserved, Fit int64
	Unit          Unit
	// Unseen reports that reasoning tokens are not charged if the response breaks off before it reports them, for
	// example because the client leaves early: see Cost.Unknown.
	Unseen bool
	// Unlimited reports that the rule denies nothing, because it is a shadow or has "over: mark".
	Unlimited bool
	// Lockout is the longest time for which the requests of a key with the largest debt are denied.
	Lockout time.Duration
}

// Debts returns how much keys can owe under each limit of a rule and of its tiers, for rules with a cost from the
// response, in the order of the document.
func (p *Policy) Debts() (all []Debt) {
	for i := range p.rules {
		r := &p.rules[i]
		if r.debt == 0 {
			continue
		}
		seen := make(map[*sluice.Plan]bool)
		for _, l := range r.allLimits() {
			if seen[l.plan] {
				continue
			}
			seen[l.plan] = true
			reserved, fit := r.reserved(l.plan)
			all = append(all, Debt{
				Rule: r.name, Reserved: reserved, Fit: fit, Unit: r.cost.unit, Limit: l.plan.Limit, Units: l.plan.Most - r.most[l.plan.Fingerprint],
				Largest: money.Units(r.cost.max, l.plan), AtOnce: p.atOnce(r), Unseen: r.hidesReasoning(), Unlimited: r.neverRefuses(), Lockout: lockout(l.plan, money.Units(r.cost.fixed, l.plan)),
			})
		}
	}
	return all
}

// hidesReasoning reports whether a response that breaks off costs only the tokens that were seen, without hidden
// reasoning.
func (r *rule) hidesReasoning() bool {
	u := r.cost.usage
	return u != nil && u.terms == nil && !u.keepsEstimate && u.estimate.units == 0
}

// reserved returns the charge before the response for a short request that sets no maximum of its output, and how
// many such requests fit into a limit at once.
func (r *rule) reserved(p *sluice.Plan) (units, fit int64) {
	u := r.cost.usage
	if u == nil {
		return 0, 0
	}
	a := reservation{price: u.prices.Of("")}
	if a.cost = u.estimate.units; a.cost == 0 {
		a.cost = u.tokenCost(money.Tokens{Output: u.output(0, a.price)}, a.price)
	}
	units = max(a.within(a.cost, p), 1)
	return units, p.Capacity / units
}

// reservations warns of a limit under which one request under way leaves no room for another.
func (w *warner) reservations(r *rule) {
	if r.cost.usage == nil || r.neverRefuses() {
		return
	}
	for _, l := range r.allLimits() {
		if units, fit := r.reserved(l.plan); fit < 2 {
			w.add(r, "", "lower the estimate (estimate: {output: 500}), or raise the limit or its burst",
				"a request that does not limit its output is charged %s of %v until its response has ended, so no second request fits until then", l.plan.Limit.Amount(units), l.plan.Limit)
		}
	}
}

// debt warns of a limit under which a key cannot owe the cost of a single response.
func (w *warner) debt(r *rule) {
	if r.debt == 0 {
		return
	}
	for _, l := range r.allLimits() {
		largest := money.Units(r.cost.max, l.plan)
		if owed := l.plan.Most - r.most[l.plan.Fingerprint]; owed < largest-money.Units(r.cost.fixed, l.plan) {
			w.add(r, "", "lower the cost's max, or use another algorithm, a smaller burst or a shorter or rounder period",
				"a response may cost %s, but under the limit %v a key can owe at most %s: the rest is not charged",
				l.plan.Limit.Amount(largest), l.plan.Limit, l.plan.Limit.Amount(owed))
		}
	}
}

// lockout returns the longest time for which a cost does not fit after the state has kept as many units as it can.
func lockout(p *sluice.Plan, cost int64) time.Duration {
	begin := int64(0)
	if p.Kernel == kernel.Window {
		_, begin, _ = p.WindowAt(time.Now().UnixMicro())
	}
	if p.Kernel.Log() {
		return time.Duration((p.Span+1)*p.Tick) * time.Microsecond
	}
	r := sluice.Receipt{Receipt: kernel.Receipt{Now: begin, Used: p.Level(p.Most)}}
	if p.Kernel == kernel.Window {
		r.Tick, _, _ = p.WindowAt(begin)
	}
	return p.Decide(min(cost, p.Capacity), r).RetryAfter
}
