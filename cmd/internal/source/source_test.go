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

	"github.com/sluicehq/sluice/cmd/internal/source"
	"github.com/sluicehq/sluice/internal/postgrestest"
	"github.com/sluicehq/sluice/policy"
)

// patience bounds the wait for what is sure to come.
const patience = 5 * time.Minute

// suite is what holds for every database, each test with the URL of an empty one. What the rows are and how they
// change is held over both databases by the scripts of the admin API, in cmd/internal/server/testdata/api.
var suite = map[string]func(t *testing.T, url string){
	"rows":             testRows,
	"tokens":           testTokens,
	"replace":          testReplace,
	"restore":          testRestore,
	"order":            testOrder,
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
	abc    = map[string]string{"api_key": "abc"}
)

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

// Every row is read as it was written, and a row that is written again as it is makes no version.
func testRows(t *testing.T, url string) {
	db := migrated(t, url)
	settings := policy.Document{Tiers: policy.Tiers{From: "header:X-Plan"}, Lists: map[string]policy.List{"us": {Networks: []string{"192.0.2.0/24"}}}}
	tier := source.TierRow{Name: "pro", Description: "customers", Limits: map[string]policy.Limits{"per-key": {"1000/minute"}, "login": {"1/second", "50/hour"}}}
	var override source.OverrideRow
	before := time.Now().Add(-time.Second)
	v := change(t, db, func(tx *source.Tx) error {
		_, err1 := tx.PutSettings(settings, source.Absent)
		_, err2 := tx.PutRule(source.RuleRow{Rule: perKey}, source.Absent)
		_, err3 := tx.PutRule(source.RuleRow{Rule: login}, source.Absent)
		_, err4 := tx.PutTier(tier, source.Absent)
		var err5 error
		override, err5 = tx.PutOverride(source.OverrideRow{Override: policy.Override{Rule: "per-key", Key: abc, Limit: "7/minute", Until: "2999-01-31"}}, source.Absent)
		return errors.Join(err1, err2, err3, err4, err5)
	})
	c := read(t, db)
	rules := []policy.Rule{c.Rules[0].Rule, c.Rules[1].Rule}
	for what, is := range map[string]bool{
		"version":  c.Version == v,
		"settings": reflect.DeepEqual(c.Settings.Document.Lists, settings.Lists) && c.Settings.Document.Tiers == settings.Tiers && c.Settings.Version > 0,
		"rules":    reflect.DeepEqual(rules, []policy.Rule{perKey, login}),
		"meta":     c.Rules[0].UpdatedBy == "tester" && c.Rules[0].UpdatedAt.After(before) && c.Rules[0].Version > 0,
		"tiers":    reflect.DeepEqual(c.Tiers[0].Limits, tier.Limits) && c.Tiers[0].Description == tier.Description,
		"override": reflect.DeepEqual(c.Overrides, []source.OverrideRow{override}) && override.ID > 0 && override.Until == "2999-01-31",
	} {
		if !is {
			t.Errorf("the %s: %+v", what, c)
		}
	}
	again := change(t, db, func(tx *source.Tx) error {
		_, err := tx.PutOverride(override, source.Match(override.Version))
		return err
	})
	if again != v {
		t.Errorf("to put what is there made version %d of %d", again, v)
	}
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

// Of a token the database has the hash, and one name is one token.
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
		if n < 0 || tokens[n].Hash() != sha256.Sum256([]byte(secret)) || tokens[n].Role != source.Operator || tokens[n].Until != until {
			t.Errorf("%s: %+v", name, tokens)
		}
		if _, err := db.Change(t.Context(), "tester", create); !conflicts(err) {
			t.Errorf("a second token of one name: %v", err)
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
