package control

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sluicehq/sluice/policy"
)

// examine compiles the policy in force with a document, but without other overrides and subjects. It also returns
// the path of the document in that policy. Errors point into the document.
func (c *Control) examine(document any) (p *policy.Policy, at string, err error) {
	switch d := document.(type) {
	case *policy.Rule:
		return c.examineRule(d)
	case *Tier:
		return c.examineTier(d)
	case *policy.TierSubject:
		p, err = c.engine.Policy().WithSubjects([]policy.TierSubject{*d})
		at = "subjects[0]"
	case *policy.Override:
		p, err = c.engine.Policy().WithOverrides([]policy.Override{*d})
		at = "overrides[0]"
	}
	return p, at, examined(err, at)
}

// without returns a copy of the document in force without overrides and subjects. The caller may replace elements
// of its rules.
func (c *Control) without() policy.Document {
	doc := *c.policy.now().document
	doc.Overrides, doc.Subjects = nil, nil
	doc.Rules = slices.Clone(doc.Rules)
	return doc
}

func (c *Control) examineRule(rule *policy.Rule) (*policy.Policy, string, error) {
	doc := c.without()
	i := slices.IndexFunc(doc.Rules, func(r policy.Rule) bool { return r.Name == rule.Name })
	if i < 0 {
		i = len(doc.Rules)
		doc.Rules = append(doc.Rules, policy.Rule{})
	}
	doc.Rules[i] = *rule
	at := fmt.Sprintf("rules[%d]", i)
	p, err := policy.Compile(doc)
	return p, at, examined(err, at)
}

// examined converts errors of a document to a problem. The path is that of the document.
func examined(err error, path string) error {
	if found, ok := err.(policy.Errors); ok && len(found) > 0 {
		return Mistakes(found, path)
	}
	return err
}

func (c *Control) examineTier(tier *Tier) (*policy.Policy, string, error) {
	doc := c.without()
	at := map[string]string{} // JSON pointers into the tier, by path in the policy
	for _, rule := range slices.Sorted(maps.Keys(tier.Limits)) {
		pointer, _ := pointer(fmt.Sprintf(".limits[%q]", rule), "")
		i := slices.IndexFunc(doc.Rules, func(r policy.Rule) bool { return r.Name == rule })
		if i < 0 {
			return nil, "", BadField(pointer, "unknown rule %q", rule)
		}
		tiers := maps.Clone(doc.Rules[i].Tiers)
		if tiers == nil {
			tiers = map[string]policy.Limits{}
		}
		tiers[tier.Name] = tier.Limits[rule]
		doc.Rules[i].Tiers = tiers
		at[fmt.Sprintf("rules[%d].tiers[%q]", i, tier.Name)] = pointer
	}
	p, err := policy.Compile(doc)
	found, ok := err.(policy.Errors)
	if !ok || len(found) == 0 {
		return p, "-", err
	}
	problem := Mistakes(found, "-")
	for n := range problem.Errors {
		for path, pointer := range at {
			if strings.HasPrefix(found[n].Path, path) {
				problem.Errors[n].Pointer = &pointer
			}
		}
	}
	return nil, "-", problem
}
