package policy

import (
	"fmt"
	"strings"

	"github.com/sluicehq/sluice/internal/spelling"
	"github.com/sluicehq/sluice/policy/internal/parts"
)

// attributeCondition is an attribute that a request must have, with a value, or with any if
// the value is empty. The text is for explanations.
type attributeCondition struct{ name, value, text string }

// attributePrefix begins the name of an attribute in an explanation. No header's name has a space.
const attributePrefix = "the attribute "

func (a *attributeCondition) matches(attributes map[string]string) bool {
	v := attributes[a.name]
	return v != "" && (a.value == "" || a.value == v)
}

func (c *compiler) attributes(values map[string]string) (all []attributeCondition) {
	for _, name := range sortedKeys(values) {
		field, value := fmt.Sprintf("attributes[%q]", name), values[name]
		switch {
		case name == "" || strings.ContainsFunc(name, parts.Hidden) || strings.TrimSpace(name) != name:
			c.fail(field, "write it as the program does, as in plan", "%s is not the name of an attribute", spelling.Quote(name))
		case strings.HasPrefix(name, "attr:"):
			c.fail(field, "write "+spelling.Quote(strings.TrimPrefix(name, "attr:")), "the attribute %s is written without attr:", spelling.Quote(name))
		case value == "":
			c.fail(field, "write a value, or \"*\" for any", "attribute %s is empty", spelling.Quote(name))
		case value == "*":
			value = ""
		}
		all = append(all, attributeCondition{name, value, attributePrefix + spelling.Quote(name)})
	}
	return all
}
