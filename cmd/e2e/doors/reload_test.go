package doors

import (
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/sluicehq/sluice/internal/testkit"
)

// asNginx asks a limiter as nginx does, and returns the status of the answer.
func asNginx(t *testing.T, l *limiter) int {
	t.Helper()
	return ask(t, "GET", "http://"+l.addr+"/auth/nginx", "", "X-Original-Method", "POST", "X-Original-URI", "/login",
		"X-Original-Host", "api.test", "X-Real-IP", "192.0.2.1").status
}

// A policy that reads bodies which no asker brings is refused when it comes later, too, from a file
// or from a database, and the old one stays.
func TestReloadWithBodies(t *testing.T) {
	t.Parallel()
	const none = "version: 1\nrules: [{name: none, match: POST /login, limit: 1/day}]\n"
	const problem = `rule \"login\": the rule reads the bodies of requests, and --auth nginx does not bring them; auth_request asks without the body: ask as nginx-accel does`
	rules := "sqlite:" + filepath.Join(t.TempDir(), "rules.db")
	l := limit(t, none, "--auth", "nginx", "--rules", rules)
	if got := asNginx(t, l); got != http.StatusOK {
		t.Fatalf("status %d", got)
	}

	if err := os.WriteFile(l.policy, []byte(byName), 0o600); err != nil {
		t.Fatal(err)
	}
	l.awaitLog("policy.yaml:4: " + problem)
	if got := asNginx(t, l); got != http.StatusForbidden {
		t.Errorf("the old policy does not stay: status %d", got)
	}
	if err := os.WriteFile(l.policy, []byte(none), 0o600); err != nil {
		t.Fatal(err)
	}
	l.awaitLog(`"policy loaded"`)

	out, err := command(program(t), "import", "--rules", rules, "--yes", testkit.File(t, "name.yaml", byName)).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	l.awaitLog("rules of the database refused, the policy stays")
	l.awaitLog(`rules[\"login\"].key: ` + problem)
	if got := asNginx(t, l); got != http.StatusForbidden {
		t.Errorf("the old policy does not stay: status %d", got)
	}
}
