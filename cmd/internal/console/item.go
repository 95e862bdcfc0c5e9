package console

import (
	"net/http"
	"slices"

	"github.com/sluicehq/sluice/cmd/internal/control"
	"github.com/sluicehq/sluice/policy"
)

// maxItems is larger than any list. Pages that need a whole list request this number of items.
const maxItems = 1 << 24

// item returns the item in force with the given ID, or nil if the ID is unknown.
func (c *call) item(kind control.Kind, id string) (*control.Item, error) {
	found, err := c.s.Control.Read(c.caller, kind, id)
	if p := control.AsProblem(err); p != nil && p.Status == http.StatusNotFound {
		return nil, nil
	}
	return found, err
}

// rule returns the rule in force with the given name, which must not be changed. An unknown name is a problem.
func (c *call) rule(name string) (*policy.Rule, error) {
	i := slices.IndexFunc(c.policy.Document.Rules, func(r policy.Rule) bool { return r.Name == name })
	if i < 0 {
		return nil, control.Problemf(http.StatusNotFound, "The policy in force has no rule %s.", printable(name))
	}
	return &c.policy.Document.Rules[i], nil
}
