package adminapi

import (
	"encoding/json"

	"github.com/sluicehq/sluice/cmd/internal/control"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/policyfile"
)

func (a *API) putShadow(c *call) (any, error) {
	r, err := decode[control.ShadowRequest](c)
	if err != nil {
		return nil, err
	}
	return a.Control.PutShadow(c.Context(), c.who, r, control.Change{Dry: c.query.dry, Match: c.Header.Get("If-Match")})
}

// diff compares the policy in the body with the one in force.
func (a *API) diff(c *call) (any, error) {
	live, err := c.query.flag("live")
	if err != nil {
		return nil, err
	}
	data, err := c.read()
	if err != nil {
		return nil, err
	}
	doc, err := policyfile.Decode("body.json", data)
	if found, wrong := err.(policy.Errors); wrong {
		return nil, control.Mistakes(found, "-")
	} else if err != nil {
		return nil, err
	}
	return a.Control.Diff(c.Context(), c.who, doc, live)
}

func (a *API) restore(c *call) (any, error) {
	r, err := decode[struct {
		Entry int64 `json:"entry"`
	}](c)
	if err != nil {
		return nil, err
	}
	return a.Control.Restore(c.Context(), c.who, r.Entry, c.query.dry)
}

func (a *API) changeRules(c *call) (any, error) {
	r, err := decode[changesRequest](c)
	if err != nil {
		return nil, err
	}
	return a.Control.ChangeRules(c.Context(), c.who, r.edits(), c.query.dry)
}

// changesRequest has the rules to change in one transaction.
type changesRequest struct {
	Rules []struct {
		Name string          `json:"name"`
		ETag string          `json:"etag"`
		Rule json.RawMessage `json:"rule"` // null: the rule is deleted
	} `json:"rules"`
}

// edits decodes the rules.
func (r *changesRequest) edits() []control.RuleEdit {
	edits := make([]control.RuleEdit, len(r.Rules))
	for i, given := range r.Rules {
		edits[i] = control.RuleEdit{Name: given.Name, ETag: given.ETag}
		if len(given.Rule) == 0 || string(given.Rule) == "null" {
			continue
		}
		document, err := decodeDocument(control.Rules, given.Rule)
		if err != nil {
			edits[i].Unreadable = err
			continue
		}
		edits[i].Rule = document.(*policy.Rule)
	}
	return edits
}
