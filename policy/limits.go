package policy

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/printable"
	"github.com/sluicehq/sluice/internal/spelling"
	"github.com/sluicehq/sluice/kernel"
	"github.com/sluicehq/sluice/policy/internal/money"
)

// Limits are the texts of limits that apply together. Each is a text for [sluice.ParseLimit], or the digits of a
// number of permits in flight. In JSON and YAML, a single limit is a text or a number, and several are a list.
type Limits []string

func (l Limits) MarshalJSON() ([]byte, error) {
	if len(l) == 1 {
		return json.Marshal(l[0])
	}
	return json.Marshal([]string(l))
}

func (l *Limits) UnmarshalJSON(data []byte) error {
	var one string
	var places json.Number
	switch {
	case json.Unmarshal(data, &one) == nil:
		*l = Limits{one}
		return nil
	case json.Unmarshal(data, &places) == nil && places != "":
		*l = Limits{places.String()}
		return nil
	}
	if json.Unmarshal(data, (*[]string)(l)) != nil {
		return errors.New(`policy: limits are a text such as "100/minute", or a list of such texts`)
	}
	return nil
}

// LimitTexts returns the limits of the rule: from Limit, Limits, Share or Distinct, or the digits of InFlight.
func (r *Rule) LimitTexts() Limits {
	switch {
	case r.Share.Of != "":
		return Limits{r.Share.Of}
	case r.Distinct.Limit != "":
		return Limits{r.Distinct.Limit}
	case r.InFlight.Auto:
		return Limits{r.InFlight.String()}
	}
	return writtenLimits(r.Limit, r.Limits, r.InFlight.Most)
}

// LimitTexts returns the limits of the override, or the digits of InFlight.
func (o *Override) LimitTexts() Limits { return writtenLimits(o.Limit, o.Limits, o.InFlight) }

// SetLimits sets Limit, Limits or InFlight of an override without a limit. It is the reverse of LimitTexts.
func (o *Override) SetLimits(texts Limits) {
	if len(texts) != 1 {
		o.Limits = texts
	} else if n, err := strconv.ParseInt(texts[0], 10, 64); err == nil {
		o.InFlight = n
	} else {
		o.Limit = texts[0]
	}
}

func writtenLimits(one string, several []string, inFlight int64) Limits {
	switch {
	case one != "":
		return Limits{one}
	case inFlight != 0:
		return Limits{strconv.FormatInt(inFlight, 10)}
	}
	return several
}

// maxLimits is the maximum number of limits of a rule. Each limit adds a count for every key.
const maxLimits = 8

// limit is one of the limits that a rule charges together.
type limit struct {
	plan *sluice.Plan
	name string // see Result.Name
}

// limitsKey identifies compiled limits: a rule and the texts of the limits.
type limitsKey struct {
	rule  int
	texts string
}

// ownLimits compiles the limits of a rule or an override: Limit or Limits, but not both.
func (c *compiler) ownLimits(one string, several []string, r *rule) []limit {
	if one != "" && len(several) > 0 {
		c.fail("limit", "write all of them under \"limits\"", "there are both limit and limits")
		return nil
	}
	if one != "" {
		return c.limits("limit", []string{one}, r)
	}
	return c.limits("limits", several, r)
}

// limits compiles limits of rule r that apply together. It returns nil if any of them is invalid.
func (c *compiler) limits(field string, texts []string, r *rule) []limit {
	key := limitsKey{r.index, texts[0]}
	if len(texts) > 1 {
		key.texts = strings.Join(texts, ", ")
	}
	if known := c.limitSets[key]; known != nil {
		return known
	}
	if len(texts) > maxLimits {
		c.fail(field, "remove those that hardly ever deny", "there are %d limits, the maximum is %d", len(texts), maxLimits)
		return nil
	}
	before := len(c.problems)
	all, good := make([]limit, 0, len(texts)), make([]string, 0, len(texts))
	for i, text := range texts {
		at := field
		if len(texts) > 1 {
			at = fmt.Sprintf("%s[%d]", field, i)
		}
		if plan := c.plan(at, c.limit(at, text), r); plan != nil {
			good = append(good, text)
			c.checkApart(at, good, all, plan)
			all = append(all, limit{plan: plan})
		}
	}
	if len(c.problems) > before {
		return nil
	}
	nameLimits(r.name, all)
	if r.most != nil { // the rule is compiled, so these are the limits of an override
		c.keepIn(all, r)
	}
	c.limitSets[key] = all
	return all
}

