package e2e

import (
	"database/sql"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/sluicehq/sluice/internal/postgrestest"
)

// lostFleet is two instances on a database that comes and goes.
type lostFleet struct {
	t      *testing.T
	server *postgrestest.Server
	name   string // of the database
	all    []*gateway
}

// sql runs a statement where the server is now.
func (l *lostFleet) sql(text string) {
	l.t.Helper()
	db, err := sql.Open("pgx", l.server.URL(l.name))
	if err != nil {
		l.t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec(text); err != nil {
		l.t.Fatalf("%s: %v", text, err)
	}
}

// override sets an override through an instance, and returns the status. If that is 503, the answer
// says when to try again, and not where the database is.
func (l *lostFleet) override(by int, user, limit string) int {
	l.t.Helper()
	body := fmt.Sprintf(`{"rule": "per-user", "key": {"header:X-User": %q}, "limit": %q}`, user, limit)
	resp, said := do(l.t, request(l.t, "POST", l.all[by].admin+"/v1/overrides", body, "Content-Type", "application/json"))
	switch {
	case resp.StatusCode == http.StatusServiceUnavailable && (resp.Header.Get("Retry-After") == "" || strings.Contains(said, l.server.Addr)):
		l.t.Errorf("503 with %q: %s", resp.Header, said)
	case resp.StatusCode != http.StatusServiceUnavailable && resp.StatusCode != http.StatusCreated && resp.StatusCode != http.StatusConflict:
		l.t.Errorf("%s: %s", resp.Status, said)
	}
	return resp.StatusCode
}

// overriddenAgain sets an override as soon as that can be done again.
func (l *lostFleet) overriddenAgain(by int, user string) {
	l.t.Helper()
	awaitThat(l.t, "changes are taken again", func() bool {
		status := l.override(by, user, "8/minute")
		return status == http.StatusCreated || status == http.StatusConflict // the one before was committed, and nobody was told
	})
	awaitLimit(l.t, user, "8", l.all...)
}

// Whatever becomes of the connections and the server, the last policy stays, changes are refused
// with the time to try again, and nothing is missed of what was changed in between, by whom ever.
func TestRulesLost(t *testing.T) {
	t.Parallel()
	l := &lostFleet{t: t, server: postgrestest.Start(t)}
	url := l.server.Database()
	l.name = strings.TrimSuffix(url[strings.LastIndex(url, "/")+1:], "?sslmode=disable")
	for range 2 {
		l.all = append(l.all, serve(t, "--upstream", "sample", "--policy", write(t, "api.yaml", floor), "--rules", url))
	}
	l.sql(`INSERT INTO sluice_rules (name, document) VALUES ('per-user', '{"key": ["header:X-User"], "limit": "200/minute"}')`)
	awaitLimit(t, "b", "200", l.all...)
	l.cut()
	l.kill()
	for _, g := range l.all {
		if metric(t, g, `sluice_policy_reloads_total{result="refused"}`) != 0 {
			t.Error("a database that is away is told as one that makes no policy")
		}
	}
}

// cut cuts the connections again and again.
func (l *lostFleet) cut() {
	l.t.Helper()
	for n := range 3 {
		l.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND datname = current_database()")
		l.sql(fmt.Sprintf(`UPDATE sluice_rules SET document = '{"key": ["header:X-User"], "limit": "%d/minute"}'`, 300+n))
		awaitLimit(l.t, "b", fmt.Sprint(300+n), l.all...)
		l.overriddenAgain(n%2, fmt.Sprintf("cut-%d", n))
	}
}

// kill kills the server, lets somebody change the tables where no instance finds them, and brings it
// back.
func (l *lostFleet) kill() {
	l.t.Helper()
	home := l.server.Addr
	for n := range 2 {
		l.server.Kill()
		for i, g := range l.all {
			if status := l.override(i, "x", "1/minute"); status != http.StatusServiceUnavailable {
				l.t.Errorf("a change without a database: %d", status)
			}
			g.operator().fails("block per-user header:X-User=x --until 2126-12-31", "database")
			g.operator().does("override list", "cut-0")
		}
		awaitLimit(l.t, "b", fmt.Sprint(302+n), l.all...)
		awaitLimit(l.t, "cut-1", "8", l.all...)
		l.server.Move()
		l.sql(fmt.Sprintf(`UPDATE sluice_rules SET document = '{"key": ["header:X-User"], "limit": "%d/minute"}'`, 303+n))
		l.sql(fmt.Sprintf(`INSERT INTO sluice_overrides (rule, key, limits) VALUES ('per-user', '{"header:X-User": "moved-%d"}', '["9/minute"]')`, n))
		l.sql(`DELETE FROM sluice_overrides WHERE entity_id = 'cut-2'`)
		awaitLimit(l.t, "b", fmt.Sprint(302+n), l.all...) // it is not there for them
		l.server.MoveTo(home)
		awaitLimit(l.t, "b", fmt.Sprint(303+n), l.all...)
		awaitLimit(l.t, fmt.Sprintf("moved-%d", n), "9", l.all...)
		awaitLimit(l.t, "cut-2", fmt.Sprint(303+n), l.all...)
		l.overriddenAgain(n, fmt.Sprintf("back-%d", n))
	}
}
