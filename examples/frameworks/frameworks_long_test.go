//go:build long

package frameworks

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"

	"github.com/sluicehq/sluice/httplimit"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/policyfile"
)

const document = `
version: 1
rules:
  - {name: things, match: "/things/{id}", key: [client_ip], limit: 2/hour}
  - {name: failed-logins, match: POST /login, key: [client_ip], limit: 2/hour, count: {status: 401}}
`

// Behind each framework, allowed requests reach the handlers, with the decision and the framework's own parameters, and
// responses report the remaining units. Denied requests do not reach the handlers. Failed logins are counted by their
// outcome.
func TestLongFrameworks(t *testing.T) {
	gin.SetMode(gin.ReleaseMode)
	frameworks := map[string]func(Middleware) http.Handler{
		"chi": Chi, "echo": Echo, "gin": Gin,
		"gRPC-Gateway": func(m Middleware) http.Handler {
			h, err := Gateway(m)
			if err != nil {
				t.Fatal(err)
			}
			return h
		},
	}
	for name, framework := range frameworks {
		t.Run(name, func(t *testing.T) {
			rules, err := policyfile.Parse("policy.yaml", []byte(document))
			if err != nil {
				t.Fatal(err)
			}
			engine := policy.NewEngine(memory.New(), rules)
			server := httptest.NewServer(framework(httplimit.Config{KeepDecision: true}.Policy(engine)))
			defer server.Close()
			for i, status := range []int{401, 401, 429} {
				if resp, body := post(t, server.URL+"/login"); resp.StatusCode != status {
					t.Errorf("login %d: %d, %s; want %d", i, resp.StatusCode, body, status)
				}
			}
			for i, want := range []struct {
				path   string
				status int
				left   string
				body   string
			}{
				{"/things/7", 200, "1", "7, 1 left"},
				{"/free", 200, "", "free"},
				{"/things/8", 200, "0", "8, 0 left"},
				{"/things/9", 429, "0", `"violated-policies":["things"]`},
				{"/free", 200, "", "free"},
			} {
				resp, body := get(t, server.URL+want.path)
				if resp.StatusCode != want.status || resp.Header.Get("X-RateLimit-Remaining") != want.left || !strings.Contains(body, want.body) {
					t.Errorf("request %d: %d, %q left, %s; want %+v", i, resp.StatusCode, resp.Header.Get("X-RateLimit-Remaining"), body, want)
				}
				if retry := resp.Header.Get("Retry-After"); (retry != "") != (want.status == 429) {
					t.Errorf("request %d: Retry-After %q", i, retry)
				}
			}
		})
	}
}

func get(t *testing.T, url string) (*http.Response, string) {
	t.Helper()
	resp, err := http.Get(url)
	return read(t, resp, err)
}

func post(t *testing.T, url string) (*http.Response, string) {
	t.Helper()
	resp, err := http.Post(url, "text/plain", nil)
	return read(t, resp, err)
}

func read(t *testing.T, resp *http.Response, err error) (*http.Response, string) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(body)
}