// checkApart complains about a limit that shares its count with an earlier limit of the rule.
func (c *compiler) checkApart(field string, texts []string, before []limit, plan *sluice.Plan) {
	i := slices.IndexFunc(before, func(l limit) bool { return countAlike(l.plan, plan) })
	if i < 0 {
		return
	}
	first, second := texts[i], texts[len(before)]
	what, idle := "window", second
	if plan.Kernel == kernel.Meter {
		what = "rate"
	}
	if other := before[i].plan; plan.Limit.Value(plan.Capacity) < other.Limit.Value(other.Capacity) {
		idle = first
	}
	c.fail(field, "leave out "+spelling.Quote(idle), "%s and %s have the same %s, so one of them never denies",
		spelling.Quote(first), spelling.Quote(second), what)
}

// countAlike reports whether two limits of a rule count the same requests in the same way, perhaps in different
// units.
func countAlike(a, b *sluice.Plan) bool {
	if a.Limit.Money > b.Limit.Money {
		a, b = b, a
	}
	if l, by := a.Limit, b.Limit.Money; l.Money < by && l.Count*l.Money >= by {
		l.Count, l.Burst, l.Money = l.Count*l.Money/by, l.Burst*l.Money/by, by
		if coarser, err := sluice.NewPlan(l); err == nil {
			a = coarser
		}
	}
	return a.Fingerprint == b.Fingerprint
}

// nameLimits names limits that apply together: see LimitNames.
func nameLimits(rule string, limits []limit) {
	plans := make([]*sluice.Plan, len(limits))
	for i := range limits {
		plans[i] = limits[i].plan
	}
	for i, name := range LimitNames(rule, plans) {
		limits[i].name = name
	}
}

// LimitPlan returns the plan of a limit of a rule with the given algorithm. It returns nil if the text is invalid,
// which never happens in a [Document] that compiles. A limit by the month is a fixed window, whatever the
// algorithm.
func LimitPlan(text, algorithm string) *sluice.Plan {
	l, err := sluice.ParseLimit(text)
	if err != nil {
		return nil
	}
	if algorithm != "" && l.MonthDay == 0 {
		if l.Algorithm, err = sluice.ParseAlgorithm(algorithm); err != nil {
			return nil
		}
	}
	p, err := money.NewPlan(l)
	if err != nil {
		return nil
	}
	return p
}

// LimitNames returns the names under which clients see the limits of a rule or limiter called name. Several limits
// get the name and their period, as in "api-1s", "api-1h" and "api-month"; the second limit of the same period gets
// "-2". A single limit gets "", which stands for name itself.
func LimitNames(name string, plans []*sluice.Plan) []string {
	names := make([]string, len(plans))
	if len(plans) < 2 {
		return names
	}
	for i, p := range plans {
		period := "month"
		if p.Limit.MonthDay == 0 {
			period = shortPeriod(p.Limit.Period)
		}
		base := name + "-" + period
		names[i] = base
		for n := 2; slices.Contains(names[:i], names[i]); n++ {
			names[i] = base + "-" + strconv.Itoa(n)
		}
	}
	return names
}

// shortPeriod returns a period without units that are zero, such as "1d", "1h30m" or "250ms".
func shortPeriod(d time.Duration) string {
	const day = 24 * time.Hour
	if d%day == 0 {
		return strconv.FormatInt(int64(d/day), 10) + "d"
	}
	return strings.Replace(printable.Duration(d), "µ", "u", 1)
}

// checkShownNames complains about limits that clients would see under the name of another rule.
func (c *compiler) checkShownNames(field string, limits []limit) {
	for _, l := range limits {
		if _, taken := c.names[l.name]; taken && l.name != "" {
			c.fail(field, "give one of the two rules another name", "responses call one of its limits %q, which is the name of another rule", l.name)
		}
	}
}

// checkAllShownNames is checkShownNames for the rules of a policy.
func (c *compiler) checkAllShownNames(p *Policy) {
	for i := range p.rules {
		r := &p.rules[i]
		c.item, c.rule = i, r.name
		c.checkShownNames("limits", r.own.limits)
		for _, t := range r.tiers {
			c.checkShownNames(fmt.Sprintf("tiers[%q]", t.tier), t.limits)
		}
	}
}

// limitTexts returns limits as people write them, with their algorithm.
func limitTexts(limits []limit) string {
	all := make([]string, len(limits))
	for i, l := range limits {
		all[i] = limitText(l.plan)
	}
	return strings.Join(all, ", ")
}

// without returns the limits of kinds that do not occur in others.
func without(limits, others []limit) []limit {
	return slices.DeleteFunc(slices.Clone(limits), func(l limit) bool {
		return slices.ContainsFunc(others, func(o limit) bool { return o.plan.Fingerprint == l.plan.Fingerprint })
	})
}

