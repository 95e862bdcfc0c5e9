package source

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"
)

// Match is a condition for the change of a row: the Version that the row must have. With a Match, a caller cannot
// overwrite a change that it has not seen.
type Match int64

const (
	Any    Match = -1 // no condition
	Absent Match = 0  // the row must not exist
)

// Conflict is the error of a change whose [Match] fails, because the row has changed.
type Conflict struct {
	Kind, Target string
	Version      int64 // the version of the row; 0: missing
}

func (c *Conflict) Error() string {
	if c.Version == 0 {
		return fmt.Sprintf("%s %s has been deleted", c.Kind, c.Target)
	}
	return fmt.Sprintf("%s %s has changed to version %d: read it again", c.Kind, c.Target, c.Version)
}

// Invalid is the error of a row that cannot be stored. The error of an invalid policy is a [policy.Errors].
type Invalid struct {
	Field   string // the field's name in JSON, such as "until" or "key"
	Message string // the error and a remedy
}

func (e *Invalid) Error() string { return e.Field + ": " + e.Message }

// Tx changes a database: see [Database.Change]. After the database has failed in one method, all methods return the
// same error without effect.
type Tx struct {
	d     *Database
	ctx   context.Context
	tx    *sql.Tx
	actor string
	at    time.Time
	err   error // the first error of the database

	before *Contents
	set    *ruleSet // collects the entries of rules that are changed together
}

// Contents returns the contents of the database before the change.
func (tx *Tx) Contents() *Contents { return tx.before }

// Change runs fn in a transaction, and commits it with an entry in the audit log for each changed row, under the
// name of actor. The rows of one [Tx.ChangeRules] share an entry. Change returns the new version of the database.
//
// Changes by all instances run one after the other: fn sees all earlier commits. fn should be quick, and call no
// other service. If ctx has no deadline, a change may take 30 s.
//
// Change returns the error of fn, the [policy.Errors] of an invalid policy (their paths name rows, as in
// rules["login"].limit, overrides[17].key["api_key"] or tiers["pro"].limits["login"]), an error that matches
// [ErrUnavailable], or the error of ctx. After an error nothing is changed, except as described at [ErrUnconfirmed].
func (d *Database) Change(ctx context.Context, actor string, fn func(*Tx) error) (version int64, err error) {
	_, after, err := d.change(ctx, actor, fn, true)
	if err != nil {
		return 0, err
	}
	return after.Version, nil
}

// DryRun makes a change like Change, but does not commit it. It returns the contents before and after the change.
func (d *Database) DryRun(ctx context.Context, actor string, fn func(*Tx) error) (before, after *Contents, err error) {
	return d.change(ctx, actor, fn, false)
}

