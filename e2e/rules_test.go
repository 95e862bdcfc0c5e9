package e2e

import (
	"database/sql"
	"io"
	"net/http"
	"strings"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/sluicehq/sluice/internal/postgrestest"
	"github.com/sluicehq/sluice/internal/testkit"
)

const floor = `version: 1
rules:
  - {name: per-user, key: ["header:X-User"], limit: 100/minute}
`

// limitOf returns the limit that a gateway tells a user.
func limitOf(t *testing.T, g *gateway, user string) string {
	t.Helper()
	r, err := http.NewRequest("GET", g.URL+"/", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-User", user)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.Header.Get("X-RateLimit-Limit")
}

// awaitLimit waits until all gateways tell a user a limit.
func awaitLimit(t *testing.T, user, limit string, all ...*gateway) {
	t.Helper()
	for _, g := range all {
		testkit.Await(t, user+" has "+limit, func() bool { return limitOf(t, g, user) == limit })
	}
}

// A fleet follows its database whatever becomes of that, and takes nothing that makes no policy.
func TestRulesFleet(t *testing.T) {
	t.Parallel()
	server := postgrestest.Start(t)
	url := server.Database()
	file := testkit.File(t, "api.yaml", floor)
	start := func() *gateway { return serve(t, "--upstream", "sample", "--policy", file, "--rules", url) }
	fleet := []*gateway{start(), start(), start()}
	awaitLimit(t, "a", "100", fleet...)
	db, err := sql.Open("pgx", url)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	execute := func(text string) {
		t.Helper()
		testkit.Await(t, "the database answers", func() bool { return db.Ping() == nil })
		if _, err := db.Exec(text); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
	}
	execute(`INSERT INTO sluice_overrides (rule, key, limits) VALUES ('per-user', '{"header:X-User": "a"}', '["7/minute"]')`)
	awaitLimit(t, "a", "7", fleet...)
	awaitLimit(t, "b", "100", fleet...)

	execute(`INSERT INTO sluice_rules (name, document) VALUES ('per-user', '{"key": ["header:X-User"], "limit": "a lot"}')`)
	for _, g := range fleet {
		g.Await("the rule is refused", func(r record) bool {
			return strings.HasPrefix(r.Msg, "rules of the database refused") && strings.Contains(r.Problem, `rules["per-user"].limit`)
		})
		if g.Metric("sluice_policy_refused") != 1 || limitOf(t, g, "b") != "100" {
			t.Error("a rule that makes no policy is in force, or no alert tells of it")
		}
	}
	execute(`UPDATE sluice_rules SET document = '{"key": ["header:X-User"], "limit": "200/minute"}'`)
	awaitLimit(t, "b", "200", fleet...)
	testkit.Await(t, "the alert is over", func() bool { return fleet[0].Metric("sluice_policy_refused") == 0 })

	server.Kill()
	for _, g := range fleet {
		testkit.Await(t, "the loss is noticed", func() bool { return g.Metric("sluice_rules_away") == 1 })
	}
	late := start()
	testkit.Await(t, "the loss is noticed", func() bool { return late.Metric("sluice_rules_away") == 1 })
	if late.Metric("sluice_policy_refused") != 0 {
		t.Error("a database that is away is told as one that makes no policy")
	}
	awaitLimit(t, "b", "100", late)
	awaitLimit(t, "b", "200", fleet...)
	awaitLimit(t, "a", "7", fleet...)
	change := request(t, "POST", late.Admin+"/v1/overrides", `{"rule": "per-user", "key": {"header:X-User": "c"}, "limit": "1/minute"}`, "Content-Type", "application/json")
	if resp, said := do(t, change); resp.StatusCode != 503 || resp.Header.Get("Retry-After") == "" || strings.Contains(said, server.Addr) {
		t.Errorf("a change without a database: %s %v %s", resp.Status, resp.Header, said)
	}
	server.Restart()
	execute(`UPDATE sluice_rules SET document = '{"key": ["header:X-User"], "limit": "300/minute"}'`)
	awaitLimit(t, "b", "300", append(fleet, late)...)
	awaitLimit(t, "a", "7", append(fleet, late)...)

	// The file is followed, too, beneath the database.
	overwrite(t, file, floor+"  - {name: all, limit: 50/minute}\n")
	awaitLimit(t, "b", "50", append(fleet, late)...)
	execute(`DELETE FROM sluice_rules`)
	overwrite(t, file, strings.Replace(floor, "100/", "40/", 1))
	awaitLimit(t, "b", "40", append(fleet, late)...)

	// A file that makes no policy with the database is tried again when that changes: the override
	// is for a rule that the file has no more.
	overwrite(t, file, strings.Replace(floor, "per-user", "by-user", 1))
	for _, g := range append(fleet, late) {
		g.Await("the file is refused", func(r record) bool {
			return strings.HasPrefix(r.Msg, "policy refused") && strings.Contains(r.Problem, "per-user")
		})
	}
	awaitLimit(t, "b", "40", append(fleet, late)...)
	execute(`DELETE FROM sluice_overrides`)
	awaitLimit(t, "b", "100", append(fleet, late)...)
	late.Await("it says that the file is in force", func(r record) bool { return strings.HasPrefix(r.Msg, "policy loaded: with") })
}
