package adminapi

import (
	"strings"

	"github.com/sluicehq/sluice/cmd/internal/control"
)

func (a *API) ruleStats(c *call) (any, error) {
	return a.Control.RuleStats(c.who, c.PathValue("id"))
}

func (a *API) previous(c *call) (any, error) {
	return a.Control.Previous(c.Context(), c.who)
}

func (a *API) top(c *call) (any, error) {
	rule, err := c.query.rule()
	if err != nil {
		return nil, err
	}
	return a.Control.Top(c.who, control.TopQuery{Rule: rule, By: c.query.or("by", "refusals"), Window: c.query.or("window", "hour"), Limit: c.query.limit})
}

func (a *API) refusals(c *call) (any, error) {
	return a.Control.Refusals(c.Context(), c.who, c.query.values["id"])
}

func (a *API) audit(c *call) (any, error) {
	return a.Control.Audit(c.Context(), c.who, c.query.values["cursor"], c.query.limit)
}

// explainQuery explains the request that the query describes.
func (a *API) explainQuery(c *call) (any, error) {
	q := &c.query
	in := control.CheckRequest{Method: q.values["method"], URL: q.values["url"], From: q.values["from"], Headers: q.prefixed["header."]}
	out, err := a.Control.Explain(c.Context(), c.who, in)
	if err != nil {
		return nil, inQuery(err)
	}
	return out, nil
}

// inQuery turns a problem with a field into a problem with the query parameter of the same name.
func inQuery(err error) error {
	p, ok := err.(*control.Problem)
	if !ok || len(p.Errors) != 1 || p.Errors[0].Pointer == nil {
		return err
	}
	return control.BadParameter(strings.TrimPrefix(*p.Errors[0].Pointer, "/"), "%s", p.Detail)
}
