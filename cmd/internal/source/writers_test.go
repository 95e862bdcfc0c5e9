package source_test

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/sluicehq/sluice/cmd/internal/source"
	"github.com/sluicehq/sluice/internal/seed"
	"github.com/sluicehq/sluice/policy"
)

// writerVariable, if set to the URL of a database, makes the test binary write into the database until it is killed.
const writerVariable = "SOURCE_TEST_WRITER"

func TestMain(m *testing.M) {
	if url := os.Getenv(writerVariable); url != "" {
		write(url, os.Args[len(os.Args)-1])
		return
	}
	goleak.VerifyTestMain(m)
}

const writes = 1000

// write makes changes and prints the key of each one after it has been acknowledged.
func write(url, round string) {
	db, err := source.Open(url, slog.New(slog.DiscardHandler))
	if err != nil {
		panic(err)
	}
	for i := range writes {
		key := map[string]string{"api_key": round + "." + strconv.Itoa(i)}
		_, err := db.Change(context.Background(), "writer", func(tx *source.Tx) error {
			_, err := tx.PutOverride(source.OverrideRow{Override: policy.Override{Rule: "per-key", Key: key, Limit: "1/minute"}}, source.Absent)
			return err
		})
		if err != nil {
			panic(err)
		}
		fmt.Println(key["api_key"])
	}
}

// A writer is killed at a random moment. Every acknowledged change is in the database, with its entry in the audit log,
// and the file is intact. "make crash" runs more rounds.
func TestSQLiteKilled(t *testing.T) {
	t.Parallel()
	rounds := 1
	if text := os.Getenv("SLUICE_CRASH"); text != "" {
		var err error
		if rounds, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	seed := seed.Of(t)
	random := rand.New(rand.NewPCG(seed, 0))
	url := "sqlite:" + filepath.Join(t.TempDir(), "rules.db")
	db := migrated(t, url)
	change(t, db, func(tx *source.Tx) error {
		_, err := tx.PutRule(source.RuleRow{Rule: perKey}, source.Any)
		return err
	})
	acknowledged := make(map[string]bool)
	for round := range rounds {
		for _, key := range killWriter(t, url, round, random.IntN(writes/2)) {
			acknowledged[key] = true
		}
		again := open(t, url)
		there := make(map[string]bool)
		for _, o := range read(t, again).Overrides {
			there[o.Key["api_key"]] = true
		}
		for key := range acknowledged {
			if !there[key] {
				t.Errorf("round %d: %s was acknowledged, but is missing", round, key)
			}
		}
		if more := len(there) - len(acknowledged); more < 0 || more > round+1 {
			t.Errorf("round %d: %d changes were made, and %d acknowledged", round, len(there), len(acknowledged))
		}
		checkFile(t, url, len(there))
	}
	t.Logf("%d changes acknowledged in %d rounds", len(acknowledged), rounds)
}

// killWriter starts a writer, kills it after the given number of changes, and returns the keys of the acknowledged
// changes.
func killWriter(t *testing.T, url string, round, after int) (said []string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], strconv.Itoa(round))
	cmd.Env = append(os.Environ(), writerVariable+"="+url)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		said = append(said, lines.Text())
		if len(said) == after+1 {
			_ = cmd.Process.Kill()
		}
	}
	if err := cmd.Wait(); err == nil {
		t.Fatal("the writer was not killed")
	}
	return said
}

// checkFile checks the integrity of an SQLite file and the number of audited overrides.
func checkFile(t *testing.T, url string, overrides int) {
	t.Helper()
	db := direct(t, url)
	var said string
	if err := db.QueryRow("PRAGMA integrity_check").Scan(&said); err != nil || said != "ok" {
		t.Errorf("integrity: %s, %v", said, err)
	}
	var entries int
	if err := db.QueryRow("SELECT count(*) FROM sluice_audit WHERE kind = 'override'").Scan(&entries); err != nil || entries != overrides {
		t.Errorf("%d entries in the audit log for %d overrides, %v", entries, overrides, err)
	}
}

