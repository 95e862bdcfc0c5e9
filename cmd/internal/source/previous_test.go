package source_test

import (
	"errors"
	"testing"

	"github.com/sluicehq/sluice/cmd/internal/source"
	"github.com/sluicehq/sluice/policy"
)

// What was there before the last change of the rules comes back, whatever that was, and goes again.
func testRestore(t *testing.T, url string) {
	db := migrated(t, url)
	contents := func() *source.Contents {
		c, err := db.Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	change := func(actor string, fn func(*source.Tx) error) {
		t.Helper()
		if _, err := db.Change(t.Context(), actor, fn); err != nil {
			t.Fatal(err)
		}
	}
	last := func() int64 {
		t.Helper()
		all, err := db.LastChange(t.Context())
		if err != nil || len(all) == 0 {
			t.Fatalf("the last change: %v, %v", all, err)
		}
		return all[len(all)-1].ID
	}
	same := func(what string, a, b *source.Contents) {
		t.Helper()
		if d := source.Diff(a, b); len(d) > 0 {
			t.Errorf("%s: %+v", what, d)
		}
	}
	rule := func(name, limit string) policy.Rule {
		return policy.Rule{Name: name, Key: []string{"client_ip"}, Limit: limit}
	}
	put := func(tx *source.Tx, r policy.Rule) error {
		_, err := tx.PutRule(source.RuleRow{Rule: r}, source.Any)
		return err
	}
	if all, err := db.LastChange(t.Context()); err != nil || len(all) > 0 {
		t.Fatalf("nothing has changed yet: %v, %v", all, err)
	}
	var conflict *source.Conflict
	if _, err := db.Change(t.Context(), "x", func(tx *source.Tx) error { return tx.Restore(1) }); !errors.As(err, &conflict) {
		t.Errorf("to restore what never was: %v", err)
	}
	for _, r := range []policy.Rule{rule("a", "1/day"), rule("b", "2/day"), rule("c", "3/day")} {
		change("ann", func(tx *source.Tx) error { return put(tx, r) })
	}
	change("ann", func(tx *source.Tx) error {
		_, err := tx.PutSettings(policy.Document{IPv6Prefix: 48}, source.Any)
		return err
	})
	before := contents()

	// One transaction creates, replaces and deletes, of all kinds.
	change("bob", func(tx *source.Tx) error {
		_, err := tx.PutTier(source.TierRow{Name: "pro", Limits: map[string]policy.Limits{"b": {"9/day"}}}, source.Any)
		_, err2 := tx.PutSettings(policy.Document{IPv6Prefix: 56, Tiers: policy.Tiers{From: "header:X-Plan"}}, source.Any)
		return errors.Join(put(tx, rule("a", "10/day")), put(tx, rule("d", "4/day")), tx.DeleteRule("c", source.Any), err, err2)
	})
	after := contents()
	// What comes and goes by itself is no version.
	change("eve", func(tx *source.Tx) error {
		_, err := tx.PutOverride(source.OverrideRow{Override: policy.Override{Rule: "b", Key: map[string]string{"client_ip": "192.0.2.1"}, Block: true}}, source.Any)
		return errors.Join(err, tx.PutShadow(policy.ShadowAlways, source.Any))
	})
	if all, err := db.LastChange(t.Context()); err != nil || len(all) != 5 || all[0].Actor != "bob" {
		t.Fatalf("the last change is %+v, %v", all, err)
	}
	beside := func(c *source.Contents) *source.Contents { // without that
		copied := *c
		copied.Overrides, copied.Settings.Document.Shadow = nil, ""
		return &copied
	}
	seen := last()
	dryBefore, dryAfter, err := db.DryRun(t.Context(), "bob", func(tx *source.Tx) error { return tx.Restore(seen) })
	if err != nil {
		t.Fatal(err)
	}
	same("before a dry run", beside(dryBefore), after)
	same("after a dry run", beside(dryAfter), before)
	change("bob", func(tx *source.Tx) error { return tx.Restore(seen) })
	same("restored", beside(contents()), before)
	if c := contents(); c.Settings.Document.Shadow != policy.ShadowAlways || len(c.Overrides) != 1 {
		t.Errorf("what is no version has changed: %+v", c)
	}
	if _, err := db.Change(t.Context(), "bob", func(tx *source.Tx) error { return tx.Restore(seen) }); !errors.As(err, &conflict) {
		t.Errorf("to restore what is no longer the last: %v", err)
	}
	change("bob", func(tx *source.Tx) error { return tx.Restore(last()) })
	same("and back", beside(contents()), after)

	// What SQL has changed since leaves no entry, and is not lost.
	execute(t, direct(t, url), "UPDATE sluice_rules SET enabled = FALSE WHERE name = 'a'")
	by := contents()
	if _, err := db.Change(t.Context(), "bob", func(tx *source.Tx) error { return tx.Restore(last()) }); !errors.As(err, &conflict) {
		t.Errorf("to restore what SQL has changed: %v", err)
	}
	same("after that", contents(), by)
}
