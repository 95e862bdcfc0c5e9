package python

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

// limits has rules for requests, and rules that only decorators apply.
const limits = `version: 1
rules:
  - {name: all, key: [client_ip], limit: 100/day}
  - {name: reports, attributes: {asked: by name}, key: ["attr:user"], limit: 10/day}
  - {name: taken, match: "POST /reports/{user}", body: {title: taken}, key: ["body:title"], limit: 2/day}
  - {name: account, key: ["attr:account"], missing: skip, limit: 1/day}
  - {name: room, match: /never, in_flight: 1}
`

// Functions can have their own limits, by rule, key and cost. Exempt functions have none.
func TestDecorators(t *testing.T) {
	t.Parallel()
	decorators(t, []application{
		{module: "fastapi", server: "uvicorn", target: "limits_fastapi:app"},
		{module: "flask", server: "waitress", target: "limits_flask:app"},
	})
}

func decorators(t *testing.T, applications []application) {
	for _, c := range applications {
		t.Run(c.target, func(t *testing.T) {
			t.Parallel()
			needs(t, c.module, c.server)
			url := app(t, c.server, c.target, "SLUICE_URL=http://"+service(t, limits).Check)
			ask := func(method, path, body string, status int, left string, header ...string) answered {
				t.Helper()
				got := do(t, method, url+path, body, append(header, "Content-Type: application/json")...)
				if got.status != status || remaining(got) != left {
					t.Fatalf("%s %s: %d, %q remain, want %d, %q\n%v\n%s", method, path, got.status, remaining(got), status, left, got.header, got.body)
				}
				return got
			}
			got := ask("POST", "/reports/alice?pages=7", `{"title":"t"}`, 200, "3")
			if left := got.header.Get("Ratelimit"); !strings.HasPrefix(left, `"all";r=99;`) || !strings.Contains(left, `, "reports";r=3;`) {
				t.Errorf("RateLimit is %s", left)
			}
			for _, member := range []string{`"user":"alice"`, `"title":"t"`, `"pages":7`} {
				if !strings.Contains(strings.ReplaceAll(got.body, ": ", ":"), member) {
					t.Errorf("%s lacks %s", got.body, member)
				}
			}
			if status := chunked(t, url+"/reports/eve?pages=1", `{"title":"taken"}`); status != http.StatusOK {
				t.Errorf("a title in a chunked body: %d", status) // bodies without a known length are checked, too
			}
			// The X-RateLimit fields describe the limit that denies, although another limit is used up.
			got = ask("POST", "/reports/alice?pages=4", `{"title":"taken"}`, 429, "3")
			if !strings.Contains(got.body, `"violated-policies":["reports"]`) || got.header.Get("Content-Type") != "application/problem+json" ||
				got.header.Get("Retry-After") == "" || got.header.Get("Cache-Control") != "no-store" {
				t.Errorf("%v\n%s", got.header, got.body)
			}
			if status := chunked(t, url+"/reports/eve?pages=1", `{"title":"taken"}`); status != http.StatusTooManyRequests {
				t.Errorf("a title in a chunked body that is taken: %d", status)
			}
			if got = ask("GET", "/sync/bob", "", 200, "9"); !strings.Contains(got.body, "all") {
				t.Errorf("the answer to the handler is %s", got.body)
			}
			for range 5 {
				ask("GET", "/free", "", 200, "")
			}
			if c.module == "fastapi" {
				ask("GET", "/wrong", "", 500, "") // Starlette sends it outside of the middleware
				if got = ask("GET", "/room", "", 200, "0"); got.header.Get("X-Ratelimit-Reset") != "" {
					t.Errorf("a limit of requests in flight has the reset of another one: %v", got.header)
				}
			} else {
				ask("GET", "/wrong", "", 500, "95")
			}
			if c.module != "fastapi" {
				ask("GET", "/nowhere", "", 404, "0", "X-User: carol")
				ask("GET", "/nowhere", "", 429, "0", "X-User: carol")
			}
			if c.module == "flask" { // an earlier before_request function answers
				ask("GET", "/sync/bob", "", 401, "", "X-User: mallory")
				ask("GET", "/sync/bob", "", 403, "", "X-User: nobody")
			}
			if c.target == "limits_django:asgi" {
				ask("GET", "/awaited/dora", "", 200, "9")
			}
		})
	}
}

// chunked posts JSON without a Content-Length, and returns the status.
func chunked(t *testing.T, url, body string) int {
	t.Helper()
	resp, err := http.Post(url, "application/json", io.MultiReader(strings.NewReader(body)))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	return resp.StatusCode
}
