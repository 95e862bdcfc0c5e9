package source

import (
	"cmp"
	"errors"
	"maps"
	"reflect"
	"slices"

	"github.com/sluicehq/sluice/policy"
)

// Replace makes the database say what a document does, and nothing else: what is not in it is
// deleted. Limits of tiers are then all in the rules. What is the same stays as it is.
func (tx *Tx) Replace(doc *policy.Document) error {
	settings := *doc
	settings.Rules, settings.Overrides, settings.Subjects = nil, nil, nil
	settings.Lists, settings.Answers = inlineLists(doc.Lists), inlineAnswers(doc.Answers)
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

// inlineLists returns lists with their networks, where they were in files.
func inlineLists(lists map[string]policy.List) map[string]policy.List {
	all := maps.Clone(lists)
	for name, l := range all {
		l.File = ""
		all[name] = l
	}
	return all
}

// inlineAnswers returns answers with their bodies, where they were in files.
func inlineAnswers(answers map[string]policy.Answer) map[string]policy.Answer {
	all := maps.Clone(answers)
	for status, a := range all {
		a.File, a.Bodies = "", slices.Clone(a.Bodies)
		for i := range a.Bodies {
			a.Bodies[i].File = ""
		}
		all[status] = a
	}
	return all
}

func (tx *Tx) replaceRules(rules []policy.Rule) error {
	rows := make([]RuleRow, len(rules))
	for i := range rules {
		rows[i] = RuleRow{Rule: rules[i], Position: positionStep * (i + 1)}
		if err := rows[i].check(); err != nil {
			return err
		}
	}
	err := replaceRows(tx, ruleKind, tx.before.Rules, rows,
		func(*RuleRow) *string { return new(string) }, // nobody is said to have made it
		func(r RuleRow) error { _, err := tx.PutRule(r, Any); return err },
		func(r *RuleRow) error { return tx.DeleteRule(r.Name, Any) })
	if err != nil {
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
		if err := rows[i].check(); err != nil {
			return err
		}
	}
	return replaceRows(tx, overrideKind, tx.before.Overrides, rows,
		func(r *OverrideRow) *string { return &r.By },
		func(r OverrideRow) error { _, err := tx.PutOverride(r, Any); return err },
		func(r *OverrideRow) error { return tx.DeleteOverride(r.ID, Any) })
}

func (tx *Tx) replaceSubjects(subjects []policy.TierSubject) error {
	rows := make([]SubjectRow, len(subjects))
	for i := range subjects {
		rows[i].TierSubject = subjects[i]
		if err := rows[i].check(); err != nil {
			return err
		}
	}
	return replaceRows(tx, subjectKind, tx.before.Subjects, rows,
		func(r *SubjectRow) *string { return &r.By },
		func(r SubjectRow) error { _, err := tx.PutSubject(r, Any); return err },
		func(r *SubjectRow) error { return tx.DeleteSubject(r.Subject, Any) })
}

// replaceRows makes rows of a kind those of before. There may be a hundred thousand: those that
// stay as they are are not asked for one by one. Who has made a row is what by points to.
func replaceRows[R any](tx *Tx, k *kind[R], before, rows []R, by func(*R) *string, put func(R) error, remove func(*R) error) error {
	left := byTarget(k, before)
	var added []R
	for _, r := range lastOf(k, rows) {
		old, found := left[k.target(&r)]
		if !found {
			*by(&r) = cmp.Or(*by(&r), tx.actor)
			added = append(added, r)
			continue
		}
		delete(left, k.target(&r))
		same := r
		*by(&same) = cmp.Or(*by(&r), *by(old))
		values, err := k.values(&same)
		switch {
		case err != nil:
			return err
		case k.meta(old).fault == "" && k.same(old, values):
			continue
		}
		if err := put(r); err != nil {
			return err
		}
	}
	for _, target := range slices.Sorted(maps.Keys(left)) {
		if err := remove(left[target]); err != nil {
			return err
		}
	}
	return insertAll(tx, k, added)
}

// byTarget returns rows by what finds them.
func byTarget[R any](k *kind[R], rows []R) map[string]*R {
	all := make(map[string]*R, len(rows))
	for i := range rows {
		all[k.target(&rows[i])] = &rows[i]
	}
	return all
}

// lastOf returns rows of which no two are found by the same: the last of them counts.
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
