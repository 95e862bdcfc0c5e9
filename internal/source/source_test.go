package source_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluicehq/sluice/internal/postgrestest"
	"github.com/sluicehq/sluice/internal/source"
	"github.com/sluicehq/sluice/policy"
)

// patience bounds the wait for what is sure to come.
const patience = 5 * time.Minute

// suite is what holds for every database, each test with the URL of an empty one.
var suite = map[string]func(t *testing.T, url string){
	"rows":             testRows,
	"delete":           testDelete,
	"match":            testMatch,
	"refused":          testRefused,
	"dry run":          testDryRun,
	"audit":            testAudit,
	"replace":          testReplace,
	"restore":          testRestore,
	"order":            testOrder,
	"tokens":           testTokens,
	"heard":            testHeard,
	"asked":            testAsked,
	"parallel writers": testParallelWriters,
	"strings":          testStrings,
	"columns":          testColumns,
	"watch":            testWatch,
	"own changes":      testOwnChanges,
	"piecemeal":        testPiecemeal,
	"faults":           testFaults,
	"migrate at once":  testMigrateAtOnce,
	"not migrated":     testNotMigrated,
}

func TestSQLite(t *testing.T) {
	t.Parallel()
	for name, test := range suite {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, "sqlite:"+filepath.Join(t.TempDir(), "rules.db"))
		})
	}
}

func TestPostgres(t *testing.T) {
	t.Parallel()
	server := postgrestest.Start(t)
	for name, test := range suite {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, server.Database())
		})
	}
}

// A full disk is told as such, and not as a database that does not answer.
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
	if !errors.Is(err, source.ErrFull) || !errors.Is(err, source.ErrAway) || !strings.Contains(err.Error(), "disk") {
		t.Errorf("a change without room: %v", err)
	}
	if after, err := db.Read(t.Context()); err != nil || after.Version != before.Version {
		t.Errorf("the database is at %+v, %v, want version %d", after, err, before.Version)
	}
}

// open opens a database, and closes it with the test.
func open(t *testing.T, url string) *source.Database {
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

// migrated is open for a database with its tables.
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
	ctx, cancel := context.WithTimeout(t.Context(), patience) // longer than that of the program
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

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited %v until %s, in vain", patience, what)
		}
	}
}

var (
	perKey = policy.Rule{Name: "per-key", Key: []string{"api_key"}, Limit: "100/minute burst 20", Cost: policy.Cost{Header: "X-Cost", Max: 10}}
	login  = policy.Rule{Name: "login", Match: []string{"POST /login"}, Key: []string{"client_ip", "header:X-User"}, Limits: []string{"5/minute", "20/hour"}, Algorithm: "sliding_window_log", OnError: "deny"}
	flight = policy.Rule{Name: "flight", Key: []string{"api_key"}, InFlight: 2}
	abc    = map[string]string{"api_key": "abc"}
)

