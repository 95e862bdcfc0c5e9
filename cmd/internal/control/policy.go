package control

import (
	"cmp"
	"context"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/sluicehq/sluice/cmd/internal/source"
	"github.com/sluicehq/sluice/policy"
)

// Policy is the policy in force as it is written, and what changes it in the database if there is one. What
// is changed is in force here when a change returns, unless it is dry: then it only says what is wrong.
//
// Errors of changes are a [policy.Errors] for what makes no policy, a [source.Invalid] for what cannot be kept,
// a [source.Conflict], [source.ErrNotFound] of what is to be deleted, [source.ErrAway] or [source.ErrFull].
type Policy struct {
	Stack    *source.Stack
	Database *source.Database // nil: the policy is that of a file

	mu      sync.Mutex
	current *Current
	ids     map[int64]overrideID // of overrides, by those of the database
	rowIDs  map[string]int64     // and the other way
}

// Now returns the policy in force: the same as long as that is the same.
func (a *Policy) Now() *Current {
	a.mu.Lock()
	defer a.mu.Unlock()
	doc, contents := a.Stack.Document()
	if a.current == nil || a.current.Document != doc {
		a.current = &Current{Document: doc, File: a.Stack.FileDocument(), FileBefore: a.Stack.FileBefore(), Rows: a.rows(contents), Settings: settingsOf(contents)}
	}
	return a.current
}

func settingsOf(c *source.Contents) *Settings {
	if c == nil || c.Settings.Version == 0 {
		return nil
	}
	return &Settings{Version: c.Settings.Version, Shadow: c.Settings.Document.Shadow}
}

// Tokens returns those of the database, none without one.
func (a *Policy) Tokens() ([]Token, error) {
	if a.Database == nil {
		return nil, nil
	}
	contents := a.Database.Known()
	if contents == nil {
		return nil, source.ErrAway
	}
	var all []Token
	for i := range contents.Tokens {
		t := &contents.Tokens[i]
		var ends time.Time
		if t.Until != "" {
			var err error
			if ends, err = policy.ParseUntil(t.Until); err != nil {
				ends = time.Unix(0, 0) // written by SQL: nobody knows whether it holds, so it has ended
			}
		}
		hash := t.Hash()
		role, _ := source.ParseRole(string(t.Role)) // one that SQL has made up is Nobody
		all = append(all, Token{Name: t.Name, Hash: hex.EncodeToString(hash[:]), Role: role, Expires: ends})
	}
	return all, nil
}

// rows returns what lists the rows of a kind.
func (a *Policy) rows(c *source.Contents) func(Kind) []Item {
	if c == nil {
		return nil
	}
	return func(kind Kind) (all []Item) {
		switch kind {
		case Rules:
			for i := range c.Rules {
				all = append(all, ruleItem(&c.Rules[i]))
			}
		case Tiers:
			for i := range c.Tiers {
				all = append(all, tierItem(&c.Tiers[i]))
			}
		case Subjects:
			for i := range c.Subjects {
				all = append(all, subjectItem(&c.Subjects[i]))
			}
		case Overrides:
			a.forget(len(c.Overrides))
			for i := range c.Overrides {
				o := &c.Overrides[i]
				all = append(all, item(a.idOf(o), &o.Meta, &o.Override))
			}
		}
		return all
	}
}

func item(id string, m *source.Meta, document any) Item {
	return Item{ID: id, Version: m.Version, UpdatedAt: m.UpdatedAt, UpdatedBy: m.UpdatedBy, Document: document}
}

func ruleItem(r *source.RuleRow) Item {
	i := item(r.Name, &r.Meta, &r.Rule)
	i.Disabled = r.Disabled
	return i
}

func tierItem(r *source.TierRow) Item {
	return item(r.Name, &r.Meta, &Tier{Name: r.Name, Description: r.Description, Limits: r.Limits})
}

func subjectItem(r *source.SubjectRow) Item {
	return item(r.Subject, &r.Meta, &r.TierSubject)
}

// forget begins anew with the IDs if most of them are of rows that have gone.
func (a *Policy) forget(rows int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.ids) > 2*rows+1000 {
		a.ids, a.rowIDs = nil, nil
	}
}

// overrideID is the ID that the API has for an override, and what it was made of.
type overrideID struct {
	id, rule string
	key      map[string]string
}

// idOf returns the ID that the API has for an override. It is kept: there may be a hundred
// thousand.
func (a *Policy) idOf(r *source.OverrideRow) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	known := a.ids[r.ID]
	if known.rule != r.Rule || !maps.Equal(known.key, r.Key) { // databases may use an ID again
		known = overrideID{OverrideID(r.Rule, r.Key), r.Rule, r.Key}
		if a.ids == nil {
			a.ids, a.rowIDs = map[int64]overrideID{}, map[string]int64{}
		}
		a.ids[r.ID] = known
	}
	a.rowIDs[known.id] = r.ID
	return known.id
}

// Put creates or replaces an item if its version is match.
func (a *Policy) Put(ctx context.Context, actor string, i Item, match source.Match, dry bool) (out Item, err error) {
	err = a.change(ctx, actor, dry, func(tx *source.Tx) error {
		out, err = put(tx, i.Document, i.Disabled, match)
		return err
	})
	return out, err
}

