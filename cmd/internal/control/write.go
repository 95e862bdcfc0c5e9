package control

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/sluicehq/sluice/cmd/internal/recent"
	"github.com/sluicehq/sluice/cmd/internal/source"
	"github.com/sluicehq/sluice/policy"
)

// Change has the conditions of a change.
type Change struct {
	Dry bool // change nothing, and return what would change
	// Match is one or several ETags, separated by commas, or "*" for any. The item must exist and have one of them.
	// Empty means no condition.
	Match string
	// Absent requires that the item does not exist.
	Absent bool
}

// Written is the result of changing an item.
type Written struct {
	ID   string
	ETag string // empty after a deletion
	// Created reports whether the item is new.
	Created  bool
	Document any // nil after a deletion
	// Difference is set only by a dry run.
	Difference *Difference
}

// Difference is the result of a dry run.
type Difference struct {
	DryRun bool `json:"dry_run"`
	Effect
	// LastHour is the effect that the change would have had on the latest requests. It is nil if requests are not
	// recorded.
	LastHour *recent.Trial `json:"last_hour,omitempty"`
}

// Effect is an item before and after a change.
type Effect struct {
	Before any `json:"before"` // nil: the item does not exist
	After  any `json:"after"`
	// BeginsAnew has the limits that start to count from zero.
	BeginsAnew []Restart `json:"begins_anew"`
	Warnings   []string  `json:"warnings"` // warnings about the document
}

// Restart is a limit that starts to count from zero: see [policy.Restart].
type Restart struct {
	Rule string `json:"rule"`
	From string `json:"from"`
	Was  string `json:"was"`
	Is   string `json:"is"`
}

// effectOn returns an Effect on an item, with only Before set.
func effectOn(before *item, exists bool) Effect {
	e := Effect{BeginsAnew: []Restart{}, Warnings: []string{}}
	if exists {
		e.Before = before.Document
	}
	return e
}

// writing is a change in progress.
type writing struct {
	Change
	who      Caller
	kind     Kind
	id       string
	document any // nil: delete the item

	before item // the present item
	exists bool
}

// Create creates an item, which must not exist yet.
func (c *Control) Create(ctx context.Context, who Caller, document any, dry bool) (*Written, error) {
	w := &writing{Change: Change{Dry: dry}, who: who, kind: kindOf(document)}
	if err := who.Needs(w.kind.Role()); err != nil {
		return nil, err
	}
	if err := w.take(document); err != nil {
		return nil, err
	}
	if err := c.look(w, dry); err != nil {
		return nil, err
	}
	out, err := c.create(ctx, w)
	return out, c.documentError(w, err)
}

func (c *Control) create(ctx context.Context, w *writing) (*Written, error) {
	there := Problemf(http.StatusConflict, "the %s exists: replace it with PUT %s", w.kind, w.kind.Path(w.id))
	if w.exists {
		return nil, there
	}
	out, err := c.write(ctx, w, source.Absent)
	if conflicted(err) {
		return nil, there
	}
	return out, err
}

// Put creates or replaces the item with the given ID. The document may omit its name. The change must have a condition.
func (c *Control) Put(ctx context.Context, who Caller, id string, document any, change Change) (*Written, error) {
	w := &writing{Change: change, who: who, kind: kindOf(document), id: id}
	if err := who.Needs(w.kind.Role()); err != nil {
		return nil, err
	}
	if change.Match == "" && !change.Absent {
		return nil, unconditional(", or \"If-None-Match: *\" to create the item")
	}
	if err := w.take(document); err != nil {
		return nil, err
	}
	_, named := w.seen()
	if err := c.look(w, change.Dry || !named); err != nil {
		return nil, err
	}
	out, err := c.writeIf(ctx, w)
	return out, c.documentError(w, err)
}

// documentError returns the errors in the document of a failed change, or err if the document has none. They are
// more useful than errors of the database, because they point into the document.
func (c *Control) documentError(w *writing, err error) error {
	if err == nil {
		return nil
	}
	if _, _, wrong := c.examine(w.document); wrong != nil {
		return wrong
	}
	return err
}