func testRows(t *testing.T, url string) {
	db := migrated(t, url)
	settings := policy.Document{TrustedProxies: []string{"10.0.0.0/8"}, Tiers: policy.Tiers{From: "header:X-Plan", Default: "free"}, Lists: map[string]policy.List{"us": {Networks: []string{"192.0.2.0/24"}}}}
	before := time.Now().Add(-time.Second)
	var override source.OverrideRow
	v := change(t, db, func(tx *source.Tx) error {
		_, err1 := tx.PutSettings(settings, source.Absent)
		_, err2 := tx.PutRule(source.RuleRow{Rule: perKey}, source.Absent)
		_, err3 := tx.PutRule(source.RuleRow{Rule: login}, source.Absent)
		_, err4 := tx.PutTier(source.TierRow{Name: "pro", Description: "who pays", Limits: map[string]policy.Limits{"per-key": {"1000/minute"}, "login": {"1/second", "50/hour"}}}, source.Absent)
		var err5 error
		override, err5 = tx.PutOverride(source.OverrideRow{Override: policy.Override{Rule: "per-key", Key: abc, Limit: "7/minute", Until: "2999-01-31", Reason: "a trial"}}, source.Absent)
		return errors.Join(err1, err2, err3, err4, err5)
	})
	c := read(t, db)
	if c.Version != v {
		t.Errorf("version %d after a change that returned %d", c.Version, v)
	}
	if !reflect.DeepEqual(c.Settings.Document.Lists, settings.Lists) || c.Settings.Document.Tiers != settings.Tiers || c.Settings.Version == 0 {
		t.Errorf("settings: %+v", c.Settings)
	}
	if len(c.Rules) != 2 || !reflect.DeepEqual(c.Rules[0].Rule, perKey) || !reflect.DeepEqual(c.Rules[1].Rule, login) {
		t.Errorf("rules: %+v", c.Rules)
	}
	if r := c.Rules[0]; r.UpdatedBy != "tester" || r.UpdatedAt.Before(before) || r.UpdatedAt.After(time.Now()) || r.Version == 0 || r.Version > v {
		t.Errorf("meta: %+v", r.Meta)
	}
	if len(c.Tiers) != 1 || !reflect.DeepEqual(c.Tiers[0].Limits["login"], policy.Limits{"1/second", "50/hour"}) || c.Tiers[0].Description != "who pays" {
		t.Errorf("tiers: %+v", c.Tiers)
	}
	if len(c.Overrides) != 1 || !reflect.DeepEqual(c.Overrides[0], override) || override.ID == 0 || override.Limit != "7/minute" || override.Until != "2999-01-31" {
		t.Errorf("overrides: %+v, and %+v was put", c.Overrides, override)
	}
	again := change(t, db, func(tx *source.Tx) error {
		_, err := tx.PutOverride(override, source.Match(override.Version))
		return err
	})
	if again != v {
		t.Errorf("to put what is there made version %d of %d", again, v)
	}
	change(t, db, func(tx *source.Tx) error { // places in flight
		_, err1 := tx.PutRule(source.RuleRow{Rule: flight}, source.Absent)
		var err2 error
		override, err2 = tx.PutOverride(source.OverrideRow{Override: policy.Override{Rule: "flight", Key: abc, InFlight: 7}}, source.Absent)
		_, err3 := tx.PutTier(source.TierRow{Name: "pro", Limits: map[string]policy.Limits{"flight": {"9"}}}, source.Any)
		return errors.Join(err1, err2, err3)
	})
	c = read(t, db)
	if len(c.Overrides) != 2 || !reflect.DeepEqual(c.Overrides[1], override) || override.InFlight != 7 || !reflect.DeepEqual(c.Tiers[0].Limits["flight"], policy.Limits{"9"}) {
		t.Errorf("of places: %+v, %+v", c.Overrides, c.Tiers)
	}
}

