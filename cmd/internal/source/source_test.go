package source_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluicehq/sluice/cmd/internal/source"
	"github.com/sluicehq/sluice/internal/postgrestest"
	"github.com/sluicehq/sluice/internal/testkit"
	"github.com/sluicehq/sluice/policy"
)

// patience bounds waits for events that are certain to happen.
const patience = testkit.Patience

// suite has the tests for every database, each with the URL of an empty one. The scripts in
// cmd/internal/adminapi/testdata/database test the rows and their changes over both databases.
var suite = map[string]func(t *testing.T, url string){
	"tokens":           testTokens,
	"replace":          testReplace,
	"restore":          testRestore,
	"heard":            testHeard,
	"parallel writers": testParallelWriters,
	"strings":          testStrings,
	"columns":          testColumns,
	"watch":            testWatch,
	"own changes":      testOwnChanges,
	"piecemeal":        testPiecemeal,
	"faults":           testFaults,
	"migrate at once":  testMigrateAtOnce,
	"not migrated":     testNotMigrated,
	"newer tables":     testNewerTables,
}

func TestSQLite(t *testing.T) {
	t.Parallel()
	play(t, func(t *testing.T) string { return "sqlite:" + filepath.Join(t.TempDir(), "rules.db") })
}

func TestPostgres(t *testing.T) {
	t.Parallel()
	play(t, func(t *testing.T) string { return postgrestest.Database(t) })
}

func play(t *testing.T, empty func(*testing.T) string) {
	for name, test := range suite {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, empty(t))
		})
	}
}

// A full disk is reported as such, not only as an unavailable database.
func TestSQLiteFull(t *testing.T) {
	t.Parallel()
	db := migrated(t, "sqlite:"+filepath.Join(t.TempDir(), "rules.db"))
	put := func(long string) error {
		_, err := db.Change(t.Context(), "tester", func(tx *source.Tx) error {
			_, err := tx.PutRule(source.RuleRow{Rule: policy.Rule{Name: "a", Limit: "5/day", Match: []string{"/" + long}}}, source.Any)
			return err
		})
		return err
	}
	if err := put("first"); err != nil {
		t.Fatal(err)
	}
	before := db.Known()
	if err := db.Fill(t.Context()); err != nil {
		t.Fatal(err)
	}
	err := put(strings.Repeat("long", 1000))
	if !errors.Is(err, source.ErrFull) || !errors.Is(err, source.ErrUnavailable) || !strings.Contains(err.Error(), "disk") {
		t.Errorf("a change on a full disk: %v", err)
	}
	if after, err := db.Read(t.Context()); err != nil || after.Version != before.Version {
		t.Errorf("the database is at %+v, %v, want version %d", after, err, before.Version)
	}
}

// Only after an error of the commit is it unknown whether the change was made.
func TestUnconfirmed(t *testing.T) {
	t.Parallel()
	db := migrated(t, "sqlite:"+filepath.Join(t.TempDir(), "rules.db"))
	put := func(ctx context.Context, before func()) error {
		_, err := db.Change(ctx, "tester", func(tx *source.Tx) error {
			before()
			_, err := tx.PutRule(source.RuleRow{Rule: policy.Rule{Name: "a", Limit: "5/day"}}, source.Any)
			return err
		})
		return err
	}
	ctx, cancel := context.WithCancel(t.Context())
	if err := put(ctx, cancel); !errors.Is(err, source.ErrUnavailable) || errors.Is(err, source.ErrUnconfirmed) {
		t.Errorf("canceled before the commit: %v", err)
	}
	ctx, cancel = context.WithCancel(t.Context())
	db.Check = func(*source.Contents) error {
		cancel()
		return nil
	}
	if err := put(ctx, func() {}); !errors.Is(err, source.ErrUnavailable) || !errors.Is(err, source.ErrUnconfirmed) {
		t.Errorf("canceled at the commit: %v", err)
	}
}

