package control

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/sluicehq/sluice/cmd/internal/source"
	"github.com/sluicehq/sluice/policy"
)

// written reads the policy in force as it is written, and changes it in the database. A change
// is in force here when it returns. A dry run only returns what is wrong.
//
// Errors of changes are a [policy.Errors] for an invalid policy, a [source.Invalid] for a row that cannot be kept,
// a [source.Conflict], [source.ErrNotFound] of a deletion, [source.ErrAway] or [source.ErrFull].
type written struct {
	stack    *source.Stack
	database *source.Database // nil: there is only a file

	mu      sync.Mutex
	current *current
	ids     map[int64]overrideID // of overrides, by the IDs of their rows
	rowIDs  map[string]int64     // the reverse
}

// now returns the policy in force: the same value until it changes.
func (w *written) now() *current {
	w.mu.Lock()
	defer w.mu.Unlock()
	doc, contents := w.stack.Document()
	if w.current == nil || w.current.document != doc {
		w.current = &current{document: doc, file: w.stack.FileDocument(), fileBefore: w.stack.FileBefore(), contents: contents}
	}
	return w.current
}

// rows returns the rows of a kind.
func (w *written) rows(c *source.Contents, kind Kind) (all []item) {
	if c == nil {
		return nil
	}
	switch kind {
	case Rules:
		for i := range c.Rules {
			all = append(all, ruleItem(&c.Rules[i]))
		}
	case Tiers:
		for i := range c.Tiers {
			all = append(all, tierItem(&c.Tiers[i]))
		}
	case Subjects:
		for i := range c.Subjects {
			all = append(all, subjectItem(&c.Subjects[i]))
		}
	case Overrides:
		w.forget(len(c.Overrides))
		for i := range c.Overrides {
			o := &c.Overrides[i]
			all = append(all, rowItem(w.idOf(o), &o.Meta, &o.Override))
		}
	}
	return all
}

// items returns the rows of a kind, and the items of the file that the database does not have.
func (w *written) items(now *current, kind Kind) []item {
	all := w.rows(now.contents, kind)
	slices.SortFunc(all, byID)
	var more []item
	for _, i := range now.fileItems(kind) {
		if _, found := slices.BinarySearchFunc(all, i, byID); !found {
			more = append(more, i)
		}
	}
	all = append(all, more...)
	slices.SortFunc(all, byID)
	return all
}

func rowItem(id string, m *source.Meta, document any) item {
	return item{ID: id, Version: m.Version, UpdatedAt: m.UpdatedAt, UpdatedBy: m.UpdatedBy, Document: document}
}

func ruleItem(r *source.RuleRow) item {
	i := rowItem(r.Name, &r.Meta, &r.Rule)
	i.Disabled = r.Disabled
	return i
}

func tierItem(r *source.TierRow) item {
	return rowItem(r.Name, &r.Meta, &Tier{Name: r.Name, Description: r.Description, Limits: r.Limits})
}

func subjectItem(r *source.SubjectRow) item {
	return rowItem(r.Subject, &r.Meta, &r.TierSubject)
}

// forget drops the IDs if most of them are of rows that are gone.
func (w *written) forget(rows int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.ids) > 2*rows+1000 {
		w.ids, w.rowIDs = nil, nil
	}
}

// overrideID is the ID of an override, and what it was made of.
type overrideID struct {
	id, rule string
	key      map[string]string
}

// idOf returns the ID of an override. It is kept: there may be a hundred
// thousand.
func (w *written) idOf(r *source.OverrideRow) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	known := w.ids[r.ID]
	if known.rule != r.Rule || !maps.Equal(known.key, r.Key) { // databases may reuse the ID of a row
		known = overrideID{OverrideID(r.Rule, r.Key), r.Rule, r.Key}
		if w.ids == nil {
			w.ids, w.rowIDs = map[int64]overrideID{}, map[string]int64{}
		}
		w.ids[r.ID] = known
	}
	w.rowIDs[known.id] = r.ID
	return known.id
}

// put writes a document, and returns its item.
func put(tx *source.Tx, document any, disabled bool, match source.Match) (item, error) {
	switch d := document.(type) {
	case *policy.Rule:
		r, err := tx.PutRule(source.RuleRow{Rule: *d, Disabled: disabled}, match)
		return ruleItem(&r), err
	case *Tier:
		r, err := tx.PutTier(source.TierRow{Name: d.Name, Description: d.Description, Limits: d.Limits}, match)
		return tierItem(&r), err
	case *policy.TierSubject:
		r, err := tx.PutSubject(source.SubjectRow{TierSubject: *d}, match)
		return subjectItem(&r), err
	case *policy.Override:
		r, err := tx.PutOverride(source.OverrideRow{Override: *d}, match)
		return rowItem(OverrideID(r.Rule, r.Key), &r.Meta, &r.Override), err
	}
	return item{}, fmt.Errorf("no database keeps a %T", document)
}

// remove deletes an item if its version is match.
func (w *written) remove(tx *source.Tx, kind Kind, id string, match source.Match) error {
	switch kind {
	case Rules:
		return tx.DeleteRule(id, match)
	case Tiers:
		return tx.DeleteTier(id, match)
	case Subjects:
		return tx.DeleteSubject(id, match)
	}
	row, found := w.overrideIn(tx.Contents().Overrides, id)
	if !found {
		return source.ErrNotFound
	}
	return tx.DeleteOverride(row, match)
}

// overrideIn returns the row of an override. The row that is known here may be older than the
// rows.
func (w *written) overrideIn(rows []source.OverrideRow, id string) (int64, bool) {
	w.mu.Lock()
	known := w.rowIDs[id]
	w.mu.Unlock()
	i, found := slices.BinarySearchFunc(rows, known, func(r source.OverrideRow, id int64) int { return cmp.Compare(r.ID, id) })
	if found && w.idOf(&rows[i]) == id {
		return known, true
	}
	for i := range rows {
		if w.idOf(&rows[i]) == id {
			return rows[i].ID, true
		}
	}
	return 0, false
}

// change makes a change, puts it into force unless it is dry, and returns the new policy, which
// was compiled once, before the change was committed.
func (w *written) change(ctx context.Context, actor string, dry bool, fn func(*source.Tx) error) (*policy.Policy, error) {
	if dry {
		_, after, err := w.database.DryRun(ctx, actor, fn)
		if err != nil {
			return nil, err
		}
		return w.stack.Would(after)
	}
	if _, err := w.database.Change(ctx, actor, fn); err != nil {
		return nil, err
	}
	err := w.stack.Contents(w.database.Known())
	return w.stack.Policy(), err
}

// record does an act outside the database, with an audit entry if there is a database. There is none if do fails.
func (w *written) record(ctx context.Context, e source.Entry, do func() error) error {
	if w.database == nil {
		return do()
	}
	return w.database.Record(ctx, e.Actor, e.Action, e.Kind, e.Target, string(e.After), do)
}