// severalLimits returns the limits in a text with several, separated by commas. It returns "" for any other text.
func severalLimits(text string) string {
	all := strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(",;&+", r) })
	if len(all) < 2 {
		return ""
	}
	for i := range all {
		all[i] = strings.TrimSpace(all[i])
		if _, err := sluice.ParseLimit(all[i]); err != nil {
			return ""
		}
	}
	return strings.Join(all, ", ")
}

// unlimited are words that people write to mean no limit.
var unlimited = strings.Fields("unlimited none off no never inf infinite infinity .inf false disabled -1")

// limit reads the text of a limit. It remembers the result, because many overrides have the same text.
func (c *compiler) limit(field, text string) sluice.Limit {
	l, known := c.texts[text]
	if known {
		return l
	}
	l, err := sluice.ParseLimit(text)
	if err != nil {
		c.noLimit(field, text, err)
		return sluice.Limit{}
	}
	c.texts[text] = l
	return l
}

// noLimit complains about a text that is not a limit.
func (c *compiler) noLimit(field, text string, err error) {
	several := severalLimits(text)
	switch {
	case slices.Contains(unlimited, strings.ToLower(text)):
		c.fail(field, "write the number of requests allowed, as in \"10000/minute\"", "%s is not a limit", spelling.Quote(text))
	case several != "":
		c.fail(field, fmt.Sprintf("write \"limits: [%s]\"", several), "%s is more than one limit", spelling.Quote(text))
	default:
		c.fail(field, "", "%v", err)
	}
}

// plan compiles a limit of rule r. It returns nil if the limit is invalid.
func (c *compiler) plan(field string, l sluice.Limit, r *rule) *sluice.Plan {
	if l.Count == 0 {
		return nil // this has been reported
	}
	if r.distinct {
		return c.distinctPlan(field, l, r)
	}
	if l.MonthDay == 0 || !r.calendar {
		l.Algorithm = r.algorithm
	}
	if !c.checkMoney(field, l, r) {
		return nil
	}
	plan, known := c.plans[l]
	if !known {
		var err error
		if plan, err = money.NewPlan(l); err != nil {
			if l.Money == 0 || !c.tooMuch(field, l) {
				c.fail(field, "", "%v", err)
			}
			return nil
		}
		c.plans[l] = plan
	}
	c.checkLeasable(field, plan, r)
	if cost := money.Units(r.cost.fixed, plan); cost > plan.Capacity {
		c.fail(field, "lower the cost or raise the limit or its burst", "a request costs %s, and the limit %v never allows more than %s at once",
			plan.Limit.Amount(cost), l, plan.Limit.Amount(plan.Capacity))
	}
	return plan
}

// counted is a limit that may apply to a subject, with its origin.
type counted struct {
	limit
	from, source string
}

// sets returns the sets of limits that apply together: the rule's own limits, and the limits of each tier.
func (r *rule) sets() []*resolved {
	sets := []*resolved{&r.own}
	for i := range r.tiers {
		sets = append(sets, &r.tiers[i].resolved)
	}
	return sets
}

// limits returns the limits of the rule and of its tiers, one of each kind.
func (r *rule) limits() (all []counted) {
	for _, set := range r.sets() {
		all = append(all, set.counted()...)
	}
	return distinct(all)
}

func (r *resolved) counted() (all []counted) {
	for _, l := range r.limits {
		all = append(all, counted{l, r.from, r.source})
	}
	return all
}

// distinct returns the first limit of each kind. Limits of one kind share their count.
func distinct(limits []counted) (all []counted) {
	seen := make(map[uint64]bool)
	for _, l := range limits {
		if !seen[l.plan.Fingerprint] {
			seen[l.plan.Fingerprint] = true
			all = append(all, l)
		}
	}
	return all
}

// plans returns the plans of r.limits().
func (r *rule) plans() []*sluice.Plan {
	var all []*sluice.Plan
	for _, l := range r.limits() {
		all = append(all, l.plan)
	}
	return all
}

// RulePlan is a limit of a rule.
type RulePlan struct {
	Rule string
	Plan *sluice.Plan
}

// Plans returns the limits of all rules and their tiers, in the order of the document. Limits of one rule that
// share their counts are listed once. Limits of overrides are left out.
func (p *Policy) Plans() (all []RulePlan) {
	for i := range p.rules {
		if r := &p.rules[i]; r.charges() {
			for _, plan := range r.plans() {
				all = append(all, RulePlan{r.name, plan})
			}
		}
	}
	return all
}
