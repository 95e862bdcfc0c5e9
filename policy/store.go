package policy

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/spelling"
	"github.com/sluicehq/sluice/policy/internal/parts"
	"github.com/sluicehq/sluice/policy/internal/pattern"
	"github.com/sluicehq/sluice/policy/internal/words"
)

const beStrict = "write \"consistency: strict\""

var consistencyNames = []string{sluice.Strict.String(), sluice.Leased.String(), sluice.Synced.String()}

// consistency compiles the consistency of a rule, after its other settings except its limits. It returns Strict
// after an error.
func (c *compiler) consistency(in *Rule, r *rule) sluice.Consistency {
	how := sluice.Consistency(c.choice("consistency", in.Consistency, consistencyNames))
	if how == sluice.Strict {
		return how
	}
	switch {
	case in.InFlight != (InFlight{}):
		c.fail("consistency", beStrict, "a rule with in_flight is counted strictly: a permit belongs to one request only")
	case r.distinct:
		c.fail("consistency", beStrict, "a rule with distinct is counted strictly: only the store knows all values")
	case !in.Share.isZero():
		c.fail("consistency", beStrict, "a share is counted strictly: allocations depend on the usage of all tenants")
	case r.lock != nil:
		c.fail("consistency", beStrict, "a rule with a penalty is counted strictly: the penalty applies on all instances at once")
	case r.counts != nil:
		c.fail("consistency", beStrict, "a rule with a count is counted strictly: requests that do not count are refunded at the store")
	case r.cost.isReported():
		c.fail("consistency", beStrict, "a rule whose cost the response reports is counted strictly: the difference is charged at the store")
	case !leasable[r.algorithm]:
		var use []string
		for _, a := range sluice.Algorithms() {
			if leasable[a] {
				use = append(use, a.String())
			}
		}
		c.fail("consistency", "use "+spelling.OneOf(use), "a %s cannot be %s: every request needs the store", r.algorithm, how)
	default:
		return how
	}
	return sluice.Strict
}

// leasable are the algorithms that instances can count without asking the store for each request.
var leasable = func() map[sluice.Algorithm]bool {
	all := map[sluice.Algorithm]bool{}
	for _, a := range sluice.Algorithms() {
		p, err := sluice.NewPlan(sluice.Limit{Count: 1, Period: time.Second, Algorithm: a})
		all[a] = err == nil && p.Leasable() == nil
	}
	return all
}()

// checkLeasable complains about a limit that can only be counted strictly, in a rule that is not strict.
func (c *compiler) checkLeasable(field string, plan *sluice.Plan, r *rule) {
	if r.consistency == sluice.Strict || plan.Leasable() == nil {
		return
	}
	c.fail(field, "use a period such as 30d, or "+beStrict, "the limit %v follows the calendar, and cannot be %s: every request needs the store", plan.Limit, r.consistency)
}

// CountedApart is a rule that instances count without asking the store for each request.
type CountedApart struct {
	Rule        string
	Consistency sluice.Consistency
	Plans       []*sluice.Plan // the limits of the rule and of its tiers, one of each kind
}

// CountedApart returns the rules that are not strict, in the order of the document.
func (p *Policy) CountedApart() (all []CountedApart) {
	for i := range p.rules {
		if r := &p.rules[i]; r.consistency != sluice.Strict {
			all = append(all, CountedApart{r.name, r.consistency, r.plans()})
		}
	}
	return all
}

// named returns the first pattern or host of a rule that contains a word of a list, and the word, or "".
func named(hosts []string, match []*pattern.Pattern, list []string) (text, word string) {
	for _, p := range match {
		if word := words.Of(p.Text, list); word != "" {
			return p.Text, word
		}
	}
	for _, h := range hosts {
		if word := words.Of(h, list); word != "" {
			return h, word
		}
	}
	return "", ""
}

// defaultOnError returns the on_error of a rule that does not set it.
func defaultOnError(hosts []string, match []*pattern.Pattern, shadow bool) sluice.OnError {
	if _, word := named(hosts, match, words.Closed); word != "" && !shadow {
		return sluice.Deny
	}
	return sluice.Allow
}

// Outage is what a rule does while the shared store is unavailable.
type Outage struct {
	Rule    string
	OnError sluice.OnError
	// Why is the reason in words, such as "set by the rule", or "by default". If the default is Deny because of a word
	// in Match or Hosts, Why contains this word: see OnError of a [Rule].
	Why string
}

