package policy

import (
	"fmt"
	"slices"

	"github.com/sluicehq/sluice/internal/spelling"
	"github.com/sluicehq/sluice/policy/internal/parts"
	"github.com/sluicehq/sluice/policy/internal/table"
)

// overrides are the overrides of a policy, by rule. They never change.
type overrides struct {
	byRule   []table.Table[*resolved] // by rule.index; empty without overrides
	list     []Override               // the overrides of the document
	warnings []Problem
}

// forRule returns the overrides of a rule, or nil if the policy has no overrides.
func (o *overrides) forRule(r *rule) *table.Table[*resolved] {
	if o.byRule == nil || r.index == adhoc {
		return nil
	}
	return &o.byRule[r.index]
}

// blocks reports whether an override blocks subjects of the rule.
func (o *overrides) blocks(r *rule) bool {
	all := o.forRule(r)
	return all != nil && slices.ContainsFunc(all.Values(), func(by *resolved) bool { return by.block })
}

func (c *compiler) overrides(p *Policy, list []Override) overrides {
	all := overrides{list: list}
	if len(list) > 0 {
		all.byRule = make([]table.Table[*resolved], len(p.rules))
	}
	c.list = "overrides"
	for i := range list {
		c.item, c.rule = i, ""
		c.override(p, &all, &list[i])
	}
	c.rule = ""
	c.endedMore(&all.warnings)
	for i := range all.byRule {
		all.byRule[i].Sort()
	}
	return all
}

// WithOverrides returns a policy that differs from p only in its overrides, which are taken from list. It shares
// everything else with p, so the time that WithOverrides takes depends only on the number of overrides. The policy
// keeps the list, so do not change it. The error is an [Errors].
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
		c.fail("", "change the rule instead", "the rule has no key, and so no subjects to override")
		return
	}
	if r.sharing != nil && len(o.LimitTexts()) > 0 {
		c.fail("limit", "give its tier another weight, or write \"block: true\"", "the rule has a shared limit, so tenants have no limit of their own")
		return
	}
	subject, of, ok := c.subject(p, r.key, o.Key)
	if effect := c.effectOf(o, r); ok && effect != nil {
		if first, twice := all.byRule[i].Add(of, subject, effect, until, c.item); twice {
			c.fail("", "remove one of them", "this subject has two overrides, %s", c.first(first))
		}
	}
	c.ended(&all.warnings, "override", until)
	if of.Exact == 0 && (o.Block || o.Exempt) {
		c.warn(&all.warnings, "change the rule instead", "the override %s everybody", map[bool]string{true: "blocks", false: "exempts"}[o.Block])
	}
}

// effectKey identifies overrides with the same effect.
type effectKey struct {
	limits        *limit // the first limit, or nil
	block, exempt bool
	source        string
}

// effectOf returns the effect of an override, or nil if the override is invalid. Overrides with the same effect
// share it.
func (c *compiler) effectOf(o *Override, r *rule) *resolved {
	key := effectKey{nil, o.Block, o.Exempt, o.Source}
	var limits []limit
	if !o.Block && !o.Exempt {
		switch {
		case r.inFlight && o.InFlight == 0:
			c.fail("limit", "write for example \"in_flight: 50\"", "the rule has in_flight, and no limit")
		case r.inFlight:
			limits = c.permits("in_flight", o.InFlight, r)
		case o.InFlight != 0:
			c.fail("in_flight", "write for example \"limit: 500/minute\"", "the rule has a limit, and no in_flight")
		default:
			limits = c.ownLimits(o.Limit, o.Limits, r)
		}
		if limits == nil {
			return nil
		}
		c.checkShownNames("limits", limits)
		key.limits = &limits[0]
	}
	effect := c.effects[key]
	if effect == nil {
		effect = &resolved{limits: limits, from: overridden, source: o.Source, block: o.Block, exempt: o.Exempt}
		c.effects[key] = effect
	}
	return effect
}

const overrideHint = "write for example \"{rule: per-key, key: {api_key: abc}, limit: 500/minute}\""

// terms reads the end of an override, and checks that it has a rule, a key and one effect.
func (c *compiler) terms(o *Override) (until int64, ok bool) {
	before := len(c.problems)
	limited := len(o.LimitTexts()) > 0
	for _, f := range []struct {
		name  string
		empty bool
	}{{"rule", o.Rule == ""}, {"key", len(o.Key) == 0}, {"limit", !limited && !o.Block && !o.Exempt}} {
		if f.empty {
			c.fail("", overrideHint, "the override has no %s", f.name)
		}
	}
	switch {
	case o.Block && o.Exempt:
		c.fail("block", "remove one of them", "an override either exempts or blocks")
	case o.InFlight != 0 && (o.Limit != "" || len(o.Limits) > 0):
		c.fail("in_flight", "remove one of them", "an override has either a limit or in_flight")
	case limited && (o.Block || o.Exempt):
		c.fail("", "remove one of them", "an override with block or exempt has no limit")
	}
	return c.until(o.Until), len(c.problems) == before
}

func ruleNames(p *Policy) []string {
	names := make([]string, min(len(p.rules), 100))
	for i := range names {
		names[i] = p.rules[i].name
	}
	return names
}

// subject returns the text of a subject that a document names: the key of its requests without the rule's name, with
// "*" for every part without a value, and with the first address of a network. The text is valid until the next call.
func (c *compiler) subject(p *Policy, key parts.List, values map[string]string) (text []byte, of table.Shape, ok bool) {
	ok = true
	for _, name := range key.Unknown(values) {
		c.fail(fmt.Sprintf("key[%q]", name), spelling.Suggest(name, key.Names()), "%s is not a part of the rule's key", spelling.Quote(name))
		ok = false
	}
	c.key.Reset()
	c.key.Begin("")
	for i := range key {
		name := key[i].String()
		v, given := values[name]
		if !given || v == "*" {
			c.key.AddAny()
			continue
		}
		of.Exact |= 1 << i
		if wrong := c.key.AddNamed(&key[i], i, v, p.ipv6Prefix, &of); wrong != nil {
			c.fail(fmt.Sprintf("key[%q]", name), "", "%s: %v", name, wrong)
			ok = false
		}
	}
	return c.key.Bytes(), of, ok
}
