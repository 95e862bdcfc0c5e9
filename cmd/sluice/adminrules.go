package main

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/sluicehq/sluice/internal/adminapi"
	"github.com/sluicehq/sluice/internal/source"
	"github.com/sluicehq/sluice/policy"
)

// adminRules shows the admin API the policy in force, and changes it in the database if there is
// one.
type adminRules struct {
	stack *source.Stack
	db    *source.Database // nil: the policy is that of a file

	mu      sync.Mutex
	current *adminapi.Current
	ids     map[int64]overrideID // of overrides, by those of the database
	rowIDs  map[string]int64     // and the other way
}

// now returns the policy in force: the same as long as that is the same.
func (a *adminRules) now() *adminapi.Current {
	a.mu.Lock()
	defer a.mu.Unlock()
	doc, contents := a.stack.Document()
	if a.current == nil || a.current.Document != doc {
		a.current = &adminapi.Current{Document: doc, File: a.stack.FileDocument(), FileBefore: a.stack.FileBefore(), Rows: a.rows(contents), Settings: settingsOf(contents)}
	}
	return a.current
}

func settingsOf(c *source.Contents) *adminapi.Settings {
	if c == nil || c.Settings.Version == 0 {
		return nil
	}
	return &adminapi.Settings{Version: c.Settings.Version, Shadow: c.Settings.Document.Shadow}
}

// database returns what the admin API changes, or nil.
func (a *adminRules) database() adminapi.Database {
	if a.db == nil {
		return nil
	}
	return a
}

// tokens returns those of the database.
func (a *adminRules) tokens() ([]adminapi.Token, error) {
	if a.db == nil {
		return nil, nil
	}
	contents := a.db.Known()
	if contents == nil {
		return nil, source.ErrAway
	}
	var all []adminapi.Token
	for i := range contents.Tokens {
		t := &contents.Tokens[i]
		role, _ := adminapi.ParseRole(string(t.Role))
		var ends time.Time
		if t.Until != "" {
			var err error
			if ends, err = policy.ParseUntil(t.Until); err != nil {
				ends = time.Unix(0, 0) // written by SQL: nobody knows whether it holds, so it has ended
			}
		}
		hash := t.Hash()
		all = append(all, adminapi.Token{Name: t.Name, Hash: hex.EncodeToString(hash[:]), Role: role, Expires: ends})
	}
	return all, nil
}

// rows returns what lists the rows of a kind.
func (a *adminRules) rows(c *source.Contents) func(adminapi.Kind) []adminapi.Item {
	if c == nil {
		return nil
	}
	return func(kind adminapi.Kind) (all []adminapi.Item) {
		switch kind {
		case adminapi.Rules:
			for i := range c.Rules {
				all = append(all, ruleItem(&c.Rules[i]))
			}
		case adminapi.Tiers:
			for i := range c.Tiers {
				all = append(all, tierItem(&c.Tiers[i]))
			}
		case adminapi.Subjects:
			for i := range c.Subjects {
				all = append(all, subjectItem(&c.Subjects[i]))
			}
		case adminapi.Overrides:
			a.forget(len(c.Overrides))
			for i := range c.Overrides {
				o := &c.Overrides[i]
				all = append(all, item(a.idOf(o), &o.Meta, &o.Override))
			}
		}
		return all
	}
}

func item(id string, m *source.Meta, document any) adminapi.Item {
	return adminapi.Item{ID: id, Version: m.Version, UpdatedAt: m.UpdatedAt, UpdatedBy: m.UpdatedBy, Document: document}
}

func ruleItem(r *source.RuleRow) adminapi.Item {
	i := item(r.Name, &r.Meta, &r.Rule)
	i.Disabled = r.Disabled
	return i
}

func tierItem(r *source.TierRow) adminapi.Item {
	return item(r.Name, &r.Meta, &adminapi.Tier{Name: r.Name, Description: r.Description, Limits: r.Limits})
}

func subjectItem(r *source.SubjectRow) adminapi.Item {
	return item(r.Subject, &r.Meta, &r.TierSubject)
}

// forget begins anew with the IDs if most of them are of rows that have gone.
func (a *adminRules) forget(rows int) {
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
func (a *adminRules) idOf(r *source.OverrideRow) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	known := a.ids[r.ID]
	if known.rule != r.Rule || !maps.Equal(known.key, r.Key) { // databases may use an ID again
		known = overrideID{adminapi.OverrideID(r.Rule, r.Key), r.Rule, r.Key}
		if a.ids == nil {
			a.ids, a.rowIDs = map[int64]overrideID{}, map[string]int64{}
		}
		a.ids[r.ID] = known
	}
	a.rowIDs[known.id] = r.ID
	return known.id
}

// Put implements [adminapi.Database].
func (a *adminRules) Put(ctx context.Context, actor string, kind adminapi.Kind, i adminapi.Item, match int64, dry bool) (out adminapi.Item, err error) {
	err = a.change(ctx, actor, dry, func(tx *source.Tx) error {
		out, err = put(tx, i.Document, i.Disabled, source.Match(match))
		return err
	})
	return out, err
}

