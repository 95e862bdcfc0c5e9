package source

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/sluicehq/sluice/policy"
)

// Contents is a snapshot of a database. It is immutable, and may be shared.
type Contents struct {
	Version   int64 // grows with every change
	Settings  SettingsRow
	Rules     []RuleRow     // by position, then by name
	Tiers     []TierRow     // by name
	Subjects  []SubjectRow  // by subject
	Overrides []OverrideRow // by ID
	Tokens    []TokenRow    // by name

	versions versions
	// lineage differs from that of earlier contents if the database may have lost commits in between. Versions of
	// different lineages must not be compared.
	lineage int
}

// versions has, for each kind, the version of the last change.
type versions struct{ all, settings, rules, tiers, subjects, overrides, tokens int64 }

// policy returns v without the versions that are not part of a policy.
func (v versions) policy() versions {
	v.all, v.tokens = 0, 0
	return v
}

// base returns v without the versions of overrides and subjects. If these change, the rest of the policy need not be
// compiled again.
func (v versions) base() versions {
	v = v.policy()
	v.overrides, v.subjects = 0, 0
	return v
}

// SamePolicy reports whether c and the contents other have the same policy, that is, differ at most in tokens. The
// parameter other may be nil.
func (c *Contents) SamePolicy(other *Contents) bool {
	return c == other || c.comparable(other) && c.versions.policy() == other.versions.policy()
}

// comparable reports whether the versions of c and of the contents other can be compared. They cannot if the lineages
// differ, if other or c is nil, or if one was assembled by a program and so has no versions.
func (c *Contents) comparable(other *Contents) bool {
	return c != nil && other != nil && c.lineage == other.lineage && c.versions.all > 0 && other.versions.all > 0
}

// olderThan reports whether c is older than the contents other, which may be nil.
func (c *Contents) olderThan(other *Contents) bool {
	return c.comparable(other) && c.Version < other.Version
}

// sameBase reports whether c and the contents other, which may be nil, differ at most in overrides and subjects.
func (c *Contents) sameBase(other *Contents) bool {
	return c.comparable(other) && c.versions.base() == other.versions.base()
}

// faults returns the errors of unreadable rows. Only SQL can write such rows.
func (c *Contents) faults() (all policy.Errors) {
	add := func(path, rule string, m Meta) {
		if m.fault != "" {
			all = append(all, policy.Problem{Path: path, Rule: rule, Message: m.fault, Hint: "correct the row, or delete it"})
		}
	}
	add("settings", "", c.Settings.Meta)
	for i := range c.Rules {
		if r := &c.Rules[i]; !r.Disabled {
			add(fmt.Sprintf("rules[%q]", r.Name), r.Name, r.Meta)
		}
	}
	for i := range c.Tiers {
		add(fmt.Sprintf("tiers[%q]", c.Tiers[i].Name), "", c.Tiers[i].Meta)
	}
	for i := range c.Overrides {
		add(fmt.Sprintf("overrides[%d]", c.Overrides[i].ID), c.Overrides[i].Rule, c.Overrides[i].Meta)
	}
	return all
}

// Disabled returns the names of the disabled rules, which are not in force. Rules are disabled only by SQL.
func (c *Contents) Disabled() (names []string) {
	if c == nil {
		return nil
	}
	for i := range c.Rules {
		if c.Rules[i].Disabled {
			names = append(names, c.Rules[i].Name)
		}
	}
	return names
}

// Read returns the contents of the database. The error matches [ErrUnavailable] or [ErrNotMigrated].
func (d *Database) Read(ctx context.Context) (*Contents, error) {
	c, err := d.latest(ctx, nil)
	if err != nil {
		return nil, err
	}
	d.handed.Store(c)
	return c, nil
}

// Tokens returns the known tokens, or none if d is nil.
func (d *Database) Tokens() ([]TokenRow, error) {
	if d == nil {
		return nil, nil
	}
	if c := d.Known(); c != nil {
		return c.Tokens, nil
	}
	return nil, ErrUnavailable
}

// Known returns the contents after the last read or change of this instance, or nil before the first one. It makes
// no query.
func (d *Database) Known() *Contents { return d.known.Load() }

// latest returns a snapshot, and remembers it.
func (d *Database) latest(ctx context.Context, old *Contents) (*Contents, error) {
	c, err := d.snapshot(ctx, old)
	if err != nil {
		return nil, err
	}
	d.remember(c)
	return c, nil
}

