package source

import (
	"errors"
	"maps"
	"reflect"
	"slices"

	"github.com/sluicehq/sluice/policy"
)

// Replace makes the database equal to a document, and deletes everything else except tokens. Afterwards, the
// rules contain the limits of the tiers, and the separate table of tiers is empty. Equal rows are not written.
func (tx *Tx) Replace(doc *policy.Document) error {
	settings := Inlined(*doc)
	settings.Rules, settings.Overrides, settings.Subjects = nil, nil, nil
	if err := tx.replaceSettings(settings); err != nil {
		return err
	}
	return errors.Join(tx.replaceRules(doc.Rules), tx.replaceOverrides(doc.Overrides), tx.replaceSubjects(doc.Subjects))
}

func (tx *Tx) replaceSettings(settings policy.Document) error {
	if !reflect.ValueOf(settings).IsZero() {
		_, err := tx.PutSettings(settings, Any)
		return err
	}
	if tx.before.Settings.Version > 0 {
		return tx.DeleteSettings(Any)
	}
	return nil
}

func (tx *Tx) replaceRules(rules []policy.Rule) error {
	rows := make([]RuleRow, len(rules))
	for i := range rules {
		rows[i] = RuleRow{Rule: rules[i], Position: positionStep * (i + 1)}
	}
	if err := replaceRows(tx, ruleKind, tx.before.Rules, rows); err != nil {
		return err
	}
	for _, old := range tx.before.Tiers {
		if err := tx.DeleteTier(old.Name, Any); err != nil {
			return err
		}
	}
	return nil
}

func (tx *Tx) replaceOverrides(overrides []policy.Override) error {
	rows := make([]OverrideRow, len(overrides))
	for i := range overrides {
		rows[i].Override = overrides[i]
	}
	return replaceRows(tx, overrideKind, tx.before.Overrides, rows)
}

func (tx *Tx) replaceSubjects(subjects []policy.TierSubject) error {
	rows := make([]SubjectRow, len(subjects))
	for i := range subjects {
		rows[i].TierSubject = subjects[i]
	}
	return replaceRows(tx, subjectKind, tx.before.Subjects, rows)
}

// replaceRows replaces before, the present rows of a kind, with the parameter rows. It compares both in memory instead
// of reading the database row by row, because there may be a hundred thousand rows.
func replaceRows[R any](tx *Tx, k *kind[R], before, rows []R) error {
	for i := range rows {
		if err := k.check(&rows[i]); err != nil {
			return err
		}
	}
	left := byTarget(k, before)
	var added []R
	for _, r := range lastOf(k, rows) {
		old, found := left[k.target(&r)]
		if !found {
			k.sign(&r, tx.actor)
			added = append(added, r)
			continue
		}
		delete(left, k.target(&r))
		if same, err := k.same(old, &r); err != nil {
			return err
		} else if same {
			continue
		}
		if _, err := put(tx, k, r, Any, nil); err != nil {
			return err
		}
	}
	for _, target := range slices.Sorted(maps.Keys(left)) {
		values, err := k.values(left[target])
		if err != nil {
			return err
		}
		if err := remove(tx, k, Any, target, values[:k.key]...); err != nil {
			return err
		}
	}
	return insertAll(tx, k, added)
}

// byTarget returns rows by their target.
func byTarget[R any](k *kind[R], rows []R) map[string]*R {
	all := make(map[string]*R, len(rows))
	for i := range rows {
		all[k.target(&rows[i])] = &rows[i]
	}
	return all
}

// lastOf returns the last row of each target.
func lastOf[R any](k *kind[R], rows []R) []R {
	last := byTarget(k, rows)
	if len(last) == len(rows) {
		return rows
	}
	var all []R
	for i := range rows {
		if last[k.target(&rows[i])] == &rows[i] {
			all = append(all, rows[i])
		}
	}
	return all
}
