package source

import (
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
	for i := range rules {
		if _, err := tx.PutRule(RuleRow{Rule: rules[i], Position: positionStep * (i + 1)}, Any); err != nil {
			return err
		}
	}
	for _, old := range tx.before.Rules {
		if !slices.ContainsFunc(rules, func(r policy.Rule) bool { return r.Name == old.Name }) {
			if err := tx.DeleteRule(old.Name, Any); err != nil {
				return err
			}
		}
	}
	for _, old := range tx.before.Tiers {
		if err := tx.DeleteTier(old.Name, Any); err != nil {
			return err
		}
	}
	return nil
}

func (tx *Tx) replaceOverrides(overrides []policy.Override) error {
	left := make(map[string]*OverrideRow, len(tx.before.Overrides))
	for i := range tx.before.Overrides {
		left[overrideKind.target(&tx.before.Overrides[i])] = &tx.before.Overrides[i]
	}
	for i := range overrides {
		row := OverrideRow{Override: overrides[i]}
		target := overrideKind.target(&row)
		old := left[target]
		delete(left, target)
		if old != nil && overrideKind.says(old) == overrideKind.says(&OverrideRow{ID: old.ID, Override: row.Override}) {
			continue // a hundred thousand of them are not asked for one by one
		}
		if _, err := tx.PutOverride(row, Any); err != nil {
			return err
		}
	}
	for _, target := range slices.Sorted(maps.Keys(left)) {
		if err := tx.DeleteOverride(left[target].ID, Any); err != nil {
			return err
		}
	}
	return nil
}

func (tx *Tx) replaceSubjects(subjects []policy.TierSubject) error {
	wanted := make(map[string]bool, len(subjects))
	for i := range subjects {
		wanted[subjects[i].Subject] = true
		if _, err := tx.PutSubject(SubjectRow{TierSubject: subjects[i]}, Any); err != nil {
			return err
		}
	}
	for i := range tx.before.Subjects {
		if old := tx.before.Subjects[i].Subject; !wanted[old] {
			if err := tx.DeleteSubject(old, Any); err != nil {
				return err
			}
		}
	}
	return nil
}
