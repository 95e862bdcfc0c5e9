package control

import (
	"context"
	"fmt"
	"sync"

	"github.com/sluicehq/sluice/cmd/internal/source"
	"github.com/sluicehq/sluice/policy"
)

// written reads the policy in force as written in its sources, and changes it in the database. When the method
// change returns, the change is in force on this instance. A dry run only checks for errors.
//
// The errors of changes are [policy.Errors] for an invalid policy, [source.Invalid] for a row that cannot be
// stored, [source.Conflict], [source.ErrNotFound] for deletions, [source.ErrUnavailable] and [source.ErrFull].
type written struct {
	stack    *source.Stack
	database *source.Database // nil: the policy comes only from a file

	mu      sync.Mutex
	current *current
}

// now returns the policy in force. It returns the same value until the policy changes.
func (w *written) now() *current {
	w.mu.Lock()
	defer w.mu.Unlock()
	if doc, _ := w.stack.Document(); w.current == nil || w.current.document != doc {
		w.current = currentOf(w.stack)
	}
	return w.current
}

// put writes a document, and returns the item.
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
		return overrideItem(&r), err
	}
	return item{}, fmt.Errorf("no database keeps a %T", document)
}

// remove deletes an item if its version equals the parameter match.
func remove(tx *source.Tx, kind Kind, id string, match source.Match) error {
	switch kind {
	case Rules:
		return tx.DeleteRule(id, match)
	case Tiers:
		return tx.DeleteTier(id, match)
	case Subjects:
		return tx.DeleteSubject(id, match)
	}
	return tx.DeleteOverride(id, match)
}

// changed is the policy after a change.
type changed struct {
	*policy.Policy
	document *policy.Document // only after a dry run
}

// change makes a change and, unless the parameter dry is true, puts it into force. It returns the new policy, which
// is compiled before the change is committed.
func (w *written) change(ctx context.Context, actor string, dry bool, fn func(*source.Tx) error) (p changed, err error) {
	if dry {
		_, after, err := w.database.DryRun(ctx, actor, fn)
		if err != nil {
			return p, err
		}
		p.Policy, p.document, err = w.stack.Would(after)
		return p, err
	}
	if _, err := w.database.Change(ctx, actor, fn); err != nil {
		return p, err
	}
	err = w.stack.Contents(w.database.Known())
	p.Policy = w.stack.Policy()
	return p, err
}

// record runs an operation outside the database. If the operation succeeds and a database is used, record adds an
// audit entry.
func (w *written) record(ctx context.Context, e source.Entry, do func() error) error {
	if w.database == nil {
		return do()
	}
	return w.database.Record(ctx, e.Actor, e.Action, e.Kind, e.Target, string(e.After), do)
}
