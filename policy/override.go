package policy

import (
	"cmp"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"time"

	"github.com/sluicehq/sluice/internal/spelling"
)

// overrides are those of a policy, by the rule. They are never changed.
type overrides struct {
	byRule   [][]overrideSet // by rule.index; empty if there are none
	warnings []Problem
}

// overrideSet are the overrides of a rule that name the same parts of its key.
type overrideSet struct {
	exact     uint32 // bit i: part i of the key is named, and not "*"
	network   network
	bySubject map[string]override
}

type override struct {
	limits []limit
	until  int64 // in microseconds since the Unix epoch; 0: for ever
	item   int   // of Document.Overrides
}

// of returns the overrides of a rule, in the order in which they are asked.
func (o *overrides) of(r *rule) []overrideSet {
	if o.byRule == nil {
		return nil
	}
	return o.byRule[r.index]
}

// set returns those of a rule that name the same parts of its key, by as long a network.
func (o *overrides) set(r *rule, like overrideSet) map[string]override {
	for _, set := range o.of(r) {
		if set.exact == like.exact && set.network == like.network {
			return set.bySubject
		}
	}
	return nil
}

func (c *compiler) overrides(p *Policy, list []Override) (all overrides) {
	if len(list) > 0 {
		all.byRule = make([][]overrideSet, len(p.rules))
	}
	c.list = "overrides"
	for i := range list {
		c.item, c.rule = i, ""
		c.override(p, &all, &list[i])
	}
	for _, sets := range all.byRule {
		// Those that name more parts are asked first, then those that name earlier ones, and
		// of these addresses before networks, and longer prefixes before shorter ones.
		slices.SortFunc(sets, func(a, b overrideSet) int {
			return cmp.Or(bits.OnesCount32(b.exact)-bits.OnesCount32(a.exact), cmp.Compare(a.exact, b.exact),
				cmp.Compare(a.network.part, b.network.part), b.network.bits-a.network.bits)
		})
	}
	return all
}

// WithOverrides returns a policy that differs from p in its overrides, which are all in list. It
// shares everything else with p, so that a hundred thousand of them cost no more than themselves.
// The error is an [Errors].
func (p *Policy) WithOverrides(list []Override) (*Policy, error) {
	c := newCompiler(nil)
	c.names = p.byName
	next := *p
	if next.overrides = c.overrides(p, list); len(c.problems) > 0 {
		return nil, c.problems
	}
	return &next, nil
}

func (c *compiler) override(p *Policy, all *overrides, o *Override) {
	until, ok := c.terms(o)
	if !ok {
		return
	}
	i, known := c.names[o.Rule]
	if !known {
		c.fail("rule", spelling.Suggest(o.Rule, ruleNames(p)), "override for unknown rule %s", spelling.Quote(o.Rule))
		return
	}
	c.rule = o.Rule
	r := &p.rules[i]
	if len(r.key) == 0 {
		c.fail("", "change the rule instead", "the rule has no key, so it has no subjects to override")
		return
	}
	subject, in, ok := c.subject(p, r, o.Key)
	if limits := c.ownLimits(o.Limit, o.Limits, r); ok && limits != nil {
		c.checkTold("limits", limits)
		c.add(&all.byRule[i], in, subject, override{limits, until, c.item})
	}
	if until != 0 && until < c.now {
		ended := Problem{Path: c.path(""), Rule: r.name, Hint: "remove it", Message: "the override ended at " + time.UnixMicro(until).UTC().Format(time.RFC3339)}
		all.warnings = append(all.warnings, ended.at(c.where))
	}
}

// terms reads what an override says but for whom.
func (c *compiler) terms(o *Override) (until int64, ok bool) {
	before := len(c.problems)
	for _, f := range []struct {
		name  string
		empty bool
	}{{"rule", o.Rule == ""}, {"key", len(o.Key) == 0}, {"limit", o.Limit == "" && len(o.Limits) == 0}} {
		if f.empty {
			c.fail("", "write for example \"{rule: per-key, key: {api_key: abc}, limit: 500/minute}\"", "the override has no %s", f.name)
		}
	}
	if o.Until != "" {
		until = c.instant(o.Until)
	}
	return until, len(c.problems) == before
}

