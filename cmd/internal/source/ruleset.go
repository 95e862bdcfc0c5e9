package source

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// RuleChange is the change of one rule in [Tx.ChangeRules].
type RuleChange struct {
	Row    RuleRow
	Delete bool // delete the rule with the name of Row
	Match  Match
}

// setKind is the kind of an audit entry about several rules that were changed together. Before and After of the
// entry are lists of rows.
const setKind = "rules"

// ruleSet collects the audit entries of rules that are changed together.
type ruleSet struct {
	action, target string
	names          []string
	before, after  []json.RawMessage
}

func (s *ruleSet) add(action, name string, before, after *string) {
	s.action, s.target = action, name
	s.names = append(s.names, name)
	if before != nil {
		s.before = append(s.before, json.RawMessage(*before))
	}
	if after != nil {
		s.after = append(s.after, json.RawMessage(*after))
	}
}

// ChangeRules makes all changes with one entry in the audit log. It returns the ID of the entry, or 0 if no rule
// has changed. The error joins the errors of all changes whose condition fails.
func (tx *Tx) ChangeRules(all []RuleChange) (entry int64, err error) {
	err = tx.together(func() error {
		var errs []error
		for _, c := range all {
			if c.Delete {
				err := tx.DeleteRule(c.Row.Name, c.Match)
				if errors.Is(err, ErrNotFound) {
					err = &Conflict{ruleKind.name, c.Row.Name, 0}
				}
				errs = append(errs, err)
				continue
			}
			_, err := put(tx, ruleKind, c.Row, c.Match, func(r, old *RuleRow, found bool) error {
				r.Disabled = found && old.Disabled
				return tx.setPosition(r, old, found)
			})
			errs = append(errs, err)
		}
		return errors.Join(errs...)
	}, &entry)
	return entry, err
}

// together runs fn, and writes one audit entry for all rules that fn changes. It sets entry to the ID of the audit
// entry.
func (tx *Tx) together(fn func() error, entry *int64) error {
	s := &ruleSet{}
	tx.set = s
	err := fn()
	tx.set = nil
	if err != nil || len(s.names) == 0 {
		return err
	}
	kind := ruleKind.name
	before, after := first(s.before), first(s.after)
	if len(s.names) > 1 {
		s.action, s.target, kind = "replace", namesOf(s.names), setKind
		if before, err = listOf(s.before); err != nil {
			return err
		}
		if after, err = listOf(s.after); err != nil {
			return err
		}
	}
	if err := tx.audit(s.action, kind, s.target, before, after); err != nil {
		return err
	}
	if *entry, err = scalar(tx.ctx, tx.tx, "SELECT max(id) FROM sluice_audit"); err != nil {
		return tx.failed(err)
	}
	return nil
}

func first(rows []json.RawMessage) *string {
	if len(rows) == 0 {
		return nil
	}
	text := string(rows[0])
	return &text
}

func listOf(rows []json.RawMessage) (*string, error) {
	if len(rows) == 0 {
		return nil, nil
	}
	text, err := encode(rows)
	return &text, err
}

// maxNames bounds the rules that are named in the target of an audit entry.
const maxNames = 10

func namesOf(names []string) string {
	text := strings.Join(names[:min(len(names), maxNames)], ", ")
	if more := len(names) - maxNames; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// parts splits an entry about several rules into an entry for each rule, ordered by name. It returns other entries
// unchanged.
func (e *Entry) parts() ([]Entry, error) {
	if e.Kind != setKind {
		return []Entry{*e}, nil
	}
	var all []Entry
	index := map[string]int{}
	of := func(list Row, set func(*Entry, Row)) error {
		if list == "" {
			return nil
		}
		var rows []json.RawMessage
		if err := decode([]byte(list), &rows); err != nil {
			return err
		}
		for _, row := range rows {
			var r RuleRow
			if err := decode(row, &r); err != nil {
				return err
			}
			i, known := index[r.Name]
			if !known {
				i = len(all)
				index[r.Name] = i
				all = append(all, Entry{ID: e.ID, At: e.At, Actor: e.Actor, Action: e.Action, Kind: ruleKind.name, Target: r.Name})
			}
			set(&all[i], Row(row))
		}
		return nil
	}
	err := errors.Join(
		of(e.Before, func(e *Entry, row Row) { e.Before = row }),
		of(e.After, func(e *Entry, row Row) { e.After = row }))
	return all, err
}