// PutAll puts several items in one transaction, each if its version is the one that it has.
func (a *Policy) PutAll(ctx context.Context, actor string, all []Item, dry bool) ([]Item, error) {
	out := make([]Item, len(all))
	err := a.change(ctx, actor, dry, func(tx *source.Tx) (err error) {
		for i := range all {
			if out[i], err = put(tx, all[i].Document, all[i].Disabled, source.Match(all[i].Version)); err != nil {
				return err
			}
		}
		return nil
	})
	return out, err
}

// put puts a document, and returns it as it is then.
func put(tx *source.Tx, document any, disabled bool, match source.Match) (Item, error) {
	switch d := document.(type) {
	case *policy.Rule:
		r, err := tx.PutRule(source.RuleRow{Rule: *d, Disabled: disabled}, match)
		return ruleItem(&r), err
	case *Tier:
		r, err := tx.PutTier(source.TierRow{Name: d.Name, Description: d.Description, Limits: d.Limits}, match)
		return tierItem(&r), err
	case *policy.TierSubject:
		r, err := tx.PutSubject(source.SubjectRow{TierSubject: *d}, match)
		return subjectItem(&r), err
	case *policy.Override:
		r, err := tx.PutOverride(source.OverrideRow{Override: *d}, match)
		return item(OverrideID(r.Rule, r.Key), &r.Meta, &r.Override), err
	}
	return Item{}, fmt.Errorf("no database keeps a %T", document)
}

// PutShadow makes the whole policy a shadow until a time, or "always", or enforces it if that is empty.
func (a *Policy) PutShadow(ctx context.Context, actor, until string, match source.Match, dry bool) error {
	return a.change(ctx, actor, dry, func(tx *source.Tx) error { return tx.PutShadow(until, match) })
}

// ChangeRules changes several rules in one transaction, and returns the ID of its one entry in the audit log,
// which is 0 if nothing differs, and the policy that comes of it.
func (a *Policy) ChangeRules(ctx context.Context, actor string, all []RuleChange, dry bool) (entry int64, p *policy.Policy, err error) {
	changes := make([]source.RuleChange, len(all))
	for i, c := range all {
		changes[i] = source.RuleChange{Delete: c.Rule == nil, Match: c.Match}
		if c.Rule != nil {
			changes[i].Row.Rule = *c.Rule
		}
		changes[i].Row.Name = c.Name
	}
	p, err = a.changeTo(ctx, actor, dry, func(tx *source.Tx) (err error) {
		entry, err = tx.ChangeRules(changes)
		return err
	})
	if dry {
		entry = 0 // which no entry has
	}
	return entry, p, err
}

// Restore takes that change back, of which the last entry has an ID, and returns what begins
// anew by that.
func (a *Policy) Restore(ctx context.Context, actor string, entry int64, dry bool) ([]policy.Restart, error) {
	old := a.Stack.Policy()
	p, err := a.changeTo(ctx, actor, dry, func(tx *source.Tx) error { return tx.Restore(entry) })
	if err != nil {
		return nil, err
	}
	return p.Restarts(old), nil
}

// changeTo makes a change and returns the policy that comes of it.
func (a *Policy) changeTo(ctx context.Context, actor string, dry bool, fn func(*source.Tx) error) (*policy.Policy, error) {
	if !dry {
		err := a.change(ctx, actor, false, fn)
		return a.Stack.Policy(), err
	}
	_, after, err := a.Database.DryRun(ctx, actor, fn)
	if err != nil {
		return nil, err
	}
	return policy.Compile(*a.Stack.Merge(after))
}

// Delete deletes an item if its version is match.
func (a *Policy) Delete(ctx context.Context, actor string, kind Kind, id string, match source.Match, dry bool) error {
	return a.change(ctx, actor, dry, func(tx *source.Tx) error { return a.remove(tx, kind, id, match) })
}

func (a *Policy) remove(tx *source.Tx, kind Kind, id string, match source.Match) error {
	switch kind {
	case Rules:
		return tx.DeleteRule(id, match)
	case Tiers:
		return tx.DeleteTier(id, match)
	case Subjects:
		return tx.DeleteSubject(id, match)
	}
	row, found := a.overrideIn(tx.Contents().Overrides, id)
	if !found {
		return source.ErrNotFound
	}
	return tx.DeleteOverride(row, match)
}

// overrideIn returns the row that has an ID of the API: what is known of it may be older than the
// rows.
func (a *Policy) overrideIn(rows []source.OverrideRow, id string) (int64, bool) {
	a.mu.Lock()
	known := a.rowIDs[id]
	a.mu.Unlock()
	i, found := slices.BinarySearchFunc(rows, known, func(r source.OverrideRow, id int64) int { return cmp.Compare(r.ID, id) })
	if found && a.idOf(&rows[i]) == id {
		return known, true
	}
	for i := range rows {
		if a.idOf(&rows[i]) == id {
			return rows[i].ID, true
		}
	}
	return 0, false
}

// change makes a change, and puts it into force here.
func (a *Policy) change(ctx context.Context, actor string, dry bool, fn func(*source.Tx) error) error {
	if dry {
		_, _, err := a.Database.DryRun(ctx, actor, fn)
		return err
	}
	if _, err := a.Database.Change(ctx, actor, fn); err != nil {
		return err
	}
	return a.Stack.Contents(a.Database.Known())
}

// Record leaves an entry in the audit log for what do does, which is nothing in the database, and only if do
// has no error.
func (a *Policy) Record(ctx context.Context, e source.Entry, do func() error) error {
	return a.Database.Record(ctx, e.Actor, e.Action, e.Kind, e.Target, string(e.After), do)
}
