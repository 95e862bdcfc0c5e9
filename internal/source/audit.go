package source

import (
	"cmp"
	"context"
	"math"
	"time"
)

// audit adds an entry to the audit log.
func (tx *Tx) audit(action, kind, target string, before, after *string) error {
	const text = "INSERT INTO sluice_audit (at, actor, action, kind, target, before, after) VALUES ($1, $2, $3, $4, $5, $6, $7)"
	_, err := tx.tx.ExecContext(tx.ctx, tx.d.dialect.text(text), formatTime(tx.at), tx.actor, action, kind, target, before, after)
	if err != nil {
		return tx.failed(err)
	}
	return nil
}

// Audit returns up to n entries of the audit log, the latest first, all of them older than the one
// with the ID before if that is not 0.
func (d *Database) Audit(ctx context.Context, before int64, n int) (all []Entry, err error) {
	const text = "SELECT id, at, actor, action, kind, target, coalesce(before, ''), coalesce(after, '') FROM sluice_audit WHERE id < $1 ORDER BY id DESC LIMIT $2"
	ctx, cancel := bounded(ctx)
	defer cancel()
	rows, err := d.read.QueryContext(ctx, d.dialect.text(text), cmp.Or(before, math.MaxInt64), n)
	if err != nil {
		return nil, d.away(err)
	}
	defer rows.Close()
	for rows.Next() {
		var e Entry
		var at string
		if err := rows.Scan(&e.ID, &at, &e.Actor, &e.Action, &e.Kind, &e.Target, &e.Before, &e.After); err != nil {
			return nil, d.away(err)
		}
		e.At = parseTime(at)
		all = append(all, e)
	}
	return all, d.away(rows.Err())
}

// Record runs do, and leaves an entry in the audit log for it: for what operators do that changes
// no row, such as a reset. It fails if either does, and then there is no entry; if what fails is
// the commit, do has been done all the same.
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
		return d.away(err)
	}
	defer func() { _ = tx.Rollback() }()
	t := &Tx{d: d, ctx: ctx, tx: tx, actor: actor, at: time.Now().UTC()}
	if err := t.audit(action, kind, target, nil, &after); err != nil {
		return d.away(err)
	}
	if err := do(); err != nil {
		return err
	}
	return d.away(tx.Commit())
}