func (d *Database) change(ctx context.Context, actor string, fn func(*Tx) error, commit bool) (before, after *Contents, err error) {
	if err := checkText("actor", actor, true); err != nil {
		return nil, nil, err
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	tx, err := d.write.BeginTx(ctx, nil)
	if err != nil {
		return nil, nil, d.unavailable(err)
	}
	defer func() { _ = tx.Rollback() }()
	if before, err = d.contents(ctx, tx, d.base(), d.dialect.lock()); err != nil {
		return nil, nil, d.unavailable(err)
	}
	t := &Tx{d: d, ctx: ctx, tx: tx, actor: actor, at: time.Now().UTC(), before: before}
	if err := fn(t); t.err == nil && err != nil {
		return nil, nil, err
	}
	if t.err != nil {
		return nil, nil, d.unavailable(t.err)
	}
	if after, err = d.contents(ctx, tx, before, ""); err != nil {
		return nil, nil, d.unavailable(err)
	}
	if !after.SamePolicy(before) {
		err = d.Check(after)
	}
	if err != nil || !commit {
		return before, after, err
	}
	if err := d.commit(tx); err != nil {
		return nil, nil, err
	}
	d.remember(after)
	d.wake()
	return before, after, nil
}

// base returns the known contents, from which a transaction can start. It returns nil if the database may have lost
// commits that these contain.
func (d *Database) base() *Contents {
	if d.doubt.Load() {
		return nil
	}
	return d.known.Load()
}

// failed keeps the first error of the database.
func (tx *Tx) failed(err error) error {
	if tx.err == nil {
		tx.err = err
	}
	return tx.err
}

// execute executes a statement.
func (tx *Tx) execute(text string, args ...any) error {
	if tx.err != nil {
		return tx.err
	}
	if _, err := tx.tx.ExecContext(tx.ctx, tx.d.dialect.text(text), args...); err != nil {
		return tx.failed(err)
	}
	return nil
}

// put writes a row unless it equals the stored row with the same key. It returns the row that is stored afterwards.
// The function complete, if not nil, fills in missing fields of r; if found is true, old is the stored row.
func put[R any](tx *Tx, k *kind[R], r R, match Match, complete func(r, old *R, found bool) error) (R, error) {
	if err := k.check(&r); err != nil {
		return r, err
	}
	if err := checkAll(k.name, reflect.ValueOf(r)); err != nil {
		return r, err
	}
	values, err := k.values(&r)
	if err != nil {
		return r, err
	}
	old, found, err := k.stored(tx, values[:k.key])
	if err != nil {
		return r, err
	}
	if err := k.matches(&old, found, &r, match); err != nil {
		return r, err
	}
	if complete != nil {
		if err := complete(&r, &old, found); err != nil {
			return r, err
		}
	}
	if found {
		if same, err := k.same(&old, &r); same || err != nil {
			return old, err
		}
	}
	k.sign(&r, tx.actor)
	if values, err = k.values(&r); err != nil {
		return r, err
	}
	action := "create"
	if found {
		action, err = "replace", k.update(tx, values)
	} else {
		err = k.insert(tx, [][]any{values})
	}
	if err != nil {
		return r, err
	}
	now, _, err := k.stored(tx, values[:k.key])
	if err != nil {
		return r, err
	}
	return now, tx.audit(action, k.name, k.target(&now), k.text(&old, found), k.text(&now, true))
}

// remove deletes the row with the given key.
func remove[R any](tx *Tx, k *kind[R], match Match, target string, key ...any) error {
	old, found, err := k.stored(tx, key)
	if err != nil {
		return err
	}
	if !found {
		return notFound(k.name, target)
	}
	if err := k.matches(&old, true, &old, match); err != nil {
		return err
	}
	if err := k.remove(tx, key); err != nil {
		return err
	}
	return tx.audit("delete", k.name, k.target(&old), k.text(&old, true), nil)
}

// notFoundError is an [ErrNotFound].
type notFoundError struct{ kind, target string }

func (e *notFoundError) Error() string        { return fmt.Sprintf("unknown %s %s", e.kind, e.target) }
func (e *notFoundError) Is(target error) bool { return target == ErrNotFound }

func notFound(kind, target string) error { return &notFoundError{kind, target} }

// stored returns the row with the given key.
func (k *kind[R]) stored(tx *Tx, key []any) (r R, found bool, err error) {
	if tx.err != nil {
		return r, false, tx.err
	}
	r, found, err = k.find(tx.ctx, tx.d, tx.tx, key)
	if err != nil {
		return r, false, tx.failed(err)
	}
	return r, found, nil
}

// matches returns a [Conflict] unless the condition match is met.
func (k *kind[R]) matches(old *R, found bool, r *R, match Match) error {
	var version int64
	if found {
		version = k.meta(old).Version
	}
	if match == Any || int64(match) == version {
		return nil
	}
	return &Conflict{k.name, k.target(r), version}
}

// same reports whether the row old is readable and has the same contents as r. If r has no author, same ignores the
// author of old.
func (k *kind[R]) same(old, r *R) (bool, error) {
	signed := *r
	k.sign(&signed, k.author(old))
	is, err := k.values(&signed)
	if err != nil || k.meta(old).fault != "" {
		return false, err
	}
	was, err := k.values(old)
	return slices.Equal(was, is), err
}

// text returns a row as the audit log stores it.
func (k *kind[R]) text(r *R, found bool) *string {
	if !found {
		return nil
	}
	text, err := encode(r)
	if err != nil {
		text = fmt.Sprintf("%q", err.Error())
	}
	return &text
}

var errNoVersion = errors.New("the row of sluice_version is gone")