func testDelete(t *testing.T, url string) {
	db := migrated(t, url)
	var o source.OverrideRow
	change(t, db, func(tx *source.Tx) (err error) {
		_, err1 := tx.PutSettings(policy.Document{Tiers: policy.Tiers{From: "header:X-Plan"}}, source.Any)
		_, err2 := tx.PutRule(source.RuleRow{Rule: perKey}, source.Any)
		_, err3 := tx.PutTier(source.TierRow{Name: "pro", Limits: map[string]policy.Limits{"per-key": {"9/minute"}}}, source.Any)
		o, err = tx.PutOverride(source.OverrideRow{Override: policy.Override{Rule: "per-key", Key: abc, Limit: "7/minute"}}, source.Any)
		return errors.Join(err, err1, err2, err3)
	})
	_, err := db.Change(t.Context(), "tester", func(tx *source.Tx) error { return tx.DeleteRule("per-key", source.Any) })
	if _, ok := errors.AsType[policy.Errors](err); !ok {
		t.Errorf("a rule with an override went: %v", err)
	}
	change(t, db, func(tx *source.Tx) error {
		return errors.Join(tx.DeleteRule("per-key", source.Any), tx.DeleteOverride(o.ID, source.Match(o.Version)),
			tx.DeleteTier("pro", source.Any), tx.DeleteSettings(source.Any))
	})
	if c := read(t, db); len(c.Rules)+len(c.Overrides)+len(c.Tiers) != 0 || c.Settings.Version != 0 {
		t.Errorf("left: %+v", c)
	}
	for what, del := range map[string]func(*source.Tx) error{
		"rule":     func(tx *source.Tx) error { return tx.DeleteRule("per-key", source.Any) },
		"override": func(tx *source.Tx) error { return tx.DeleteOverride(o.ID, source.Any) },
		"tier":     func(tx *source.Tx) error { return tx.DeleteTier("pro", source.Any) },
		"subject":  func(tx *source.Tx) error { return tx.DeleteSubject("x", source.Any) },
		"token":    func(tx *source.Tx) error { return tx.DeleteToken("x", source.Any) },
		"settings": func(tx *source.Tx) error { return tx.DeleteSettings(source.Any) },
	} {
		if _, err := db.Change(t.Context(), "tester", del); !errors.Is(err, source.ErrNotFound) {
			t.Errorf("%s that is not there: %v", what, err)
		}
	}
}

func testMatch(t *testing.T, url string) {
	db := migrated(t, url)
	put := func(limit string, m source.Match) (r source.RuleRow, err error) {
		_, err = db.Change(t.Context(), "tester", func(tx *source.Tx) (err error) {
			r, err = tx.PutRule(source.RuleRow{Rule: policy.Rule{Name: "a", Limit: limit}}, m)
			return err
		})
		return r, err
	}
	conflict := func(err error, version int64) {
		t.Helper()
		if c, ok := errors.AsType[*source.Conflict](err); !ok || c.Version != version || c.Kind != "rule" || c.Target != "a" {
			t.Errorf("%v, want a conflict with version %d", err, version)
		}
	}
	_, err := put("1/minute", 7)
	conflict(err, 0)
	first, err := put("1/minute", source.Absent)
	if err != nil {
		t.Fatal(err)
	}
	_, err = put("2/minute", source.Absent)
	conflict(err, first.Version)
	second, err := put("2/minute", source.Match(first.Version))
	if err != nil || second.Version <= first.Version || second.Position != first.Position {
		t.Fatalf("%+v, %v after %+v", second, err, first)
	}
	_, err = put("3/minute", source.Match(first.Version))
	conflict(err, second.Version)
	_, err = db.Change(t.Context(), "tester", func(tx *source.Tx) error { return tx.DeleteRule("a", source.Match(first.Version)) })
	conflict(err, second.Version)
	if c := read(t, db); len(c.Rules) != 1 || c.Rules[0].Limit != "2/minute" {
		t.Errorf("left: %+v", c.Rules)
	}
}

