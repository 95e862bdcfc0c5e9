package source

import (
	"context"
	"strconv"
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

// AuditQuery says which entries are wanted: of what is not empty, those that have it.
type AuditQuery struct {
	Kind, Target, Actor string
	Page
}

// Audit returns a page of the audit log, the latest entries first, and the cursor of the next.
func (d *Database) Audit(ctx context.Context, q AuditQuery) (all []Entry, next string, err error) {
	s := newSelection("SELECT id, at, actor, action, kind, target, coalesce(before, ''), coalesce(after, '') FROM sluice_audit")
	s.equal("kind", q.Kind)
	s.equal("target", q.Target)
	s.equal("actor", q.Actor)
	if q.After != "" {
		id, err := strconv.ParseInt(q.After, 10, 64)
		if err != nil {
			return nil, "", errCursor
		}
		s.where("id <", id)
	}
	if err := s.check(); err != nil {
		return nil, "", err
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	rows, err := d.read.QueryContext(ctx, d.dialect.text(s.text("id DESC", q.limit()+1)), s.args...)
	if err != nil {
		return nil, "", d.away(err)
	}
	defer rows.Close()
	for rows.Next() {
		var e Entry
		var at string
		if err := rows.Scan(&e.ID, &at, &e.Actor, &e.Action, &e.Kind, &e.Target, &e.Before, &e.After); err != nil {
			return nil, "", d.away(err)
		}
		e.At = parseTime(at)
		all = append(all, e)
	}
	if err := rows.Err(); err != nil {
		return nil, "", d.away(err)
	}
	all, next = cut(all, q.limit(), func(e *Entry) string { return strconv.FormatInt(e.ID, 10) })
	return all, next, nil
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
