package console

import (
	"fmt"
	"strings"

	"github.com/sluicehq/sluice/cmd/internal/control"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/policyfile"
)

// editedName is the file name of the edited policy in messages.
const editedName = "policy.yaml"

// ownRules returns the rules by name, as written in the file and the database, without the limits that tiers in the
// database add.
func (c *call) ownRules() (map[string]*control.Item, error) {
	items, err := c.s.Control.List(c.caller, control.Rules, control.Query{Limit: maxItems})
	if err != nil {
		return nil, err
	}
	own := map[string]*control.Item{}
	for i := range items.Items {
		own[items.Items[i].ID] = &items.Items[i]
	}
	return own, nil
}

// policyText returns the YAML text of the policy in force.
func (c *call) policyText() (string, error) {
	own, err := c.ownRules()
	if err != nil {
		return "", err
	}
	settings, err := settingsYAML(c.policy.Document.Document)
	if err != nil {
		return "", err
	}
	all := c.policy.Document.Rules
	if len(all) == 0 {
		return settings + "rules: []\n", nil
	}
	var b strings.Builder
	b.WriteString(settings + "rules:\n")
	// Consecutive rules of one source are written in one call, because a policy may have ten thousand rules.
	for i := 0; i < len(all); {
		from := all[i].Source
		var some []policy.Rule
		for ; i < len(all) && (all[i].Source == from || !c.policy.Database); i++ {
			rule := &all[i]
			if o := own[rule.Name]; o != nil && !o.Disabled {
				rule = o.Document.(*policy.Rule)
			}
			some = append(some, *rule)
		}
		if c.policy.Database {
			fmt.Fprintf(&b, "  # From the %s:\n", from)
		}
		text, err := rulesYAML(some...)
		if err != nil {
			return "", err
		}
		b.WriteString(strings.TrimPrefix(text, "rules:\n"))
	}
	return b.String(), nil
}

// settingsYAML returns the YAML text of a policy without its rules.
func settingsYAML(doc policy.Document) (string, error) {
	doc.Rules = nil
	text, err := policyfile.Encode(editedName, doc)
	return strings.TrimSuffix(string(text), "rules: []\n"), err
}

// rulesYAML returns the YAML text of rules.
func rulesYAML(rules ...policy.Rule) (string, error) {
	return yamlBelow("rules", policy.Document{Rules: rules})
}

// yamlBelow returns the YAML text of a list in a document, such as "rules", without the lines above the list.
func yamlBelow(list string, doc policy.Document) (string, error) {
	text, err := policyfile.Encode(editedName, doc)
	_, below, _ := strings.Cut(string(text), "\n"+list+":\n")
	return list + ":\n" + below, err
}
