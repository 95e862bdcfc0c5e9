package adminapi

import (
	"strings"

	"github.com/sluicehq/sluice/internal/control"
)

func (a *API) ruleStats(c *call) (any, error) {
	if _, err := c.query(); err != nil {
		return nil, err
	}
	return a.Control.RuleStats(c.who, c.PathValue("id"))
}

func (a *API) top(c *call) (any, error) {
	q, err := c.query("rule", "by", "window", "limit")
	if err != nil {
		return nil, err
	}
	limit, err := q.limit()
	if err != nil {
		return nil, err
	}
	rule, err := q.rule()
	if err != nil {
		return nil, err
	}
	return a.Control.Top(c.who, control.TopQuery{Rule: rule, By: q.or("by", "refusals"), Window: q.or("window", "hour"), Limit: limit})
}

func (a *API) refusals(c *call) (any, error) {
	q, err := c.query("id")
	if err != nil {
		return nil, err
	}
	return a.Control.Refusals(c.Context(), c.who, q.values["id"])
}

func (a *API) audit(c *call) (any, error) {
	q, err := c.query("limit", "cursor")
	if err != nil {
		return nil, err
	}
	limit, err := q.limit()
	if err != nil {
		return nil, err
	}
	return a.Control.Audit(c.Context(), c.who, q.values["cursor"], limit)
}

// explainQuery explains the request that the query describes.
func (a *API) explainQuery(c *call) (any, error) {
	q, err := c.query("method", "url", "from", "header.")
	if err != nil {
		return nil, err
	}
	in := control.CheckRequest{Method: q.values["method"], URL: q.values["url"], From: q.values["from"], Headers: q.prefixed["header."]}
	out, err := a.Control.Explain(c.Context(), c.who, in)
	if err != nil {
		return nil, inQuery(err)
	}
	return out, nil
}

// inQuery makes what is wrong with a field of a body what is wrong with the parameter of that name.
func inQuery(err error) error {
	p, ok := err.(*control.Problem)
	if !ok || len(p.Errors) != 1 || p.Errors[0].Pointer == nil {
		return err
	}
	return control.BadParameter(strings.TrimPrefix(*p.Errors[0].Pointer, "/"), "%s", p.Detail)
}