// PutAll implements [adminapi.Database].
func (a *adminRules) PutAll(ctx context.Context, actor string, _ adminapi.Kind, all []adminapi.Item, dry bool) ([]adminapi.Item, error) {
	out := make([]adminapi.Item, len(all))
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
func put(tx *source.Tx, document any, disabled bool, match source.Match) (adminapi.Item, error) {
	switch d := document.(type) {
	case *policy.Rule:
		r, err := tx.PutRule(source.RuleRow{Rule: *d, Disabled: disabled}, match)
		return ruleItem(&r), err
	case *adminapi.Tier:
		r, err := tx.PutTier(source.TierRow{Name: d.Name, Description: d.Description, Limits: d.Limits}, match)
		return tierItem(&r), err
	case *policy.TierSubject:
		r, err := tx.PutSubject(source.SubjectRow{TierSubject: *d}, match)
		return subjectItem(&r), err
	case *policy.Override:
		r, err := tx.PutOverride(source.OverrideRow{Override: *d}, match)
		return item(adminapi.OverrideID(r.Rule, r.Key), &r.Meta, &r.Override), err
	}
	return adminapi.Item{}, fmt.Errorf("no database keeps a %T", document)
}

// PutShadow implements [adminapi.Database].
func (a *adminRules) PutShadow(ctx context.Context, actor, until string, match int64, dry bool) error {
	return a.change(ctx, actor, dry, func(tx *source.Tx) error { return tx.PutShadow(until, source.Match(match)) })
}

// LastChange implements [adminapi.Database].
func (a *adminRules) LastChange(ctx context.Context) ([]adminapi.Entry, error) {
	all, err := a.db.LastChange(ctx)
	return entries(all), apiError(err)
}

// ChangeRules implements [adminapi.Database].
func (a *adminRules) ChangeRules(ctx context.Context, actor string, all []adminapi.RuleChange, dry bool) (entry int64, p *policy.Policy, err error) {
	changes := make([]source.RuleChange, len(all))
	for i, c := range all {
		changes[i] = source.RuleChange{Delete: c.Rule == nil, Match: source.Match(c.Match)}
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

// Restore implements [adminapi.Database].
func (a *adminRules) Restore(ctx context.Context, actor string, entry int64, dry bool) ([]policy.Restart, error) {
	old := a.stack.Policy()
	p, err := a.changeTo(ctx, actor, dry, func(tx *source.Tx) error { return tx.Restore(entry) })
	if err != nil {
		return nil, err
	}
	return p.Restarts(old), nil
}

// changeTo makes a change and returns the policy that comes of it.
func (a *adminRules) changeTo(ctx context.Context, actor string, dry bool, fn func(*source.Tx) error) (*policy.Policy, error) {
	if !dry {
		err := a.change(ctx, actor, false, fn)
		return a.stack.Policy(), err
	}
	_, after, err := a.db.DryRun(ctx, actor, fn)
	if err != nil {
		return nil, apiError(err)
	}
	return policy.Compile(*a.stack.Merge(after))
}

// Delete implements [adminapi.Database].
func (a *adminRules) Delete(ctx context.Context, actor string, kind adminapi.Kind, id string, match int64, dry bool) error {
	return a.change(ctx, actor, dry, func(tx *source.Tx) error { return a.remove(tx, kind, id, source.Match(match)) })
}

func (a *adminRules) remove(tx *source.Tx, kind adminapi.Kind, id string, match source.Match) error {
	switch kind {
	case adminapi.Rules:
		return tx.DeleteRule(id, match)
	case adminapi.Tiers:
		return tx.DeleteTier(id, match)
	case adminapi.Subjects:
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
func (a *adminRules) overrideIn(rows []source.OverrideRow, id string) (int64, bool) {
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
func (a *adminRules) change(ctx context.Context, actor string, dry bool, fn func(*source.Tx) error) error {
	if dry {
		_, _, err := a.db.DryRun(ctx, actor, fn)
		return apiError(err)
	}
	if _, err := a.db.Change(ctx, actor, fn); err != nil {
		return apiError(err)
	}
	return apiError(a.stack.Contents(a.db.Known()))
}

// apiError makes errors of the database those of the admin API.
func apiError(err error) error {
	var conflict *source.Conflict
	var invalid *source.Invalid
	switch {
	case errors.As(err, &conflict):
		return conflictsOf(err)
	case errors.As(err, &invalid):
		return adminapi.Invalid(invalid.Field, invalid.Message)
	case errors.Is(err, source.ErrNotFound):
		return adminapi.ErrNotFound
	case errors.Is(err, source.ErrFull):
		return fmt.Errorf("%w: %w", adminapi.ErrFull, err)
	case errors.Is(err, source.ErrAway), errors.Is(err, source.ErrNotMigrated):
		return fmt.Errorf("%w: %w", adminapi.ErrAway, err)
	}
	return err
}

// conflictsOf names the items of all conflicts in an error.
func conflictsOf(err error) (all adminapi.ConflictsOf) {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range joined.Unwrap() {
			all = append(all, conflictsOf(e)...)
		}
		return all
	}
	var conflict *source.Conflict
	if errors.As(err, &conflict) {
		all = append(all, conflict.Target)
	}
	return all
}

// Record implements [adminapi.Database].
func (a *adminRules) Record(ctx context.Context, e adminapi.Entry, do func() error) error {
	return apiError(a.db.Record(ctx, e.Actor, e.Action, e.Kind, e.Target, string(e.After), do))
}

// Audit implements [adminapi.Database].
func (a *adminRules) Audit(ctx context.Context, before int64, n int) ([]adminapi.Entry, error) {
	all, err := a.db.Audit(ctx, before, n)
	return entries(all), apiError(err)
}

func entries(all []source.Entry) (out []adminapi.Entry) {
	for _, e := range all {
		out = append(out, adminapi.Entry{
			ID: e.ID, At: e.At, Actor: e.Actor, Action: e.Action, Kind: e.Kind, Target: e.Target,
			Before: jsonOf(e.Before), After: jsonOf(e.After),
		})
	}
	return out
}

// jsonOf returns a text of the audit log, which somebody may have written by SQL.
func jsonOf(text string) json.RawMessage {
	if text == "" || json.Valid([]byte(text)) {
		return json.RawMessage(text)
	}
	quoted, _ := json.Marshal(text) // a text always can be
	return quoted
}