// What makes no policy is refused, and told by the row.
func testRefused(t *testing.T, url string) {
	db := migrated(t, url)
	v := change(t, db, func(tx *source.Tx) error {
		_, err := tx.PutRule(source.RuleRow{Rule: perKey}, source.Any)
		return err
	})
	for path, put := range map[string]func(*source.Tx) error{
		`rules["x"].limit`: func(tx *source.Tx) error {
			_, err := tx.PutRule(source.RuleRow{Rule: policy.Rule{Name: "x", Limit: "many/minute"}}, source.Any)
			return err
		},
		`tiers["pro"].limits["nothing"]`: func(tx *source.Tx) error {
			_, err := tx.PutTier(source.TierRow{Name: "pro", Limits: map[string]policy.Limits{"nothing": {"1/minute"}}}, source.Any)
			return err
		},
		`tiers["pro"].limits["per-key"]`: func(tx *source.Tx) error {
			_, err := tx.PutTier(source.TierRow{Name: "pro", Limits: map[string]policy.Limits{"per-key": {"much"}}}, source.Any)
			_, err2 := tx.PutSettings(policy.Document{Tiers: policy.Tiers{From: "header:X-Plan"}}, source.Any)
			return errors.Join(err, err2)
		},
		`tiers.from`: func(tx *source.Tx) error {
			_, err := tx.PutSettings(policy.Document{Tiers: policy.Tiers{From: "nowhere"}}, source.Any)
			return err
		},
	} {
		_, err := db.Change(t.Context(), "tester", put)
		problems, _ := errors.AsType[policy.Errors](err)
		if len(problems) != 1 || problems[0].Path != path || problems[0].File != db.String() {
			t.Errorf("%v, want one problem at %s", err, path)
		}
	}
	var id int64
	_, err := db.Change(t.Context(), "tester", func(tx *source.Tx) error {
		r, err := tx.PutOverride(source.OverrideRow{Override: policy.Override{Rule: "per-key", Key: map[string]string{"other": "x"}, Limit: "1/minute"}}, source.Any)
		id = r.ID
		return err
	})
	if problems, _ := errors.AsType[policy.Errors](err); len(problems) != 1 || problems[0].Path != fmt.Sprintf(`overrides[%d].key["other"]`, id) {
		t.Errorf("override: %v", err)
	}
	if c := read(t, db); c.Version != v {
		t.Errorf("refused changes made version %d of %d", c.Version, v)
	}
	if all, err := db.Audit(t.Context(), 0, 100); err != nil || len(all) != 1 {
		t.Errorf("audit of refused changes: %v, %v", all, err)
	}
}

func testDryRun(t *testing.T, url string) {
	db := migrated(t, url)
	put := func(tx *source.Tx) error {
		_, err := tx.PutRule(source.RuleRow{Rule: perKey}, source.Absent)
		return err
	}
	before, after, err := db.DryRun(t.Context(), "tester", put)
	if err != nil || len(before.Rules) != 0 || len(after.Rules) != 1 || after.Rules[0].Name != "per-key" {
		t.Errorf("%+v, %+v, %v", before, after, err)
	}
	if c := read(t, db); len(c.Rules) != 0 || c.Version != before.Version {
		t.Errorf("a dry run left %+v", c)
	}
	change(t, db, put)
}

func testAudit(t *testing.T, url string) {
	db := migrated(t, url)
	rule := func(limit string) func(*source.Tx) error {
		return func(tx *source.Tx) error {
			_, err := tx.PutRule(source.RuleRow{Rule: policy.Rule{Name: "a", Limit: limit}}, source.Any)
			return err
		}
	}
	change(t, db, rule("1/minute"))
	change(t, db, rule("2/minute"))
	change(t, db, func(tx *source.Tx) error { return tx.DeleteRule("a", source.Any) })
	secret := ""
	change(t, db, func(tx *source.Tx) (err error) {
		secret, _, err = tx.CreateToken("ci", source.Operator, "")
		return err
	})
	all, err := db.Audit(t.Context(), 0, 100)
	if err != nil || len(all) != 4 || all[0].Kind != "token" || all[0].Target != "ci" {
		t.Fatalf("%v, %v", all, err)
	}
	for i, want := range []struct{ action, before, after string }{{"delete", "2/minute", ""}, {"replace", "1/minute", "2/minute"}, {"create", "", "1/minute"}} {
		e := all[i+1]
		limit := func(text source.Row) string {
			var r source.RuleRow
			unmarshal(t, string(text), &r)
			return r.Limit
		}
		if e.Action != want.action || e.Actor != "tester" || e.Target != "a" || limit(e.Before) != want.before || limit(e.After) != want.after || time.Since(e.At) > patience {
			t.Errorf("%+v, want %+v", e, want)
		}
	}
	first, err1 := db.Audit(t.Context(), 0, 3)
	last, err2 := db.Audit(t.Context(), all[2].ID, 3)
	if err := errors.Join(err1, err2); err != nil || !slices.Equal(first, all[:3]) || !slices.Equal(last, all[3:]) {
		t.Errorf("by pages: %v and %v of %v, %v", first, last, all, err)
	}
	if text := fmt.Sprint(all); secret == "" || strings.Contains(text, secret) {
		t.Error("the log has the secret of a token")
	}
}

