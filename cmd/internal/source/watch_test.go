package source_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

	"github.com/sluicehq/sluice/cmd/internal/source"
	"github.com/sluicehq/sluice/internal/postgrestest"
	"github.com/sluicehq/sluice/internal/testkit"
	"github.com/sluicehq/sluice/policy"
)

// follower is an instance that follows a database.
type follower struct {
	db     *source.Database
	latest atomic.Pointer[source.Contents]
}

// follow follows a database until the test ends.
func follow(t *testing.T, url string) *follower {
	t.Helper()
	return following(t, url, func(*source.Database) {})
}

// following is like follow, but calls first before the follower starts.
func following(t *testing.T, url string, first func(*source.Database)) *follower {
	t.Helper()
	f := &follower{db: open(t, url)}
	first(f.db)
	f.latest.Store(read(t, f.db))
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		f.db.Watch(ctx, func(c *source.Contents) { f.latest.Store(c) })
	}()
	t.Cleanup(func() { stop(); <-ended })
	return f
}

// limits returns the names and limits of the rules.
func (f *follower) limits() string {
	var all []string
	for _, r := range f.latest.Load().Rules {
		all = append(all, r.Name+" "+r.Limit)
	}
	return strings.Join(all, ", ")
}

// saw waits until the follower has rules with these limits.
func (f *follower) saw(t *testing.T, want string) {
	t.Helper()
	testkit.Await(t, "the follower has "+want+" instead of "+f.limits(), func() bool { return f.limits() == want })
}

func putRule(t *testing.T, db *source.Database, name, limit string) int64 {
	t.Helper()
	return change(t, db, func(tx *source.Tx) error {
		_, err := tx.PutRule(source.RuleRow{Rule: policy.Rule{Name: name, Limit: limit}}, source.Any)
		return err
	})
}

