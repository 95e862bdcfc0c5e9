package source

import (
	"context"
	"math"
	"reflect"
	"slices"
)

// maxBack is how many entries of the audit log are searched for the last change of rules, and how many entries a
// change may have to be undone.
const maxBack = 20_000

// errLarge is an [Invalid]: undoing only part of a change would make a policy that was never in force.
var errLarge error = &Invalid{"entry", "the last change has too many entries to undo at once: import the intended policy"}

// LastChange returns the audit entries of the last change of rules, tiers and settings, in their order, or none
// without such a change. It leaves out changes that can end by themselves: tiers of subjects, overrides, and the
// shadow of the whole policy.
func (d *Database) LastChange(ctx context.Context) ([]Entry, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	all, err := d.lastChange(ctx, d.read)
	if err == errLarge {
		return nil, err
	}
	return all, d.away(err)
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
			case len(all) > 0 && (e.Actor != all[0].Actor || !e.At.Equal(all[0].At)): // entries of a transaction have the same actor and time
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

// onlyShadow reports whether an entry only turns the shadow of the whole policy on or off.
func onlyShadow(e *Entry) bool {
	if e.Kind != settingsKind.name {
		return false
	}
	was, is := SettingsRow{}, SettingsRow{}
	if e.Before != "" && decode([]byte(e.Before), &was) != nil || e.After != "" && decode([]byte(e.After), &is) != nil {
		return false
	}
	return was.saysBeside() == is.saysBeside()
}

// saysBeside returns the settings without the shadow of the whole policy.
func (r *SettingsRow) saysBeside() string {
	said := *r
	said.Document.Shadow, said.Document.Rules = "", nil
	return settingsKind.content(&said)
}

// Restore undoes the last change of rules, tiers and settings. last is the ID of the last entry of that change in
// the audit log: see [Database.LastChange]. Restore is itself a change, so a second Restore undoes the first. It
// returns a [Conflict] if there was another change since, or if SQL has changed a row.
func (tx *Tx) Restore(last int64) error {
	all, err := tx.d.lastChange(tx.ctx, tx.tx)
	if err == errLarge {
		return err
	} else if err != nil {
		return tx.failed(err)
	}
	if len(all) == 0 || all[len(all)-1].ID != last {
		return &Conflict{"audit entry", "the last", last}
	}
	var entry int64
	return tx.together(func() error { return tx.restoreAll(all) }, &entry)
}

// restoreAll undoes the changes, the last first.
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

// restore puts back the row before an entry, if the present row is the row after the entry.
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

// restoreSettings is restore for the settings, but keeps the present shadow of the whole policy.
func (tx *Tx) restoreSettings(e *Entry) error {
	was, is, err := rowsOf[SettingsRow](e)
	if err != nil {
		return err
	}
	now := &tx.before.Settings
	if now.saysBeside() != is.saysBeside() {
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

// rowsOf returns the rows before and after an entry. A missing row is zero.
func rowsOf[R any](e *Entry) (was, is R, err error) {
	if e.Before != "" {
		err = decode([]byte(e.Before), &was)
	}
	if err == nil && e.After != "" {
		err = decode([]byte(e.After), &is)
	}
	return was, is, err
}
