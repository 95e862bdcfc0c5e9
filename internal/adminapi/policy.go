package adminapi

import (
	"encoding/json"

	"github.com/sluicehq/sluice/internal/control"
	"github.com/sluicehq/sluice/policy"
)

func (a *API) policy(c *call) (any, error) {
	if _, err := c.query(); err != nil {
		return nil, err
	}
	p, err := a.Control.InForce(c.who)
	if err != nil {
		return nil, err
	}
	return &reply{etag: control.Quoted(p.Version), body: p}, nil
}

func (a *API) shadow(c *call) (any, error) {
	if _, err := c.query(); err != nil {
		return nil, err
	}
	s, err := a.Control.Shadow(c.who)
	if err != nil {
		return nil, err
	}
	return &reply{etag: s.ETag, body: s}, nil
}

func (a *API) putShadow(c *call) (any, error) {
	dry, err := c.dryRun()
	if err != nil {
		return nil, err
	}
	r, err := decode[control.ShadowRequest](c)
	if err != nil {
		return nil, err
	}
	s, err := a.Control.PutShadow(c.Context(), c.who, r, control.Change{Dry: dry, Match: c.Header.Get("If-Match")})
	switch {
	case err != nil:
		return nil, err
	case dry:
		return s, nil
	}
	return &reply{etag: s.After.ETag, body: s}, nil
}

// changesRequest is a set of rules that are changed together.
type changesRequest struct {
	Rules []struct {
		Name string          `json:"name"`
		ETag string          `json:"etag"`
		Rule json.RawMessage `json:"rule"` // null: it is deleted
	} `json:"rules"`
}

// edits reads the rules.
func (r *changesRequest) edits() []control.RuleEdit {
	edits := make([]control.RuleEdit, len(r.Rules))
	for i, given := range r.Rules {
		edits[i] = control.RuleEdit{Name: given.Name, ETag: given.ETag}
		if len(given.Rule) == 0 || string(given.Rule) == "null" {
			continue
		}
		document, err := decodeRule(given.Rule)
		if err != nil {
			edits[i].Unreadable = err
			continue
		}
		edits[i].Rule = document.(*policy.Rule)
	}
	return edits
}

func (a *API) changeRules(c *call) (any, error) {
	dry, err := c.dryRun()
	if err != nil {
		return nil, err
	}
	r, err := decode[changesRequest](c)
	if err != nil {
		return nil, err
	}
	return a.Control.ChangeRules(c.Context(), c.who, r.edits(), dry)
}

func (a *API) previous(c *call) (any, error) {
	if _, err := c.query(); err != nil {
		return nil, err
	}
	return a.Control.Previous(c.Context(), c.who)
}

func (a *API) restore(c *call) (any, error) {
	dry, err := c.dryRun()
	if err != nil {
		return nil, err
	}
	r, err := decode[struct {
		Entry int64 `json:"entry"`
	}](c)
	if err != nil {
		return nil, err
	}
	return a.Control.Restore(c.Context(), c.who, r.Entry, dry)
}