// Delete deletes an item of the database. The change must have a Match.
func (c *Control) Delete(ctx context.Context, who Caller, kind Kind, id string, change Change) (*Written, error) {
	w := &writing{Change: change, who: who, kind: kind, id: id}
	if err := who.Needs(kind.Role()); err != nil {
		return nil, err
	}
	if change.Match == "" {
		return nil, unconditional("")
	}
	_, named := w.seen()
	if err := c.look(w, w.Dry || !named); err != nil {
		return nil, err
	}
	if !named && w.exists && w.before.Version == 0 {
		return nil, Problemf(http.StatusConflict, "the database has no such %s: remove it from the %s", kind, w.before.Source())
	}
	return c.writeIf(ctx, w)
}

// unconditional returns the problem of a change without a condition. The parameter alternative is a text about
// another condition, or "".
func unconditional(alternative string) *Problem {
	p := Problemf(http.StatusPreconditionRequired, "this change needs a condition: send the ETag of your last read as If-Match%s", alternative)
	p.Errors = []Wrong{{Header: "If-Match", Detail: p.Detail}}
	return p
}

// take sets the document of w to a copy, because the policy in force may contain the given document.
func (w *writing) take(document any) error {
	own, field := "", ""
	w.document, own, field = signed(document, w.id, w.who.Name)
	if own == "/" {
		return BadField(field, "a path cannot contain the name \"/\": choose another name")
	}
	if w.id != "" && own != w.id {
		return BadField(field, "the path names another %s: the ID of this one is %s", w.kind, own)
	}
	w.id = own
	return nil
}

// signed returns a copy of a document with the actor as its author, and with the ID as its name if it has no name.
// It also returns the document's own ID, and the JSON pointer to the field that has this ID.
func signed(document any, id, actor string) (signed any, own, field string) {
	switch d := document.(type) {
	case *policy.Rule:
		r := *d
		r.Name = cmp.Or(r.Name, id)
		return &r, r.Name, "/name"
	case *Tier:
		t := *d
		t.Name = cmp.Or(t.Name, id)
		return &t, t.Name, "/name"
	case *policy.TierSubject:
		s := *d
		s.Subject, s.By = cmp.Or(s.Subject, id), actor
		return &s, s.Subject, "/subject"
	case *policy.Override:
		o := *d
		o.By = actor
		return &o, source.OverrideName(o.Rule, o.Key), "/key"
	}
	panic(fmt.Sprintf("control: %T is not an item", document))
}

// look sets w.before to the present item. For subjects and overrides, it searches the whole list only if the
// parameter list is true: the list may be long, and the database checks the condition anyway.
func (c *Control) look(w *writing, list bool) error {
	if c.policy.database == nil {
		return noDatabase()
	}
	if list || w.kind == Rules || w.kind == Tiers {
		w.before, w.exists = c.policy.now().find(w.kind, w.id)
	} else {
		w.before, w.exists = c.inFile(w.kind, w.id)
	}
	return nil
}

// writeIf makes a change if the condition is met. The database checks the version in the condition, because another
// instance may have given the caller a newer version than this instance knows.
func (c *Control) writeIf(ctx context.Context, w *writing) (*Written, error) {
	match, named := w.seen()
	if !named {
		if err := w.met(); err != nil {
			return nil, err
		}
		match = source.Match(w.before.Version) // version 0 is source.Absent
		if match > source.Absent && w.Match == "*" {
			match = source.Any // Match allows any version, and this instance may have an older one
		}
	}
	out, err := c.write(ctx, w, match)
	switch {
	case conflicted(err):
		return nil, Problemf(http.StatusPreconditionFailed, "the %s has changed since you read it: read it again", w.kind)
	case errors.Is(err, source.ErrNotFound):
		return nil, missing(w.kind)
	}
	return out, err
}

// seen returns the version in Match if Match is the ETag of a row in the database.
func (change *Change) seen() (source.Match, bool) {
	tags := ETags(change.Match)
	if len(tags) != 1 {
		return 0, false
	}
	return versionIn(tags[0])
}

