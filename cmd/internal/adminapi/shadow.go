package adminapi

import (
	"fmt"
	"hash/fnv"
	"net/http"
	"time"

	"github.com/sluicehq/sluice/cmd/internal/control"
	"github.com/sluicehq/sluice/cmd/internal/source"
	"github.com/sluicehq/sluice/policy"
)

// shadowState is whether the whole policy is a shadow, which refuses nothing.
type shadowState struct {
	On bool `json:"on"`
	// Until is what is written: a time, a date, "always", or nothing. It may have passed.
	Until string     `json:"until"`
	Ends  *time.Time `json:"ends"` // null: not by itself
	// From is what says so: "flag", which is --shadow of this instance, "file" or "database".
	From string `json:"from,omitempty"`
	ETag string `json:"etag"` // for If-Match; of a dry run that of now
}

// shadowChange is what a change of it would do, if it is dry.
type shadowChange struct {
	DryRun bool        `json:"dry_run"`
	Before shadowState `json:"before"`
	After  shadowState `json:"after"`
}

// shadow returns whether the whole policy is a shadow.
func (a *API) shadow(c *call) (any, error) {
	if _, err := c.query(); err != nil {
		return nil, err
	}
	s := a.shadowOf(a.Policy.Now())
	return &reply{etag: s.ETag, body: s}, nil
}

func (a *API) shadowOf(now *control.Current) shadowState {
	p := a.Engine.Policy()
	s := shadowState{On: p.WatchOnly(), Until: now.Document.Shadow}
	ends, says := p.ShadowUntil()
	if says && !ends.IsZero() {
		s.Ends = &ends
	}
	switch {
	case says && now.DatabaseShadow() == s.Until && now.FileShadow() != s.Until:
		s.From = control.FromDatabase
	case says:
		s.From = control.FromFile
	case s.On:
		s.From = "flag"
	}
	s.ETag = s.tag(now.SettingsVersion())
	return s
}

// tag names a state, which an end changes, too, and a version of the settings of the database.
func (s *shadowState) tag(version int64) string {
	h := fnv.New32a()
	_, _ = fmt.Fprintf(h, "%v %q %s", s.On, s.Until, s.From)
	return control.Quoted(fmt.Sprintf("%d-%08x", version, h.Sum32()))
}

// putShadow makes the whole policy a shadow until a time, or enforces it again: on all instances that
// share the database, and across restarts.
func (a *API) putShadow(c *call) (any, error) {
	q, err := c.query("dry_run")
	if err != nil {
		return nil, err
	}
	dry, err := q.boolean("dry_run")
	if err != nil {
		return nil, err
	}
	r, err := decode[shadowRequest](c)
	if err != nil {
		return nil, err
	}
	if err := r.check(); err != nil {
		return nil, err
	}
	if a.Policy.Database == nil {
		return nil, noDatabase()
	}
	now := a.Policy.Now()
	before := a.shadowOf(now)
	file := now.FileShadow()
	if !shadowHolds(file) {
		file = ""
	}
	longer := policy.LongerShadow(file, r.Until)
	switch {
	case before.From == "flag":
		return nil, problemf(http.StatusConflict, "this instance was started with --shadow, which makes a shadow of every policy: start it without")
	case longer != r.Until && (r.Until != "" || now.DatabaseShadow() == ""):
		return nil, problemf(http.StatusConflict, "the policy file says shadow: %s, which the database cannot take away or shorten: change the file", file)
	}
	match := source.Any
	if tag := c.Header.Get("If-Match"); tag != "" && tag != "*" {
		if tag != before.ETag {
			return nil, problemf(http.StatusPreconditionFailed, "it has changed since you have read it: read it again")
		}
		match = source.Match(now.SettingsVersion())
	}
	if err := a.Policy.PutShadow(c.Context(), c.actor, r.Until, match, dry); conflicted(err) {
		return nil, problemf(http.StatusPreconditionFailed, "it has changed since you have read it: read it again")
	} else if err != nil {
		return nil, err
	}
	out := shadowChange{DryRun: dry, Before: before}
	if dry {
		out.After = stateOfShadow(longer)
		if out.After.On && longer == file {
			out.After.From = control.FromFile
		}
		out.After.ETag = before.ETag
		return out, nil
	}
	a.Logger.Info("admin API changed the policy", "actor", c.actor, "kind", "settings", "shadow", r.Until)
	out.After = a.shadowOf(a.Policy.Now())
	return &reply{etag: out.After.ETag, body: out}, nil
}

type shadowRequest struct {
	Until string `json:"until"`
}

func (r *shadowRequest) check() error {
	if r.Until == "" || r.Until == policy.ShadowAlways {
		return nil
	}
	if _, err := policy.ParseUntil(r.Until); err != nil {
		return badField("/until", "%s, or \"always\", or nothing to enforce the rules", plain(err))
	}
	_, err := endOf(r.Until)
	return err
}

// stateOfShadow is what a text in the database makes.
func stateOfShadow(until string) shadowState {
	s := shadowState{On: until != "", Until: until}
	if s.On {
		s.From = control.FromDatabase
	}
	if ends, err := policy.ParseUntil(until); err == nil {
		ends = ends.UTC()
		s.Ends = &ends
	}
	return s
}

// shadowHolds reports whether a text makes a shadow of the policy now.
func shadowHolds(until string) bool {
	ends, err := policy.ParseUntil(until)
	return until == policy.ShadowAlways || err == nil && ends.After(time.Now())
}