// direct returns a connection for plain SQL.
func direct(t *testing.T, url string) *sql.DB {
	t.Helper()
	driver, dsn := "pgx", url
	if path, found := strings.CutPrefix(url, "sqlite:"); found {
		driver, dsn = "sqlite", "file:"+path+"?_pragma=busy_timeout(20000)"
	}
	db, err := sql.Open(driver, dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func execute(t *testing.T, db *sql.DB, text string) {
	t.Helper()
	if _, err := db.Exec(text); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
}

// A follower sees changes by another instance, by its own instance, and by SQL.
func testWatch(t *testing.T, url string) {
	writer := migrated(t, url)
	putRule(t, writer, "a", "1/minute")
	f := follow(t, url)
	putRule(t, writer, "a", "2/minute")
	f.saw(t, "a 2/minute")
	putRule(t, f.db, "a", "3/minute")
	f.saw(t, "a 3/minute")
	db := direct(t, url)
	before := f.latest.Load().Rules[0]
	execute(t, db, `INSERT INTO sluice_rules (name, position, document) VALUES ('b', 20, '{"limit": "4/minute"}')`)
	f.saw(t, "a 3/minute, b 4/minute")
	execute(t, db, `UPDATE sluice_rules SET document = '{"limit": "5/minute"}' WHERE name = 'a'`)
	f.saw(t, "a 5/minute, b 4/minute")
	if after := f.latest.Load().Rules[0]; after.Version <= before.Version {
		t.Errorf("after a change by SQL, the row has version %d, want more than %d", after.Version, before.Version)
	}
	execute(t, db, `DELETE FROM sluice_rules WHERE name = 'b'`)
	f.saw(t, "a 5/minute")
	if s := f.db.Status(); s.Unavailable || s.Version != f.latest.Load().Version || time.Since(s.Asked) > patience {
		t.Errorf("%+v", s)
	}
}

// Incremental reads give the same contents as the database has.
func testPiecemeal(t *testing.T, url string) {
	writer := migrated(t, url)
	f := follow(t, url)
	change(t, writer, func(tx *source.Tx) error {
		_, err := tx.PutRule(source.RuleRow{Rule: perKey}, source.Any)
		return err
	})
	put := func(i int, limit string) func(*source.Tx) error {
		return func(tx *source.Tx) error {
			_, err := tx.PutOverride(source.OverrideRow{Override: policy.Override{Rule: "per-key", Key: map[string]string{"api_key": fmt.Sprint(i)}, Limit: limit}}, source.Any)
			return err
		}
	}
	for i := range 10 {
		change(t, writer, put(i, "1/minute"))
	}
	all := read(t, writer).Overrides
	change(t, writer, put(4, "2/minute"))
	change(t, writer, func(tx *source.Tx) error { return tx.DeleteOverride(all[6].Name, source.Any) })
	change(t, writer, put(10, "3/minute"))
	// Deleting one and adding another in one transaction keeps their number.
	last := change(t, writer, func(tx *source.Tx) error {
		if err := tx.DeleteOverride(all[0].Name, source.Any); err != nil {
			return err
		}
		return put(11, "4/minute")(tx)
	})
	testkit.Await(t, "the follower has the last version", func() bool { return f.latest.Load().Version == last })
	var got []string
	for _, o := range f.latest.Load().Overrides {
		got = append(got, o.Key["api_key"]+" "+o.Limit)
	}
	want := "1 1/minute, 2 1/minute, 3 1/minute, 4 2/minute, 5 1/minute, 7 1/minute, 8 1/minute, 9 1/minute, 10 3/minute, 11 4/minute"
	if strings.Join(got, ", ") != want {
		t.Errorf("%v, want %v", got, want)
	}
}

// Unreadable and invalid rows are reported, and the policy in force stays.
func testFaults(t *testing.T, url string) {
	db := migrated(t, url)
	putRule(t, db, "a", "1/minute")
	var inForce *policy.Policy
	stack := &source.Stack{Name: db.String(), Swap: func(p *policy.Policy) { inForce = p }}
	if err := stack.Contents(read(t, db)); err != nil {
		t.Fatal(err)
	}
	good := inForce
	by := direct(t, url)
	for path, text := range map[string]string{
		`rules["b"]`:               `INSERT INTO sluice_rules (name, document) VALUES ('b', '{"limit": "1/minute", "lmit": "x"}')`,
		`rules["c"]`:               `INSERT INTO sluice_rules (name, document) VALUES ('c', '[1]')`,
		`rules["d"].limit`:         `INSERT INTO sluice_rules (name, document) VALUES ('d', '{"limit": "a lot"}')`,
		`overrides[7]`:             `INSERT INTO sluice_overrides (id, rule, key, limits) VALUES (7, 'a', '{"api_key": "x"}', '["1/minute"]')`,
		`overrides[8]`:             `INSERT INTO sluice_overrides (id, rule, key, limits) VALUES (8, 'a', '"x"', '["1/minute"]')`,
		`settings`:                 `INSERT INTO sluice_settings (document) VALUES ('{"ignorecase": true}')`,
		`tiers["t"].limits["nil"]`: `INSERT INTO sluice_tiers (name, limits) VALUES ('t', '{"nil": "1/minute"}')`,
		`subjects["s"]`:            `INSERT INTO sluice_subjects (subject, tier) VALUES ('s', 't')`,
	} {
		execute(t, by, text)
		err := stack.Contents(read(t, db))
		if err == nil || !strings.Contains(err.Error(), db.String()+": "+path+":") {
			t.Errorf("%s: %v, want %s", text, err, path)
		}
		if inForce != good || stack.Policy() != good {
			t.Errorf("%s: another policy is in force", text)
		}
		for _, table := range []string{"settings", "tiers", "subjects", "overrides"} {
			execute(t, by, "DELETE FROM sluice_"+table)
		}
		execute(t, by, "DELETE FROM sluice_rules WHERE name <> 'a'")
	}
	putRule(t, db, "a", "2/minute")
	if err := stack.Contents(read(t, db)); err != nil || inForce == good {
		t.Errorf("after the repair: %v", err)
	}
	// A change of overrides alone is applied to the policy in force.
	change(t, db, func(tx *source.Tx) error {
		_, err := tx.PutRule(source.RuleRow{Rule: perKey}, source.Any)
		return err
	})
	without := stack.Contents(read(t, db))
	good = inForce
	change(t, db, func(tx *source.Tx) error {
		_, err := tx.PutOverride(source.OverrideRow{Override: policy.Override{Rule: "per-key", Key: abc, Limit: "1/minute"}}, source.Any)
		return err
	})
	err := errors.Join(without, stack.Contents(read(t, db)))
	if doc, _ := stack.Document(); err != nil || len(doc.Overrides) != 1 || inForce == good {
		t.Errorf("with an override: %v, %+v", err, doc)
	}
}

// A follower misses no change if its connections or the server are killed.
func TestPostgresLost(t *testing.T) {
	t.Parallel()
	server := postgrestest.Start(t)
	url := server.Database()
	writer := migrated(t, url)
	putRule(t, writer, "a", "1/minute")
	f := follow(t, url)
	by := direct(t, url)
	n := 1
	for range 2 {
		_, err := by.Exec("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND datname IS NOT NULL")
		if err != nil {
			t.Fatal(err)
		}
		n++
		execute(t, by, fmt.Sprintf(`UPDATE sluice_rules SET document = '{"limit": "%d/minute"}'`, n))
		f.saw(t, fmt.Sprintf("a %d/minute", n))
	}
	server.Kill()
	testkit.Await(t, "the follower reports the database as unavailable", func() bool { return f.db.Status().Unavailable })
	if _, err := writer.Change(t.Context(), "tester", func(*source.Tx) error { return nil }); !isUnavailable(err) {
		t.Errorf("a change without a database: %v", err)
	}
	if f.limits() != fmt.Sprintf("a %d/minute", n) {
		t.Errorf("without the database: %s", f.limits())
	}
	server.Restart()
	n++
	testkit.Await(t, "changes succeed again", func() bool {
		_, err := writer.Change(t.Context(), "tester", func(tx *source.Tx) error {
			_, err := tx.PutRule(source.RuleRow{Rule: policy.Rule{Name: "a", Limit: fmt.Sprintf("%d/minute", n)}}, source.Any)
			return err
		})
		return err == nil
	})
	f.saw(t, fmt.Sprintf("a %d/minute", n))
	testkit.Await(t, "the follower reports the database as available", func() bool { return !f.db.Status().Unavailable })
}

// Notifications of PostgreSQL are enough to see changes, and so is polling, which SQLite needs.
func testHeard(t *testing.T, url string) {
	writer := migrated(t, url)
	all := []*follower{following(t, url, (*source.Database).Deafen)}
	if strings.HasPrefix(url, "postgres") {
		all = append(all, following(t, url, (*source.Database).NeverAsk))
	}
	for i := range 5 {
		limit := fmt.Sprintf("%d/minute", i+1)
		putRule(t, writer, "a", limit)
		for _, f := range all {
			f.saw(t, "a "+limit)
		}
	}
}

// Changes by this instance are known when they are acknowledged, and stay known even while all rows are read again.
func testOwnChanges(t *testing.T, url string) {
	db := migrated(t, url)
	read(t, db)
	ctx, stop := context.WithCancel(t.Context())
	var others sync.WaitGroup
	others.Go(func() { db.Watch(ctx, func(*source.Contents) {}) })
	others.Go(func() {
		for ctx.Err() == nil {
			db.Doubt()
			runtime.Gosched()
		}
	})
	defer others.Wait()
	defer stop()
	for i := range 60 {
		version := change(t, db, func(tx *source.Tx) error {
			_, err := tx.PutRule(source.RuleRow{Rule: policy.Rule{Name: "a", Limit: fmt.Sprintf("%d/minute", i+1)}}, source.Any)
			return err
		})
		for range 10 {
			if known := db.Known().Version; known < version {
				t.Fatalf("version %d is known after %d was committed", known, version)
			}
			runtime.Gosched()
		}
	}
}