// A document takes the place of what is there, however long it is, and each row that differs is
// audited.
func testReplace(t *testing.T, url string) {
	const many = 303 // more than go into a statement, twice
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
		for _, o := range doc.Overrides { // of two, the last
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
	if unmarshal(t, string(entries[0].After), &entry); !reflect.DeepEqual(entry, o) || entries[0].Before != "" || entries[0].Actor != "tester" {
		t.Errorf("the audit log has %+v of %+v", entries[0], o)
	}
	before := read(t, db).Version
	check(document(0, "1/minute"), nil)
	if after := read(t, db).Version; after != before {
		t.Errorf("the same again made version %d of %d", after, before)
	}
	later := document(3, "2/minute")
	later.Overrides = append(later.Overrides, override(3, "3/minute"), override(many+2, "4/minute"))
	check(later, map[string]int{"override create": many + 3, "override replace": 1, "override delete": 3, "subject create": many + 3, "subject replace": 0, "subject delete": 3})
}

func testOrder(t *testing.T, url string) {
	db := migrated(t, url)
	change(t, db, func(tx *source.Tx) error {
		_, err := tx.PutRule(source.RuleRow{Rule: perKey}, source.Any)
		for i := range 7 {
			_, err2 := tx.PutRule(source.RuleRow{Rule: policy.Rule{Name: fmt.Sprintf("r%d", i), Limit: "1/minute"}, Position: 1 + i%2}, source.Any)
			err = errors.Join(err, err2)
		}
		return err
	})
	var names []string
	for _, r := range read(t, db).Rules {
		names = append(names, r.Name)
	}
	if want := []string{"r0", "r2", "r4", "r6", "r1", "r3", "r5", "per-key"}; !slices.Equal(names, want) {
		t.Errorf("rules: %v, want %v", names, want)
	}
}

func testTokens(t *testing.T, url string) {
	db := migrated(t, url)
	secrets := make(map[string]string)
	ends := map[string]string{"ever": "", "past": "2020-01-31", "day": "2030-01-31", "hour": "2030-01-31T12:00:00Z"}
	for name, until := range ends {
		change(t, db, func(tx *source.Tx) (err error) {
			secrets[name], _, err = tx.CreateToken(name, source.Operator, until)
			return err
		})
	}
	_, err := db.Change(t.Context(), "tester", func(tx *source.Tx) error {
		_, _, err := tx.CreateToken("ever", source.Admin, "")
		return err
	})
	if _, ok := errors.AsType[*source.Conflict](err); !ok {
		t.Errorf("a second token of one name: %v", err)
	}
	c := read(t, db)
	kept := make(map[string]source.TokenRow)
	for _, row := range c.Tokens {
		kept[row.Name] = row
	}
	for name, secret := range secrets {
		row := kept[name]
		if row.Hash() != sha256.Sum256([]byte(secret)) || row.Role != source.Operator || row.Until != ends[name] {
			t.Errorf("%s: %+v", name, row)
		}
	}
	change(t, db, func(tx *source.Tx) error { return tx.DeleteToken("ever", source.Any) })
	if c := read(t, db); len(c.Tokens) != len(ends)-1 {
		t.Errorf("%v after one was deleted", c.Tokens)
	}
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
		t.Errorf("%d steps were made, and there is one migration", sum)
	}
	db := open(t, url)
	if n, err := db.Migrate(t.Context()); n != 0 || err != nil {
		t.Errorf("once more: %d, %v", n, err)
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
