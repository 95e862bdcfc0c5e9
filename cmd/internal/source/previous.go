package source

import (
	"context"
	"math"
	"reflect"
	"slices"
)

// maxBack bounds the audit entries that are read to find the last change of rules, and the entries of a change that
// can be undone.
const maxBack = 20_000

// errLarge is the error for a change that is too large to be undone. Undoing only a part would make a policy that
// was never in force.
var errLarge error = &Invalid{"entry", "the last change has too many entries to undo at once: import the intended policy"}

// LastChange returns the audit entries of the last change of rules, tiers or settings, in the order of the log, or
// nil without such a change. It ignores changes that can end by themselves: tiers of subjects, overrides, and the
// shadow mode of the whole policy.
func (d *Database) LastChange(ctx context.Context) ([]Entry, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	all, err := d.lastChange(ctx, d.read)
	if err == errLarge {
		return nil, err
	}
	return all, d.unavailable(err)
}

func (d *Database) lastChange(ctx context.Context, q query) (all []Entry, err error) {
	const some = 200
	const text = "SELECT id, at, actor, action, kind, target, coalesce(before, ''), coalesce(after, '') FROM sluice_audit" +
		" WHERE id < $1 AND kind IN ('rule', 'rules', 'tier', 'settings') AND action IN ('create', 'replace', 'delete') ORDER BY id DESC LIMIT $2"
	for before, seen := int64(math.MaxInt64), 0; ; seen += some {
		if seen >= maxBack {
			return nil, errLarge
		}
		page, err := readEntries(ctx, q, d.dialect.text(text), before, some)
		if err != nil {
			return nil, err
		}
		for _, e := range page {
			switch {
			case onlyShadow(&e):
				continue
			case len(all) > 0 && (e.Actor != all[0].Actor || !e.At.Equal(all[0].At)): // the entries of a transaction have the same actor and time
				slices.Reverse(all)
				return all, nil
			}
			parts, err := e.parts()
			if err != nil {
				return nil, err
			}
			slices.Reverse(parts)
			all = append(all, parts...)
		}
		if len(page) < some {
			slices.Reverse(all)
			return all, nil
		}
		before = page[len(page)-1].ID
	}
}

// onlyShadow reports whether an entry changes only the shadow mode of the whole policy.
func onlyShadow(e *Entry) bool {
	if e.Kind != settingsKind.name {
		return false
	}
	was, is := SettingsRow{}, SettingsRow{}
	if e.Before != "" && decode([]byte(e.Before), &was) != nil || e.After != "" && decode([]byte(e.After), &is) != nil {
		return false
	}
	return was.withoutShadow() == is.withoutShadow()
}

// withoutShadow returns the settings as text, without the shadow mode of the whole policy.
func (r *SettingsRow) withoutShadow() string {
	row := *r
	row.Document.Shadow, row.Document.Rules = "", nil
	return settingsKind.content(&row)
}

// Restore undoes the last change of rules, tiers or settings. The ID is that of the change's last entry in the audit
// log: see [Database.LastChange]. Restore is itself a change, so a second Restore undoes the first. It returns a
// [Conflict] if another change was made since, or if SQL has changed a row.
func (tx *Tx) Restore(id int64) error {
	all, err := tx.d.lastChange(tx.ctx, tx.tx)
	if err == errLarge {
		return err
	} else if err != nil {
		return tx.failed(err)
	}
	if len(all) == 0 || all[len(all)-1].ID != id {
		return &Conflict{"audit entry", "the last", id}
	}
	var entry int64
	return tx.together(func() error { return tx.restoreAll(all) }, &entry)
}

// restoreAll undoes the changes of entries, the last one first.
func (tx *Tx) restoreAll(all []Entry) (err error) {
	for _, e := range slices.Backward(all) {
		switch e.Kind {
		case ruleKind.name:
			err = restore(tx, ruleKind, &e)
		case tierKind.name:
			err = restore(tx, tierKind, &e)
		default:
			err = tx.restoreSettings(&e)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// restore restores the row from before an entry. The present row must be the row after the entry.
func restore[R any](tx *Tx, k *kind[R], e *Entry) error {
	was, is, err := rowsOf[R](e)
	if err != nil {
		return err
	}
	row := &is
	if e.After == "" {
		row = &was
	}
	values, err := k.values(row)
	if err != nil {
		return err
	}
	now, found, err := k.stored(tx, values[:k.key])
	if err != nil {
		return err
	}
	if found != (e.After != "") || found && k.content(&now) != k.content(&is) {
		return &Conflict{k.name, e.Target, k.meta(&now).Version}
	}
	if e.Before == "" {
		return remove(tx, k, Any, e.Target, values[:k.key]...)
	}
	_, err = put(tx, k, was, Any, nil)
	return err
}

// restoreSettings restores the settings like restore, but keeps the present shadow mode of the whole policy.
func (tx *Tx) restoreSettings(e *Entry) error {
	was, is, err := rowsOf[SettingsRow](e)
	if err != nil {
		return err
	}
	now := &tx.before.Settings
	if now.withoutShadow() != is.withoutShadow() {
		return &Conflict{settingsKind.name, e.Target, now.Version}
	}
	doc := was.Document
	doc.Shadow, doc.Rules = now.Document.Shadow, nil
	if reflect.ValueOf(doc).IsZero() {
		return tx.DeleteSettings(Any)
	}
	_, err = tx.PutSettings(doc, Any)
	return err
}

// rowsOf returns the rows before and after an entry. A missing row is the zero value.
func rowsOf[R any](e *Entry) (was, is R, err error) {
	if e.Before != "" {
		err = decode([]byte(e.Before), &was)
	}
	if err == nil && e.After != "" {
		err = decode([]byte(e.After), &is)
	}
	return was, is, err
}
