package rls

import (
	"fmt"
	"slices"

	"github.com/sluicehq/sluice/policy"
)

// Convert returns a policy that makes the same decisions about descriptors as the configuration, and a problem for
// each setting that a policy cannot express. The policy does not need the configuration, because its rules use the
// attributes of descriptors.
//
// In a policy, all matching rules apply, but in the configuration only the first matching limit does. So the rule
// for all values of a key exempts the values that have a descriptor of their own.
func (l *Limits) Convert() (policy.Document, []policy.Problem) {
	c := converter{limits: l}
	for i, of := range l.limits {
		c.limit = of
		c.convert(l.Document.Rules[i])
	}
	return c.doc, c.problems
}

type converter struct {
	limits   *Limits
	limit    *limit
	doc      policy.Document
	problems []policy.Problem
}

func (c *converter) fail(hint, format string, args ...any) {
	c.problems = append(c.problems, policy.Problem{File: c.limit.file, Line: c.limit.line, Rule: c.limit.rule, Message: fmt.Sprintf(format, args...), Hint: hint})
}

func (c *converter) convert(rule policy.Rule) {
	l := c.limit
	before := len(c.problems)
	if l.quota {
		c.fail("serve the configuration itself", "quota_mode depends on all descriptors of a request together, but a rule does not")
	}
	if len(l.replaces) > 0 {
		c.fail("serve the configuration itself", "replaces disables another limit, but all rules apply independently")
	}
	rule.Attributes = c.attributes()
	exempt := c.exemptions(&rule)
	if len(c.problems) == before {
		c.doc.Rules = append(c.doc.Rules, rule)
		c.doc.Overrides = append(c.doc.Overrides, exempt...)
	}
}

// attributes returns the attributes by which the rule of the limit matches.
func (c *converter) attributes() map[string]string {
	steps := c.limit.steps
	var keys []entry
	for _, s := range steps[1:] {
		keys = append(keys, entry{key: s.key})
	}
	all := map[string]string{domainAttribute: steps[0].key, descriptorAttribute: string(appendShape(nil, keys))}
	for i, s := range steps {
		switch {
		case i == 0 || s.kind == plainStep || s.value == "*":
		case s.kind == wildcardStep:
			c.fail("serve the configuration itself", "a rule matches one value or every value, but not the pattern %q", s.value)
		default:
			all[c.limit.attribute(i)] = s.value
		}
	}
	for name, value := range all {
		if value == "*" && name != descriptorAttribute {
			c.fail("serve the configuration itself", "in a rule, the value \"*\" of %s matches every value", name)
		}
	}
	return all
}

// exemptions returns overrides that exempt the values for which the configuration has another limit.
func (c *converter) exemptions(rule *policy.Rule) (all []policy.Override) {
	n := c.limits.domains[c.limit.steps[0].key]
	for i, s := range c.limit.steps[1:] {
		of := n.children[s.key]
		if s.kind != exactStep {
			all = append(all, c.others(rule, i+1, of)...)
		}
		n = of.at(&s)
	}
	return all
}

// others returns the exemptions for one level of the step with the given index.
func (c *converter) others(rule *policy.Rule, step int, of *level) (all []policy.Override) {
	s := &c.limit.steps[step]
	if len(of.wildcards) > 0 && (s.kind != wildcardStep || of.wildcards[0].pattern != s.value) {
		c.fail("serve the configuration itself", "the configuration tries descriptors of %q with wildcards first, but all rules apply independently", s.key)
		return nil
	}
	if len(of.values) > 0 && (!s.open() || rule.Block) {
		c.fail("serve the configuration itself", "values of %q have descriptors of their own, but the rule does not distinguish values", s.key)
		return nil
	}
	for _, value := range of.values {
		all = append(all, policy.Override{
			Rule: rule.Name, Key: map[string]string{"attr:" + c.limit.attribute(step): value}, Exempt: true,
			Reason: fmt.Sprintf("has a descriptor of its own at %s:%d", of.exact[value].place.file, of.exact[value].place.line),
		})
	}
	return all
}

// at returns the node of a step.
func (of *level) at(s *step) *node {
	switch s.kind {
	case plainStep:
		return of.plain
	case exactStep:
		return of.exact[s.value]
	}
	i := slices.IndexFunc(of.wildcards, func(w wildcard) bool { return w.pattern == s.value })
	return of.wildcards[i].node
}
