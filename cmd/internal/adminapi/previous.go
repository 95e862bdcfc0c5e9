package adminapi

import (
	"errors"
	"net/http"
	"time"

	"github.com/sluicehq/sluice/cmd/internal/control"
	"github.com/sluicehq/sluice/cmd/internal/source"
	"github.com/sluicehq/sluice/policy"
)

// maxPrevious is how many parts of a change are told.
const maxPrevious = 1000

// previous is the policy before the present one, as far as it differs.
type previous struct {
	Source string `json:"source"` // "database" or "file"

	// Entry is the last entry in the audit log of the change that would be taken back, made by Actor
	// at At, and Changes are what would become of its parts, of which More are left out.
	Entry   int64            `json:"entry,omitempty"`
	At      *time.Time       `json:"at,omitempty"`
	Actor   string           `json:"actor,omitempty"`
	Changes []previousChange `json:"changes,omitempty"`
	More    int              `json:"more,omitempty"`

	// Document is what the file said before, and Now what it says.
	Document *document `json:"document,omitempty"`
	Now      *document `json:"now,omitempty"`
}

// previousChange is what would become of a rule, a tier or the settings.
type previousChange struct {
	Kind   string     `json:"kind"`
	Target string     `json:"target"`
	Now    source.Row `json:"now"` // null: it is not there
	Then   source.Row `json:"then"`
}

// previous returns what the policy was before the present one: that of the database, if there is one,
// else that of the file, since the start of this instance.
func (a *API) previous(c *call) (any, error) {
	if _, err := c.query(); err != nil {
		return nil, err
	}
	if a.Policy.Database == nil {
		return a.previousFile()
	}
	all, err := a.Policy.Database.LastChange(c.Context())
	if err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, problemf(http.StatusNotFound, "the rules of the database have not changed yet, as far as the audit log knows")
	}
	last := &all[len(all)-1]
	out := previous{Source: control.FromDatabase, Entry: last.ID, At: &last.At, Actor: last.Actor}
	for _, e := range all[:min(len(all), maxPrevious)] {
		out.Changes = append(out.Changes, previousChange{e.Kind, e.Target, e.After, e.Before})
	}
	out.More = len(all) - len(out.Changes)
	return out, nil
}

func (a *API) previousFile() (any, error) {
	now := a.Policy.Now()
	if now.FileBefore == nil || now.File == nil {
		return nil, problemf(http.StatusNotFound, "no other policy has been in force since this instance was started")
	}
	return previous{Source: control.FromFile, Document: &document{1, *now.FileBefore}, Now: &document{1, *now.File}}, nil
}

// restored is what came of the policy before, or would.
type restored struct {
	DryRun     bool   `json:"dry_run"`
	BeginsAnew []anew `json:"begins_anew"`
}

// restore puts the policy into force that there was before the last change, in one transaction.
func (a *API) restore(c *call) (any, error) {
	q, err := c.query("dry_run")
	if err != nil {
		return nil, err
	}
	out := restored{BeginsAnew: []anew{}}
	if out.DryRun, err = q.boolean("dry_run"); err != nil {
		return nil, err
	}
	r, err := decode[struct {
		Entry int64 `json:"entry"`
	}](c)
	switch {
	case err != nil:
		return nil, err
	case a.Policy.Database == nil:
		return nil, noDatabase()
	case r.Entry < 1:
		return nil, badField("/entry", "write the ID that GET /v1/policy/previous has")
	}
	all, err := a.Policy.Restore(c.Context(), c.actor, r.Entry, out.DryRun)
	var found policy.Errors
	switch {
	case conflicted(err):
		return nil, problemf(http.StatusConflict, "the rules have changed since you have looked, or by SQL: look again")
	case errors.As(err, &found) && len(found) > 0:
		p := mistakes(found, "-")
		p.Detail = "what was there before makes no policy any more: " + p.Detail
		return nil, p
	case err != nil:
		return nil, err
	}
	for _, n := range all {
		out.BeginsAnew = append(out.BeginsAnew, anew{n.Rule, n.From, n.Was, n.Is})
	}
	if !out.DryRun {
		a.Logger.Info("admin API changed the policy", "actor", c.actor, "restored_before", r.Entry)
	}
	return out, nil
}
