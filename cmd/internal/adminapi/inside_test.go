package adminapi_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/sluicehq/sluice/cmd/internal/control"
	"github.com/sluicehq/sluice/cmd/internal/source"
)

// What is done within the process is refused, validated and answered as over the network, and is
// its caller's act.
func TestInside(t *testing.T) {
	s := start(t, func(c *setup) { c.Tokens, c.Local = roles, false })
	a := s.config.api()
	do := func(role source.Role, method, path, match, body string) (int, string) {
		status, answer := a.Do(t.Context(), control.Caller{Name: "eve", Role: role}, method, path, match, []byte(body))
		return status, string(answer)
	}
	const k1 = `{"rule": "per-key", "key": {"api_key": "k-1"}}`
	for _, test := range []struct {
		role               source.Role
		method, path, body string
		status             int
		says               string
	}{
		{source.Viewer, "GET", "/v1/policy", "", 200, `"database":false`},
		{source.Nobody, "GET", "/v1/policy", "", 403, "eve has the role nobody"},
		{source.Viewer, "POST", "/v1/subjects/reset", k1, 403, "eve has the role viewer"},
		{source.Operator, "POST", "/v1/subjects/reset", k1, 200, `"dry_run":false`},
		{source.Operator, "POST", "/v1/subjects/reset", `{"rule": "nowhere"}`, 422, "/rule"},
		{source.Operator, "POST", "/v1/subjects/reset", `{`, 400, "not JSON"},
		{source.Operator, "POST", "/v1/subjects/reset", strings.Repeat(" ", 17<<20), 413, "larger"},
		{source.Viewer, "GET", "/v1/rules?limit=1", "", 200, `"next"`},
		{source.Viewer, "GET", "/v1/nowhere", "", 404, "no such path"},
		{source.Viewer, "G T", "/v1/policy", "", 400, "no path"},
		{source.Viewer, "GET", "/v1/%zz", "", 400, "no path"},
	} {
		status, answer := do(test.role, test.method, test.path, "", test.body)
		if status != test.status || !strings.Contains(answer, test.says) || !json.Valid([]byte(answer)) {
			t.Errorf("%s %s as %s: %d %s, want %d and %s", test.method, test.path, test.role, status, answer, test.status, test.says)
		}
	}
	if log := s.log.String(); !strings.Contains(log, "actor=eve") {
		t.Errorf("the log does not say who it was: %s", log)
	}
	if status, answer := do(source.Admin, "DELETE", "/v1/rules/per-key", "*", ""); status != 409 || !strings.Contains(answer, "no database") {
		t.Errorf("%d %s", status, answer)
	}
}