// If several writers have seen the same version of an override, one of them replaces it, and the others get a conflict.
func testParallelWriters(t *testing.T, url string) {
	const parallel = 60
	instances := []*source.Database{migrated(t, url), open(t, url)}
	put := func(db *source.Database, limit int, match source.Match) error {
		_, err := db.Change(t.Context(), "tester", func(tx *source.Tx) error {
			_, err := tx.PutOverride(source.OverrideRow{Override: policy.Override{Rule: "per-key", Key: abc, Limit: fmt.Sprintf("%d/minute", limit)}}, match)
			return err
		})
		return err
	}
	change(t, instances[0], func(tx *source.Tx) error {
		_, err := tx.PutRule(source.RuleRow{Rule: perKey}, source.Any)
		return err
	})
	match := source.Absent
	for round := range 2 {
		said := make([]error, parallel)
		var all sync.WaitGroup
		for i := range parallel {
			all.Go(func() { said[i] = put(instances[i%2], 1+round*parallel+i, match) })
		}
		all.Wait()
		row := read(t, instances[0]).Overrides[0]
		for i, err := range said {
			won := row.Limit == fmt.Sprintf("%d/minute", 1+round*parallel+i)
			conflict, lost := errors.AsType[*source.Conflict](err)
			switch {
			case errors.Is(err, source.ErrUnavailable): // a timeout, after which both are possible
			case won && err != nil, !won && !lost:
				t.Errorf("writer %d: won %v, error %v", i, won, err)
			case lost && conflict.Version != row.Version:
				t.Errorf("writer %d: the conflict has version %d, want %d", i, conflict.Version, row.Version)
			}
		}
		match = source.Match(row.Version)
	}
	entries, err := instances[0].Audit(t.Context(), 0, 100)
	if err != nil || len(entries) != 3 || entries[2].Kind != "rule" {
		t.Errorf("%d entries in the audit log for three changes, %v", len(entries), err)
	}
}

// Texts with SQL syntax or odd characters are stored as they are, or refused.
func testStrings(t *testing.T, url string) {
	db := migrated(t, url)
	texts := []string{
		"'; DROP TABLE sluice_rules; --", `"; DELETE FROM sluice_audit; --`, "') OR ('1'='1", "$1", "?1", ":x", "@p", "%s %d", `\`, `\'`, "NULL", "",
		"/* x */", "a\x00b", "\xff", "\u2028", "😀", "a\nb\tc", `{"a": "b"}`, "E'\\x41'", "$$x$$", strings.Repeat("'", 1990), strings.Repeat("é", 2000),
	}
	change(t, db, func(tx *source.Tx) error {
		_, err := tx.PutRule(source.RuleRow{Rule: perKey}, source.Any)
		_, err2 := tx.PutSettings(policy.Document{Tiers: policy.Tiers{From: "header:X-Plan", Subject: "header:X-User"}}, source.Any)
		return errors.Join(err, err2)
	})
	for i, text := range texts {
		rule := func(r policy.Rule, kept func(policy.Rule) string) func(*source.Tx) (string, error) {
			return func(tx *source.Tx) (string, error) {
				row, err := tx.PutRule(source.RuleRow{Rule: r}, source.Any)
				return kept(row.Rule), err
			}
		}
		override := func(o policy.Override, kept func(policy.Override) string) func(*source.Tx) (string, error) {
			return func(tx *source.Tx) (string, error) {
				row, err := tx.PutOverride(source.OverrideRow{Override: o}, source.Any)
				return kept(row.Override), err
			}
		}
		for field, put := range map[string]func(*source.Tx) (kept string, err error){
			"rule.name":        rule(policy.Rule{Name: text, Limit: "1/minute"}, func(r policy.Rule) string { return r.Name }),
			"rule.description": rule(policy.Rule{Name: "x", Description: text, Limit: "1/minute"}, func(r policy.Rule) string { return r.Description }),
			"override.key": override(policy.Override{Rule: "per-key", Key: map[string]string{"api_key": text}, Block: true},
				func(o policy.Override) string { return o.Key["api_key"] }),
			"override.until":  override(policy.Override{Rule: "per-key", Key: abc, Exempt: true, Until: text}, func(o policy.Override) string { return o.Until }),
			"override.reason": override(policy.Override{Rule: "per-key", Key: abc, Block: true, Reason: text}, func(o policy.Override) string { return o.Reason }),
			"tier.name": func(tx *source.Tx) (string, error) {
				r, err := tx.PutTier(source.TierRow{Name: text, Description: text}, source.Any)
				return r.Name, err
			},
			"subject": func(tx *source.Tx) (string, error) {
				r, err := tx.PutSubject(source.SubjectRow{TierSubject: policy.TierSubject{Subject: text, Tier: "pro"}}, source.Any)
				return r.Subject, err
			},
			"settings.list": func(tx *source.Tx) (string, error) {
				doc := policy.Document{Lists: map[string]policy.List{text: {Networks: []string{"192.0.2.1"}}}}
				doc.Tiers = policy.Tiers{From: "header:X-Plan", Subject: "header:X-User"}
				r, err := tx.PutSettings(doc, source.Any)
				return strings.Join(slices.Collect(maps.Keys(r.Document.Lists)), ""), err
			},
			"token.name": func(tx *source.Tx) (string, error) {
				_, r, err := tx.CreateToken(text, source.Viewer, "")
				return r.Name, err
			},
		} {
			checkString(t, db, fmt.Sprintf("%s = text %d", field, i), text, put)
		}
		_, err1 := db.Change(t.Context(), text, func(*source.Tx) error { return nil })
		err2 := db.Record(t.Context(), text, "reset", "subject", text, text, func() error { return nil })
		for n, err := range []error{err1, err2} {
			if isUnavailable(err) {
				t.Errorf("operation %d fails with text %d: %v", n, i, err)
			}
		}
	}
	if c := read(t, db); len(c.Rules) == 0 || c.Rules[0].Name != "per-key" {
		t.Errorf("the remaining rules: %+v", c.Rules)
	}
}

