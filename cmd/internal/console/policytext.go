package console

import (
	"fmt"
	"strings"

	"github.com/sluicehq/sluice/cmd/internal/control"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/policyfile"
)

// editedName is the name of a policy that is edited as a text.
const editedName = "policy.yaml"

// policyText is the policy in force as people write it, and what is known of each rule by its name. Rules are as
// the file or the database has them: what tiers of the database put into them is not theirs.
func (c *call) policyText(p *control.InForce) (text string, seen map[string]ruleSeen, err error) {
	items, err := c.s.Control.List(c.caller, control.Rules, control.Query{Limit: maxItems})
	if err != nil {
		return "", nil, err
	}
	own := map[string]*control.Item{}
	for i := range items.Items {
		own[items.Items[i].ID] = &items.Items[i]
	}
	settings, err := settingsYAML(p.Document.Document)
	if err != nil {
		return "", nil, err
	}
	all := p.Document.Rules
	seen = map[string]ruleSeen{}
	if len(all) == 0 {
		return settings + "rules: []\n", seen, nil
	}
	var b strings.Builder
	b.WriteString(settings + "rules:\n")
	// Rules of one source that stand together are written at once: there may be ten thousand.
	for i := 0; i < len(all); {
		from := all[i].Source
		var some []policy.Rule
		for ; i < len(all) && (all[i].Source == from || !p.Database); i++ {
			rule := &all[i]
			if o := own[rule.Name]; o != nil && !o.Disabled {
				rule, seen[rule.Name] = o.Document.(*policy.Rule), ruleSeen{o.ETag, o.Source}
			}
			some = append(some, *rule)
		}
		if p.Database {
			fmt.Fprintf(&b, "  # From the %s:\n", from)
		}
		text, err := rulesYAML(some...)
		if err != nil {
			return "", nil, err
		}
		b.WriteString(strings.TrimPrefix(text, "rules:\n"))
	}
	return b.String(), seen, nil
}

// settingsYAML writes a policy down to its rules.
func settingsYAML(doc policy.Document) (string, error) {
	doc.Rules = nil
	text, err := policyfile.Encode(editedName, doc)
	return strings.TrimSuffix(string(text), "rules: []\n"), err
}

// rulesYAML writes rules as a file has them.
func rulesYAML(rules ...policy.Rule) (string, error) {
	return yamlBelow("rules", policy.Document{Rules: rules})
}

// yamlBelow writes a list of a document, such as its rules, without what stands above it.
func yamlBelow(list string, doc policy.Document) (string, error) {
	text, err := policyfile.Encode(editedName, doc)
	_, below, _ := strings.Cut(string(text), "\n"+list+":\n")
	return list + ":\n" + below, err
}