// remember sets the known contents to c, unless they are newer.
func (d *Database) remember(c *Contents) {
	for {
		old := d.known.Load()
		if old != nil && old.Version >= c.Version && !d.doubt.Load() || d.known.CompareAndSwap(old, c) {
			return
		}
	}
}

// contents returns the contents in a transaction. It reads only the changes since the contents old, if these are
// not nil.
func (d *Database) contents(ctx context.Context, q query, old *Contents, lock string) (*Contents, error) {
	v, err := d.versions(ctx, q, lock)
	if err != nil {
		return nil, err
	}
	if old == nil || old.Version > v.all {
		old = &Contents{versions: versions{-1, -1, -1, -1, -1, -1, -1}}
	}
	if v == old.versions {
		return old, nil
	}
	c := &Contents{Version: v.all, versions: v, lineage: old.lineage}
	seen, settings := old.versions, []SettingsRow(nil)
	err = cmp.Or(
		refresh(ctx, d, q, settingsKind, &settings, []SettingsRow{old.Settings}, seen.all, seen.settings, v.settings),
		refresh(ctx, d, q, ruleKind, &c.Rules, old.Rules, seen.all, seen.rules, v.rules),
		refresh(ctx, d, q, tierKind, &c.Tiers, old.Tiers, seen.all, seen.tiers, v.tiers),
		refresh(ctx, d, q, subjectKind, &c.Subjects, old.Subjects, seen.all, seen.subjects, v.subjects),
		refresh(ctx, d, q, overrideKind, &c.Overrides, old.Overrides, seen.all, seen.overrides, v.overrides),
		refresh(ctx, d, q, tokenKind, &c.Tokens, old.Tokens, seen.all, seen.tokens, v.tokens))
	if err != nil {
		return nil, err
	}
	if len(settings) > 0 {
		c.Settings = settings[0]
	}
	return c, nil
}

// versions reads the versions. lock is a clause that locks the row, or "".
func (d *Database) versions(ctx context.Context, q query, lock string) (v versions, err error) {
	rows, err := q.QueryContext(ctx, "SELECT value, settings, rules, tiers, subjects, overrides, tokens FROM sluice_version"+lock)
	if err != nil {
		return v, err
	}
	defer rows.Close()
	if rows.Next() {
		err = rows.Scan(&v.all, &v.settings, &v.rules, &v.tiers, &v.subjects, &v.overrides, &v.tokens)
	} else {
		err = cmp.Or(rows.Err(), errNoVersion)
	}
	return v, err
}

// refresh sets rows to the present rows of a kind. The old rows are those of an earlier reading. At that reading, the
// database had the version oldVersion, and the kind had the version oldKind; the kind now has the version newKind.
// refresh reads only the changed rows, or all rows if some were deleted.
func refresh[R any](ctx context.Context, d *Database, q query, k *kind[R], rows *[]R, old []R, oldVersion, oldKind, newKind int64) (err error) {
	if *rows = old; oldKind == newKind {
		return nil
	}
	if oldVersion >= 0 && len(old) > 0 {
		changed, err := k.read(ctx, q, d.dialect.text(k.selectAll()+" WHERE version > $1"), oldVersion)
		if err != nil {
			return err
		}
		*rows = k.patch(old, changed)
		count, err := scalar(ctx, q, "SELECT count(*) FROM "+k.table)
		if err != nil || int64(len(*rows)) == count {
			return err
		}
	}
	*rows, err = k.read(ctx, q, k.selectAll()+" ORDER BY "+k.order)
	return err
}

// patch returns the rows of the slices old and changed. Where both have a row, it returns the one of changed.
func (k *kind[R]) patch(old, changed []R) []R {
	ident, order := k.ident, k.cmp
	if ident == nil {
		ident = k.target
	}
	if order == nil {
		order = func(a, b *R) int { return cmp.Compare(k.target(a), k.target(b)) }
	}
	by := make(map[string]bool, len(changed))
	for i := range changed {
		by[ident(&changed[i])] = true
	}
	all := make([]R, 0, len(old)+len(changed))
	for i := range old {
		if !by[ident(&old[i])] {
			all = append(all, old[i])
		}
	}
	all = append(all, changed...)
	slices.SortFunc(all, func(a, b R) int { return order(&a, &b) })
	return all
}

func scalar(ctx context.Context, q query, text string, args ...any) (n int64, err error) {
	rows, err := q.QueryContext(ctx, text, args...)
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	if rows.Next() {
		err = rows.Scan(&n)
	}
	return n, cmp.Or(err, rows.Err())
}
