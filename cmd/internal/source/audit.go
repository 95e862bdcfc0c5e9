package source

import (
	"cmp"
	"context"
	"math"
	"time"
)

const auditTable = "sluice_audit"

var auditColumns = []string{"at", "actor", "action", "kind", "target", "before", "after"}

// entry returns the values of auditColumns for an entry.
func (tx *Tx) entry(action, kind, target string, before, after *string) []any {
	return []any{formatTime(tx.at), tx.actor, action, kind, target, before, after}
}

// audit adds an entry to the audit log. If several rules are changed together, it adds an entry about a rule to
// tx.set instead.
func (tx *Tx) audit(action, kind, target string, before, after *string) error {
	if tx.set != nil && kind == ruleKind.name {
		tx.set.add(action, target, before, after)
		return nil
	}
	return tx.insert(auditTable, auditColumns, [][]any{tx.entry(action, kind, target, before, after)})
}

// Audit returns up to n entries of the audit log, the latest first. If the ID is not 0, Audit returns only entries that
// are older than the entry with this ID.
func (d *Database) Audit(ctx context.Context, id int64, n int) (all []Entry, err error) {
	const text = "SELECT id, at, actor, action, kind, target, coalesce(before, ''), coalesce(after, '') FROM sluice_audit WHERE id < $1 ORDER BY id DESC LIMIT $2"
	ctx, cancel := bounded(ctx)
	defer cancel()
	all, err = readEntries(ctx, d.read, d.dialect.text(text), cmp.Or(id, math.MaxInt64), n)
	return all, d.unavailable(err)
}

// readEntries reads the entries of a query, which must select the fields of an Entry in order.
func readEntries(ctx context.Context, q query, text string, args ...any) (all []Entry, err error) {
	rows, err := q.QueryContext(ctx, text, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var e Entry
		var at string
		if err := rows.Scan(&e.ID, &at, &e.Actor, &e.Action, &e.Kind, &e.Target, &e.Before, &e.After); err != nil {
			return nil, err
		}
		e.At = parseTime(at)
		all = append(all, e)
	}
	return all, rows.Err()
}

// Record runs the function do and adds an entry to the audit log. It is for operations that do not change a row,
// such as a reset. If the function fails or the entry cannot be added, Record returns an error and the log does not
// change. If the commit fails, the function has run without an entry.
func (d *Database) Record(ctx context.Context, actor, action, kind, target, after string, do func() error) error {
	if err := checkTexts("actor", actor, "target", target); err != nil {
		return err
	}
	if !isText(after) {
		return &Invalid{"after", notText}
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	tx, err := d.write.BeginTx(ctx, nil)
	if err != nil {
		return d.unavailable(err)
	}
	defer func() { _ = tx.Rollback() }()
	t := &Tx{d: d, ctx: ctx, tx: tx, actor: actor, at: time.Now().UTC()}
	if err := t.audit(action, kind, target, nil, &after); err != nil {
		return d.unavailable(err)
	}
	if err := do(); err != nil {
		return err
	}
	return d.commit(tx)
}
