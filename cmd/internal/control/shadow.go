package control

import (
	"context"
	"fmt"
	"hash/fnv"
	"net/http"
	"time"

	"github.com/sluicehq/sluice/cmd/internal/recent"
	"github.com/sluicehq/sluice/cmd/internal/source"
	"github.com/sluicehq/sluice/policy"
)

// ShadowState is the state of the shadow mode of the whole policy. In shadow mode, the policy denies nothing.
type ShadowState struct {
	On bool `json:"on"`
	// Until is the end as written: a time, a date, "always", or "". It may be in the past.
	Until string     `json:"until"`
	Ends  *time.Time `json:"ends"` // null: no end
	// From is the origin of the shadow mode: "flag" (--shadow of this instance), "file" or "database".
	From string `json:"from,omitempty"`
	ETag string `json:"etag"` // for If-Match; a dry run does not change it
}

// ShadowChange is the state before and after a change.
type ShadowChange struct {
	DryRun bool        `json:"dry_run"`
	Before ShadowState `json:"before"`
	After  ShadowState `json:"after"`
	// LastHour is set by a dry run: see [Difference].
	LastHour *recent.Trial `json:"last_hour,omitempty"`
}

// Tag returns the ETag of the state.
func (s *ShadowState) Tag() string { return s.ETag }

// Tag returns the ETag after the change, or "" after a dry run.
func (s *ShadowChange) Tag() string {
	if s.DryRun {
		return ""
	}
	return s.After.ETag
}

// Shadow returns whether the whole policy is in shadow mode.
func (c *Control) Shadow(who Caller) (*ShadowState, error) {
	if err := who.Needs(source.Viewer); err != nil {
		return nil, err
	}
	s := c.shadow()
	return &s, nil
}

func (c *Control) shadow() ShadowState {
	now := c.policy.now()
	s := shadowOf(c.engine.Policy(), now.document.Shadow, now.databaseShadow(), now.fileShadow())
	s.ETag = s.tag(now.settingsVersion())
	return s
}

// shadowOf returns the state of the shadow mode of p. The parameters are the end in force, and the ends in the database
// and in the file.
func shadowOf(p *policy.Policy, inForce, database, file string) ShadowState {
	s := ShadowState{On: p.WatchOnly(), Until: inForce}
	ends, says := p.ShadowUntil()
	if says && !ends.IsZero() {
		s.Ends = &ends
	}
	switch {
	case says && database == inForce && file != inForce:
		s.From = source.FromDatabase
	case says:
		s.From = source.FromFile
	case s.On:
		s.From = "flag"
	}
	return s
}

// tag returns an ETag for the state and a version of the settings in the database. The ETag also changes when the
// shadow mode ends.
func (s *ShadowState) tag(version int64) string {
	h := fnv.New32a()
	_, _ = fmt.Fprintf(h, "%v %q %s", s.On, s.Until, s.From)
	return Quoted(fmt.Sprintf("%d-%08x", version, h.Sum32()))
}

// PutShadow puts the whole policy into shadow mode until a time, or enforces it again. The change applies to all
// instances that share the database, and survives restarts.
func (c *Control) PutShadow(ctx context.Context, who Caller, r ShadowRequest, change Change) (*ShadowChange, error) {
	if err := who.Needs(source.Admin); err != nil {
		return nil, err
	}
	if err := r.check(); err != nil {
		return nil, err
	}
	if c.policy.database == nil {
		return nil, noDatabase()
	}
	now := c.policy.now()
	before := c.shadow()
	file := now.fileShadow()
	if !shadowHolds(file) {
		file = ""
	}
	longer := policy.LongerShadow(file, r.Until)
	switch {
	case before.From == "flag":
		return nil, Problemf(http.StatusConflict, "this instance was started with --shadow: start it without --shadow")
	case longer != r.Until && (r.Until != "" || now.databaseShadow() == ""):
		return nil, Problemf(http.StatusConflict, "the policy file sets \"shadow: %s\". The database cannot end this shadow mode earlier: change the file", file)
	}
	match := source.Any
	if tag := change.Match; tag != "" && tag != "*" {
		if tag != before.ETag {
			return nil, Problemf(http.StatusPreconditionFailed, "the shadow mode has changed since you read it: read it again")
		}
		match = source.Match(now.settingsVersion())
	}
	p, err := c.policy.change(ctx, who.Name, change.Dry, func(tx *source.Tx) error { return tx.PutShadow(r.Until, match) })
	if conflicted(err) {
		return nil, Problemf(http.StatusPreconditionFailed, "the shadow mode has changed since you read it: read it again")
	} else if err != nil {
		return nil, err
	}
	out := &ShadowChange{DryRun: change.Dry, Before: before}
	if change.Dry {
		out.After = shadowOf(p.Policy, longer, r.Until, file)
		// Only an engine turns the shadow mode of a policy on, and p is in no engine.
		out.After.On, out.After.ETag = longer != "", before.ETag
		out.LastHour, err = c.tryOut(ctx, p.document)
		return out, err
	}
	c.logAct(who, "policy changed", "kind", "settings", "shadow", r.Until)
	out.After = c.shadow()
	return out, nil
}

// ShadowRequest sets the end of the shadow mode: a date or a time, "always", or "" to enforce the policy.
type ShadowRequest struct {
	Until string `json:"until"`
}

func (r *ShadowRequest) check() error {
	if r.Until == "" || r.Until == policy.ShadowAlways {
		return nil
	}
	if _, err := policy.ParseUntil(r.Until); err != nil {
		return BadField("/until", "%s, or \"always\", or nothing to enforce the rules", plain(err))
	}
	_, err := endOf(r.Until)
	return err
}

// shadowHolds reports whether a value of "shadow" turns the shadow mode on now.
func shadowHolds(until string) bool {
	ends, err := policy.ParseUntil(until)
	return until == policy.ShadowAlways || err == nil && ends.After(time.Now())
}
