package answer

import (
	"net/http"
	"strings"
	"testing"

	"github.com/sluicehq/sluice/policy"
)

// What can be read in more than one way is malformed, and lacks nothing.
func TestAmbiguous(t *testing.T) {
	const document = `version: 1
rules:
  - {name: login, match: [/login], key: [body:username], limit: 5/minute}
  - {name: signed, match: [/signed], key: [header:X-API-Key], missing: refuse, limit: 5/minute}
`
	for _, test := range []struct{ path, body, name, detail string }{
		{"//login", "", "malformed_request", "The path can be read in more than one way."},
		{"/x/../login", "", "malformed_request", "The path can be read in more than one way."},
		{"/login", `{"username":"a","username":"b"}`, "malformed_request", "body:username can be read in more than one way."},
		{"/signed", "", "missing_key", "The request lacks header:X-API-Key."},
	} {
		for accept, want := range map[string]string{
			"application/json": `{"error":"` + test.name + `","message":"` + test.detail + `"}`,
			"text/plain":       test.detail,
			"":                 `{"type":"about:blank","title":"Bad Request","status":400,"detail":"` + test.detail + `","error":"` + test.name + `"}`,
		} {
			r := &policy.Request{Method: "POST", Path: test.path, Body: func(int64) ([]byte, error) { return []byte(test.body), nil }, Header: http.Header{"Content-Type": {"application/json"}, "Accept": {accept}}}
			status, h, body := decided(t, document, r)
			if status != 400 || strings.TrimSpace(body) != want || h.Get("Retry-After") != "" {
				t.Errorf("%s %s: %d %s\nwant 400 %s", test.path, test.body, status, body, want)
			}
		}
	}
}
