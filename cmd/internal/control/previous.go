package control

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/sluicehq/sluice/cmd/internal/recent"
	"github.com/sluicehq/sluice/cmd/internal/source"
	"github.com/sluicehq/sluice/policy"
)

// maxPrevious bounds the Changes of a Previous.
const maxPrevious = 1000

// Previous is the difference between the previous policy and the present one.
type Previous struct {
	Source string `json:"source"` // "database" or "file"

	// Restore would undo a change that Actor made at the time At. Entry is the ID of the change's last entry in the
	// audit log. Changes lists what Restore would change; More is the number of further changes, which are omitted.
	Entry   int64            `json:"entry,omitempty"`
	At      *time.Time       `json:"at,omitempty"`
	Actor   string           `json:"actor,omitempty"`
	Changes []PreviousChange `json:"changes,omitempty"`
	More    int              `json:"more,omitempty"`

	// Document is the previous file, and Now is the present file.
	Document *Document `json:"document,omitempty"`
	Now      *Document `json:"now,omitempty"`
}

// PreviousChange is the change of a rule, a tier or the settings by Restore.
type PreviousChange struct {
	Kind   string     `json:"kind"`
	Target string     `json:"target"`
	Now    source.Row `json:"now"` // null: missing
	Then   source.Row `json:"then"`
}

// Previous returns the difference to the previous policy. With a database, that is the policy before the last change
// of rules, tiers or settings in the database; a change of only the shadow mode does not count. Otherwise it is the
// policy of the file before its last change since the start of this instance.
func (c *Control) Previous(ctx context.Context, who Caller) (*Previous, error) {
	if err := who.Needs(source.Admin); err != nil {
		return nil, err
	}
	if c.policy.database == nil {
		return c.previousFile()
	}
	all, err := c.policy.database.LastChange(ctx)
	if err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, Problemf(http.StatusNotFound, "the audit log contains no change of the database's rules")
	}
	last := &all[len(all)-1]
	out := &Previous{Source: source.FromDatabase, Entry: last.ID, At: &last.At, Actor: last.Actor}
	for _, e := range all[:min(len(all), maxPrevious)] {
		out.Changes = append(out.Changes, PreviousChange{e.Kind, e.Target, e.After, e.Before})
	}
	out.More = len(all) - len(out.Changes)
	return out, nil
}

func (c *Control) previousFile() (*Previous, error) {
	now := c.policy.now()
	if now.fileBefore == nil || now.file == nil {
		return nil, Problemf(http.StatusNotFound, "no other policy has been in force since this instance was started")
	}
	return &Previous{Source: source.FromFile, Document: &Document{1, *now.fileBefore}, Now: &Document{1, *now.file}}, nil
}

// Restored is the result of restoring the previous policy, or of its dry run.
type Restored struct {
	DryRun     bool      `json:"dry_run"`
	BeginsAnew []Restart `json:"begins_anew"`
	// LastHour is set by a dry run: see [Difference].
	LastHour *recent.Trial `json:"last_hour,omitempty"`
}

// Restore undoes the change that [Control.Previous] describes, in one transaction, but keeps the shadow mode of the
// whole policy. The parameter entry is the field Entry of the [Previous].
func (c *Control) Restore(ctx context.Context, who Caller, entry int64, dry bool) (*Restored, error) {
	if err := who.Needs(source.Admin); err != nil {
		return nil, err
	}
	switch {
	case c.policy.database == nil:
		return nil, noDatabase()
	case entry < 1:
		return nil, BadField("/entry", "write the entry that GET /v1/policy/previous returned")
	}
	out := &Restored{DryRun: dry, BeginsAnew: []Restart{}}
	old := c.engine.Policy()
	p, err := c.policy.change(ctx, who.Name, dry, func(tx *source.Tx) error { return tx.Restore(entry) })
	var found policy.Errors
	switch {
	case conflicted(err):
		return nil, Problemf(http.StatusConflict, "the rules have changed since the entry was read, or were changed by SQL: read them again")
	case errors.As(err, &found) && len(found) > 0:
		p := Mistakes(found, "-")
		p.Detail = "the previous rules are no longer a valid policy: " + p.Detail
		return nil, p
	case err != nil:
		return nil, err
	}
	for _, n := range p.Restarts(old) {
		out.BeginsAnew = append(out.BeginsAnew, Restart(n))
	}
	if !dry {
		c.logAct(who, "policy changed", "restored_before", entry)
	}
	out.LastHour, err = c.tryOut(ctx, p.document)
	return out, err
}