// open opens a database, and closes it when the test ends.
func open(t testing.TB, url string) *source.Database {
	t.Helper()
	db, err := source.Open(url, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

// The triggers of SQLite cover all columns but the version, which they write themselves. A migration that adds a column
// has to recreate its table's trigger.
func TestTriggersKnowAllColumns(t *testing.T) {
	db := migrated(t, "sqlite:"+t.TempDir()+"/rules.db")
	query := func(text string, args ...any) []string {
		all, err := db.Query(t.Context(), text, args...)
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	tables := query("SELECT name FROM sqlite_master WHERE type = 'table' AND name || '_update' IN (SELECT name FROM sqlite_master WHERE type = 'trigger')")
	if len(tables) < 6 {
		t.Fatalf("%q have triggers", tables)
	}
	for _, table := range tables {
		want := query("SELECT name FROM pragma_table_info(?) WHERE name <> 'version' ORDER BY name", table)
		trigger := query("SELECT sql FROM sqlite_master WHERE name = ?", table+"_update")[0]
		_, columns, _ := strings.Cut(trigger, "UPDATE OF ")
		columns, _, _ = strings.Cut(columns, " ON ")
		got := strings.Split(columns, ", ")
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("the trigger of %s covers the columns %q, want %q", table, got, want)
		}
	}
}

// migrated opens a database and creates its tables.
func migrated(t *testing.T, url string) *source.Database {
	t.Helper()
	db := open(t, url)
	if _, err := db.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	return db
}

// change makes a change that has to succeed.
func change(t *testing.T, db *source.Database, fn func(*source.Tx) error) int64 {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience) // longer than the program's own timeout
	defer cancel()
	v, err := db.Change(ctx, "tester", fn)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func read(t *testing.T, db *source.Database) *source.Contents {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c, err := db.Read(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

var (
	perKey = policy.Rule{Name: "per-key", Key: []string{"api_key"}, Limit: "100/minute burst 20", Cost: policy.Cost{Header: "X-Cost", Max: 10}}
	abc    = map[string]string{"api_key": "abc"}
)

// A document of any length replaces the contents of the database, and each row that differs is audited.
func testReplace(t *testing.T, url string) {
	const many = 303 // more than fit into one statement, or into two
	db := migrated(t, url)
	override := func(i int, limit string) policy.Override {
		return policy.Override{Rule: "per-key", Key: map[string]string{"api_key": fmt.Sprint(i)}, Limit: limit, Reason: "it's $1, \"?\" and 'x'"}
	}
	document := func(from int, limit string) *policy.Document {
		doc := &policy.Document{Tiers: policy.Tiers{Subject: "api_key"}, Rules: []policy.Rule{perKey}}
		for i := from; i < from+many; i++ {
			doc.Overrides = append(doc.Overrides, override(i, "1/minute"))
			doc.Subjects = append(doc.Subjects, policy.TierSubject{Subject: fmt.Sprint(i), Tier: "pro"})
		}
		doc.Overrides[many-1].Limit = limit
		return doc
	}
	check := func(doc *policy.Document, entries map[string]int) {
		t.Helper()
		change(t, db, func(tx *source.Tx) error { return tx.Replace(doc) })
		c := read(t, db)
		want := make(map[string]string)
		for _, o := range doc.Overrides { // of two equal keys, the last one counts
			want[o.Key["api_key"]] = o.Limit
		}
		for i := range c.Overrides {
			o := &c.Overrides[i]
			if limit := want[o.Key["api_key"]]; limit != o.Limit || o.By != "tester" || o.UpdatedBy != "tester" || time.Since(o.UpdatedAt) > patience || o.Version == 0 || o.Reason != override(0, "").Reason {
				t.Fatalf("%+v, want the limit %q", o, limit)
			}
		}
		if len(c.Overrides) != len(want) || len(c.Subjects) != len(doc.Subjects) || c.Subjects[0].By != "tester" {
			t.Fatalf("%d overrides and %d subjects, want %d and %d", len(c.Overrides), len(c.Subjects), len(want), len(doc.Subjects))
		}
		for action, n := range entries {
			kind, action, _ := strings.Cut(action, " ")
			got := table(t, direct(t, url), "SELECT count(*), count(DISTINCT target) FROM sluice_audit WHERE kind = '"+kind+"' AND action = '"+action+"'")
			if got != fmt.Sprintf("%d %[1]d", n) {
				t.Errorf("%s %s: %s entries in the audit log, want %d", kind, action, got, n)
			}
		}
	}
	check(document(0, "1/minute"), map[string]int{"override create": many, "subject create": many})
	o := read(t, db).Overrides[7]
	var entry source.OverrideRow
	entries, err := db.Audit(t.Context(), 0, 3*many)
	entries = slices.DeleteFunc(entries, func(e source.Entry) bool {
		return e.Kind != "override" || e.Target != `per-key {"api_key":"`+o.Key["api_key"]+`"}`
	})
	if err != nil || len(entries) != 1 {
		t.Fatalf("%v, %v", entries, err)
	}
	o.Name = "" // the audit log does not contain it
	if unmarshal(t, string(entries[0].After), &entry); !reflect.DeepEqual(entry, o) || entries[0].Before != "" || entries[0].Actor != "tester" {
		t.Errorf("the audit log has %+v of %+v", entries[0], o)
	}
	before := read(t, db).Version
	check(document(0, "1/minute"), nil)
	if after := read(t, db).Version; after != before {
		t.Errorf("after a replacement by the same document, the version is %d, want %d", after, before)
	}
	later := document(3, "2/minute")
	later.Overrides = append(later.Overrides, override(3, "3/minute"), override(many+2, "4/minute"))
	check(later, map[string]int{"override create": many + 3, "override replace": 1, "override delete": 3, "subject create": many + 3, "subject replace": 0, "subject delete": 3})
}

// The database stores only the hash of a token, and names of tokens are unique.
func testTokens(t *testing.T, url string) {
	db := migrated(t, url)
	for name, until := range map[string]string{"ever": "", "day": "2030-01-31", "hour": "2030-01-31T12:00:00Z"} {
		var secret string
		create := func(tx *source.Tx) (err error) {
			secret, _, err = tx.CreateToken(name, source.Operator, until)
			return err
		}
		change(t, db, create)
		tokens := read(t, db).Tokens
		n := slices.IndexFunc(tokens, func(row source.TokenRow) bool { return row.Name == name })
		if n < 0 || tokens[n].Hash != source.HashToken(secret) || tokens[n].Role != source.Operator || tokens[n].Until != until {
			t.Errorf("%s: %+v", name, tokens)
		}
		if _, err := db.Change(t.Context(), "tester", create); !conflicts(err) {
			t.Errorf("a second token with the same name: %v", err)
		}
	}
}

func conflicts(err error) bool {
	_, is := errors.AsType[*source.Conflict](err)
	return is
}

func testMigrateAtOnce(t *testing.T, url string) {
	const instances = 3
	steps := make(chan int, instances)
	for range instances {
		db := open(t, url)
		go func() {
			n, err := db.Migrate(context.WithoutCancel(t.Context()))
			if err != nil {
				t.Error(err)
			}
			steps <- n
		}()
	}
	sum := 0
	for range instances {
		sum += <-steps
	}
	if sum != 1 {
		t.Errorf("%d migrations were applied, want 1", sum)
	}
	db := open(t, url)
	if n, err := db.Migrate(t.Context()); n != 0 || err != nil {
		t.Errorf("a second migration: %d, %v", n, err)
	}
	if c := read(t, db); c.Version != 0 || len(c.Rules) != 0 {
		t.Errorf("%+v", c)
	}
}

func testNotMigrated(t *testing.T, url string) {
	db := open(t, url)
	if _, err := db.Read(t.Context()); !errors.Is(err, source.ErrNotMigrated) {
		t.Errorf("%v", err)
	}
}

// If a newer version of the program has extended the tables, an older version can still follow, open and change the
// database. So instances can be upgraded one after the other, and downgraded.
func testNewerTables(t *testing.T, url string) {
	before := migrated(t, url)
	f := follow(t, url)
	newer := direct(t, url)
	execute(t, newer, "ALTER TABLE sluice_rules ADD COLUMN added TEXT NOT NULL DEFAULT ''")
	execute(t, newer, "CREATE TABLE sluice_added (id INTEGER)")
	execute(t, newer, "INSERT INTO sluice_migrations (version_id, is_applied) VALUES (2, true)")
	putRule(t, before, "a", "1/minute")
	f.saw(t, "a 1/minute")

	again := open(t, url)
	if n, err := again.Migrate(t.Context()); n != 0 || err != nil {
		t.Errorf("%d migrations, %v", n, err)
	}
	putRule(t, again, "b", "2/minute")
	f.saw(t, "a 1/minute, b 2/minute")
}

func unmarshal(t *testing.T, text string, into any) {
	t.Helper()
	if text == "" {
		return
	}
	if err := json.Unmarshal([]byte(text), into); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
}

func isUnavailable(err error) bool { return errors.Is(err, source.ErrUnavailable) }

// A role includes all lower roles. A role that only SQL could have written is unknown and grants nothing.
func TestRoles(t *testing.T) {
	t.Parallel()
	all := []source.Role{source.Nobody, source.Viewer, source.Operator, source.Admin}
	for i, has := range all {
		for j, needed := range all {
			if has.May(needed) != (i >= j) {
				t.Errorf("%s includes %s: %v", has, needed, has.May(needed))
			}
		}
	}
	for _, name := range []string{"", "root", "Admin"} {
		if r, known := source.ParseRole(name); known || r != source.Nobody {
			t.Errorf("ParseRole(%q): %s, %v", name, r, known)
		}
	}
	if source.Role("root").May(source.Viewer) {
		t.Error("an unknown role includes viewer")
	}
}

// Restore undoes the last change of the rules, of any kind, and can itself be undone.
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
		t.Errorf("restoring an unknown entry: %v", err)
	}
	for _, r := range []policy.Rule{rule("a", "1/day"), rule("b", "2/day"), rule("c", "3/day")} {
		change("ann", func(tx *source.Tx) error { return put(tx, r) })
	}
	change("ann", func(tx *source.Tx) error {
		_, err := tx.PutSettings(policy.Document{IPv6Prefix: 48}, source.Any)
		return err
	})
	before := contents()

	// One transaction creates, replaces and deletes rows of several kinds.
	change("bob", func(tx *source.Tx) error {
		_, err := tx.PutTier(source.TierRow{Name: "pro", Limits: map[string]policy.Limits{"b": {"9/day"}}}, source.Any)
		_, err2 := tx.PutSettings(policy.Document{IPv6Prefix: 56, Tiers: policy.Tiers{From: "header:X-Plan"}}, source.Any)
		return errors.Join(put(tx, rule("a", "10/day")), put(tx, rule("d", "4/day")), tx.DeleteRule("c", source.Any), err, err2)
	})
	after := contents()
	// Overrides and shadow mode are not part of the versions that Restore restores.
	change("eve", func(tx *source.Tx) error {
		_, err := tx.PutOverride(source.OverrideRow{Override: policy.Override{Rule: "b", Key: map[string]string{"client_ip": "192.0.2.1"}, Block: true}}, source.Any)
		return errors.Join(err, tx.PutShadow(policy.ShadowAlways, source.Any))
	})
	if all, err := db.LastChange(t.Context()); err != nil || len(all) != 5 || all[0].Actor != "bob" {
		t.Fatalf("the last change is %+v, %v", all, err)
	}
	beside := func(c *source.Contents) *source.Contents { // c without overrides and shadow mode
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
		t.Errorf("Restore has changed overrides or shadow mode: %+v", c)
	}
	if _, err := db.Change(t.Context(), "bob", func(tx *source.Tx) error { return tx.Restore(seen) }); !errors.As(err, &conflict) {
		t.Errorf("restoring an entry that is no longer the last: %v", err)
	}
	change("bob", func(tx *source.Tx) error { return tx.Restore(last()) })
	same("restored again", beside(contents()), after)

	// Changes by SQL leave no entry. Restore must not overwrite them.
	execute(t, direct(t, url), "UPDATE sluice_rules SET enabled = FALSE WHERE name = 'a'")
	by := contents()
	if _, err := db.Change(t.Context(), "bob", func(tx *source.Tx) error { return tx.Restore(last()) }); !errors.As(err, &conflict) {
		t.Errorf("restoring rows that SQL has changed: %v", err)
	}
	same("after a failed Restore", contents(), by)
}