func (c *compiler) instant(s string) int64 {
	for _, layout := range []string{time.RFC3339, time.DateOnly} {
		if t, err := time.Parse(layout, s); err == nil {
			return cmp.Or(t.UnixMicro(), -1) // 0 would be for ever
		}
	}
	c.fail("until", "write it as in 2027-01-31T12:00:00Z, or 2027-01-31 for the beginning of that day in UTC", "until is %s, which is not a time", spelling.Quote(s))
	return 0
}

func ruleNames(p *Policy) []string {
	names := make([]string, min(len(p.rules), 100))
	for i := range names {
		names[i] = p.rules[i].name
	}
	return names
}

func (c *compiler) add(sets *[]overrideSet, in overrideSet, subject string, o override) {
	i := slices.IndexFunc(*sets, func(s overrideSet) bool { return s.exact == in.exact && s.network == in.network })
	if i < 0 {
		i = len(*sets)
		in.bySubject = make(map[string]override)
		*sets = append(*sets, in)
	}
	if first, twice := (*sets)[i].bySubject[subject]; twice {
		c.fail("", "remove one of them", "there are two overrides for this subject, %s", c.first(first.item))
		return
	}
	(*sets)[i].bySubject[subject] = o
}

// subject returns the text of an override's subject: what the key of such a request has
// behind the rule's name, with "*" for every part that the override leaves open, and the first
// address of a network. It also returns the set that it belongs to.
func (c *compiler) subject(p *Policy, r *rule, key map[string]string) (text string, in overrideSet, ok bool) {
	ok = true
	if !knows(r, key) {
		for _, name := range sortedKeys(key) {
			if !hasPart(r.key, name) {
				c.fail(fmt.Sprintf("key[%q]", name), spelling.Suggest(name, partNames(r.key)), "%s is not a part of the rule's key", spelling.Quote(name))
				ok = false
			}
		}
	}
	c.key.reset()
	c.key.begin("")
	for i := range r.key {
		v, given := key[r.key[i].text]
		if !given || v == "*" {
			c.key.addAny()
			continue
		}
		in.exact |= 1 << i
		if first, n, many := r.key[i].network(i, v, p.ipv6Prefix); many {
			in.network = n
			c.key.add(first)
			if wrong, hint := checkHostBits(v); wrong != "" {
				c.fail(fmt.Sprintf("key[%q]", r.key[i].text), "", "%s: %s: %s", r.key[i].text, wrong, hint)
				ok = false
			}
			continue
		}
		v, err := r.key[i].normal(v, p.ipv6Prefix)
		if err != nil {
			c.fail(fmt.Sprintf("key[%q]", r.key[i].text), "", "%s: %v", r.key[i].text, err)
			ok = false
		}
		c.key.add(v)
	}
	return string(c.key.text), in, ok
}

// knows reports whether all of the key are parts of the rule's.
func knows(r *rule, key map[string]string) bool {
	n := 0
	for i := range r.key {
		if _, given := key[r.key[i].text]; given {
			n++
		}
	}
	return n == len(key)
}

// normal returns the value that an override names as [part.value] returns it, or an
// error if no request can have it.
func (p *part) normal(v string, ipv6Prefix int) (string, error) {
	if p.kind != clientIP {
		if v = p.canonical(v); v == "" {
			return "", errors.New("no request has such a value")
		}
		return v, nil
	}
	network, err := parsePrefix(v)
	if err != nil {
		return "", fmt.Errorf("%s is not an address: write it as in 192.0.2.7", spelling.Quote(v))
	}
	if wrong, hint := checkHostBits(v); wrong != "" {
		return "", fmt.Errorf("%s: %s", wrong, hint)
	}
	a := network.Addr()
	bits := a.BitLen()
	if a.Is6() {
		bits = ipv6Prefix
	}
	if network.Bits() != bits && !network.IsSingleIP() {
		return "", fmt.Errorf("%s is a network, and addresses are told apart by their first %d bits: name one of these", spelling.Quote(v), bits)
	}
	return maskClient(a, ipv6Prefix).String(), nil
}