// met returns a problem unless the item meets the condition. It checks the item as this instance knows it.
func (w *writing) met() error {
	i, exists := w.before, w.exists
	failed := func(format string, args ...any) error {
		return Problemf(http.StatusPreconditionFailed, format, args...)
	}
	if w.Absent && exists {
		return failed("the %s exists: to replace it, send its ETag %s as If-Match", w.kind, i.ETag())
	}
	tags := ETags(w.Match)
	switch {
	case len(tags) == 0, exists && slices.Contains(tags, "*"), exists && slices.Contains(tags, i.ETag()):
		return nil
	case !exists && w.document == nil:
		return missing(w.kind)
	case !exists:
		return failed("the %s does not exist: to create it, send \"If-None-Match: *\"", w.kind)
	}
	return failed("the %s has changed since you read it (the ETag is now %s): read it again", w.kind, i.ETag())
}

// logChange logs a change of an item.
func (c *Control) logChange(who Caller, kind Kind, deleted bool, version int64) {
	about := []any{"kind", string(kind), "deleted", deleted}
	if !deleted {
		about = append(about, "version", version)
	}
	c.logAct(who, "policy changed", about...)
}

// write makes a change. In a dry run, it returns the difference instead.
func (c *Control) write(ctx context.Context, w *writing, match source.Match) (*Written, error) {
	after, would, err := c.apply(ctx, w, match)
	switch {
	case err != nil:
		return nil, w.explain(err)
	case w.Dry:
		d, err := c.differs(w)
		if err == nil {
			d.LastHour, err = c.tryOut(ctx, would.document)
		}
		return &Written{ID: w.id, Difference: d}, err
	}
	c.logChange(w.who, w.kind, w.document == nil, after.Version)
	if w.document == nil {
		return &Written{ID: w.id}, nil
	}
	created := !w.exists && match <= source.Absent // a version means that the item existed
	return &Written{ID: w.id, ETag: after.ETag(), Created: created, Document: after.Document}, nil
}

func (c *Control) apply(ctx context.Context, w *writing, match source.Match) (after item, would changed, err error) {
	would, err = c.policy.change(ctx, w.who.Name, w.Dry, func(tx *source.Tx) (err error) {
		if w.document == nil {
			return remove(tx, w.kind, w.id, match)
		}
		after, err = put(tx, w.document, w.before.Disabled, match)
		return err
	})
	return after, would, err
}

// inFile returns the item of the policy file with the given ID.
func (c *Control) inFile(kind Kind, id string) (item, bool) {
	all := c.policy.now().fileItems(kind)
	i := slices.IndexFunc(all, func(i item) bool { return i.ID == id })
	if i < 0 || kind == Tiers {
		return item{}, false
	}
	return all[i], true
}

// explain returns err. If the policy is invalid because the item was deleted, it returns a problem that mentions
// the deletion instead.
func (w *writing) explain(err error) error {
	var found policy.Errors
	if w.document == nil && errors.As(err, &found) && len(found) > 0 {
		p := Mistakes(found, "-")
		p.Detail = fmt.Sprintf("the policy is invalid without this %s: %s", w.kind, p.Detail)
		return p
	}
	return err
}

// differs returns the difference that a change would make.
func (c *Control) differs(w *writing) (*Difference, error) {
	d := &Difference{DryRun: true, Effect: effectOn(&w.before, w.exists)}
	if w.document == nil {
		if i, shown := c.inFile(w.kind, w.id); shown {
			d.After = i.Document
		}
		return d, nil
	}
	d.After = w.document
	examined, place, err := c.examine(w.document)
	if err != nil {
		return nil, err
	}
	for _, n := range examined.Restarts(c.engine.Policy()) {
		d.BeginsAnew = append(d.BeginsAnew, Restart(n))
	}
	for _, warning := range examined.Warnings() {
		if _, ours := pointer(warning.Path, place); ours {
			d.Warnings = append(d.Warnings, described(warning))
		}
	}
	return d, nil
}