// checkString checks that a text is stored unchanged or refused.
func checkString(t *testing.T, db *source.Database, what, text string, put func(*source.Tx) (string, error)) {
	t.Helper()
	var kept string
	_, err := db.Change(t.Context(), "tester", func(tx *source.Tx) (err error) {
		kept, err = put(tx)
		return err
	})
	_, invalid := errors.AsType[*source.Invalid](err)
	_, wrong := errors.AsType[policy.Errors](err)
	_, conflict := errors.AsType[*source.Conflict](err)
	switch {
	case err == nil && kept != text:
		t.Errorf("%s: kept as %q", what, kept)
	case err != nil && !invalid && !wrong && !conflict:
		t.Errorf("%s: %v", what, err)
	}
}

// The columns for searches have the same values as the documents.
func testColumns(t *testing.T, url string) {
	db := migrated(t, url)
	rules := []policy.Rule{
		{Name: "a", Key: []string{"client_ip", "route"}, Match: []string{"/x"}, Limit: "100/minute burst 20", Tiers: map[string]policy.Limits{"pro": {"9/second"}, "free": {"1/second"}}},
		{Name: "b", Limits: []string{"1/second", "5/hour"}},
		{Name: "c", Limit: "10000/month"},
		{Name: "d", Limit: "3/250ms"},
	}
	change(t, db, func(tx *source.Tx) error {
		_, err := tx.PutSettings(policy.Document{Tiers: policy.Tiers{From: "header:X-Plan"}}, source.Any)
		for i, r := range rules {
			_, err2 := tx.PutRule(source.RuleRow{Rule: r, Position: 9 - i%2}, source.Any)
			err = errors.Join(err, err2)
		}
		_, err3 := tx.PutOverride(source.OverrideRow{Override: policy.Override{Rule: "a", Key: map[string]string{"route": "*", "client_ip": "192.0.2.1"}, Limit: "7/2s"}}, source.Any)
		_, err4 := tx.PutOverride(source.OverrideRow{Override: policy.Override{Rule: "a", Key: map[string]string{"route": "/x", "client_ip": "192.0.2.1"}, Block: true}}, source.Any)
		return errors.Join(err, err3, err4)
	})
	by := direct(t, url)
	for query, want := range map[string]string{
		"SELECT name, key_pattern, tiers, requests_limit, window_seconds FROM sluice_rules ORDER BY name":                                            "a client_ip,route free,pro 100 60|b    |c   10000 |d   3 0.25",
		"SELECT entity_type, entity_id, requests_limit, window_seconds, CASE WHEN block THEN 'blocks' ELSE '' END FROM sluice_overrides ORDER BY id": "client_ip 192.0.2.1 7 2 |client_ip,route 192.0.2.1,/x   blocks",
		"SELECT name FROM sluice_rules ORDER BY position, name":                                                                                      "b|d|a|c",
		"SELECT count(*) FROM sluice_rules WHERE updated_by = 'tester' AND updated_at > '2020-01-01' AND updated_at < '2120-01-01'":                  "4",
	} {
		if got := table(t, by, query); got != want {
			t.Errorf("%s: %s, want %s", query, got, want)
		}
	}
}

// table returns the result of a query, with "|" between rows.
func table(t *testing.T, db *sql.DB, query string) string {
	t.Helper()
	rows, err := db.Query(query)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	columns, _ := rows.Columns()
	var lines []string
	for rows.Next() {
		values, into := make([]sql.NullString, len(columns)), make([]any, len(columns))
		for i := range values {
			into[i] = &values[i]
		}
		if err := rows.Scan(into...); err != nil {
			t.Fatal(err)
		}
		texts := make([]string, len(columns))
		for i, v := range values {
			texts[i] = v.String
		}
		lines = append(lines, strings.Join(texts, " "))
	}
	return strings.Join(lines, "|")
}