// Outages returns the behavior of each rule during an outage of the store, in the order of the document. A default
// follows from words in match and hosts, so a change of a path can change the default. To notice such a change,
// compare the results of both policies; to avoid it, set on_error.
func (p *Policy) Outages() []Outage {
	all := make([]Outage, len(p.rules))
	for i := range p.rules {
		r := &p.rules[i]
		all[i] = Outage{r.name, r.onError, "by default"}
		text, word := named(r.hosts, r.match, words.Closed)
		switch o := &all[i]; {
		case r.exempt:
			o.Why = "it exempts"
		case r.classifies:
			o.OnError, o.Why = sluice.Allow, "it has a class and no limit"
		case r.adaptive != nil:
			o.OnError, o.Why = sluice.Allow, "it does not use the store"
		case r.block:
			o.OnError, o.Why = sluice.Deny, "it blocks"
		case r.shadow:
			o.OnError, o.Why = sluice.Allow, "a rule in shadow mode never denies"
		case r.marks:
			o.OnError, o.Why = sluice.Allow, "it marks, and never denies"
		case !r.byDefault:
			o.Why = "set by the rule"
		case r.onError == sluice.Deny:
			o.Why = fmt.Sprintf("by default, since %s contains %q", spelling.Quote(text), word)
		}
	}
	return all
}

// Cluster returns which rules a Redis Cluster can charge in one step. These are rules with the same hash tag. A
// single Redis server, or package memory, charges all rules in one step.
//
// Each group in the first result has the names of at least two rules that can be charged in one step, because they
// have the same parts under "together". Each problem in the second result names a rule, and the rules that may
// apply to the same requests and cannot be charged in one step with it. Such rules are charged one after the other,
// and their charges are given back if a later rule denies the request: for a moment they may deny too many requests,
// but they never allow too many. Rules for different headers are taken to apply to the same requests, because a
// request may have both headers.
func (p *Policy) Cluster() (together [][]string, apart []Problem) {
	tags := make([]string, len(p.rules))
	groups := make(map[string]int)
	for i := range p.rules {
		r := &p.rules[i]
		if !r.charges() {
			continue
		}
		if tags[i] = r.tag(); tags[i] != "" {
			g, known := groups[tags[i]]
			if !known {
				g = len(together)
				groups[tags[i]] = g
				together = append(together, nil)
			}
			together[g] = append(together[g], r.name)
		}
		var others []*rule
		for j := range i {
			o := &p.rules[j]
			if o.charges() && (tags[i] == "" || tags[i] != tags[j]) && r.mayMeet(o, p.ignoreCase) {
				others = append(others, o)
			}
		}
		if len(others) > 0 {
			apart = append(apart, p.apartFrom(r, others))
		}
	}
	return slices.DeleteFunc(together, func(names []string) bool { return len(names) < 2 }), apart
}

// tag returns a text that is equal for rules with equal hash tags in each request, or "" for a rule without a hash tag.
// The part "route" is the pattern that matched, so rules with it need the same patterns.
func (r *rule) tag() string {
	var b strings.Builder
	for _, i := range r.together {
		k := &r.key[i]
		fmt.Fprintf(&b, "%q ", k.ID())
		for _, m := range r.match {
			if k.IsRoute() {
				fmt.Fprintf(&b, "%q ", m.Text)
			}
		}
	}
	return b.String()
}

// mayMeet reports whether both rules can apply to one request.
func (r *rule) mayMeet(o *rule, ignoreCase bool) bool {
	if len(r.hosts) > 0 && len(o.hosts) > 0 && !slices.ContainsFunc(r.hosts, func(h string) bool { return hostsMeet(h, o.hosts) }) {
		return false
	}
	if len(r.match) == 0 || len(o.match) == 0 {
		return true
	}
	for _, p := range r.match {
		if slices.ContainsFunc(o.match, func(q *pattern.Pattern) bool { return p.Meets(q, ignoreCase) }) {
			return true
		}
	}
	return false
}

// hostsMeet reports whether a host can match one of hosts. Both may be patterns such as "*.example.com".
func hostsMeet(host string, hosts []string) bool {
	return slices.ContainsFunc(hosts, func(h string) bool {
		switch {
		case h == host:
			return true
		case h[0] == '*' && strings.HasSuffix(host, h[1:]):
			return true
		}
		return host[0] == '*' && strings.HasSuffix(h, host[1:])
	})
}

func (p *Policy) apartFrom(r *rule, others []*rule) Problem {
	names := make([]string, 0, len(others))
	shared := slices.Clone(r.key)
	for _, o := range others {
		names = append(names, o.name)
		shared = slices.DeleteFunc(shared, func(k parts.Part) bool { return k.IsRoute() || !o.key.Contains(&k) })
	}
	const most = 5
	if more := len(names) - most; more > 1 {
		names = append(names[:most:most], fmt.Sprintf("%d more", more))
	}
	hint := "their keys have no common part for \"together\""
	if len(shared) > 0 {
		hint = fmt.Sprintf("write \"together: [%s]\" in all of them", strings.Join(shared.Names(), ", "))
	}
	return Problem{
		File: r.file, Line: r.line, Path: fmt.Sprintf("rules[%d]", r.index), Rule: r.name, Hint: hint,
		Message: "on a cluster, it is not charged in one step with " + strings.Join(names, ", "),
	}
}
