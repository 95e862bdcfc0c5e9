//go:build long

package frameworks

import (
	"bytes"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"

	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/policyfile"
)

const perUser = `
version: 1
rules:
  - {name: per-user, match: "/things/{id}", key: [attr:user], limit: 2/hour}
  - {name: forbidden, match: /secret, key: [attr:user], limit: 2/hour, count: {status: 403}}
  - {name: failed, match: /things/9, key: [attr:user], limit: 1/hour, count: {status: 500}}
`

// Behind authentication, requests without valid credentials are not counted, each user has a count of their own, and
// rules that count by the outcome see what handlers answer.
func TestLongAuthenticated(t *testing.T) {
	gin.SetMode(gin.ReleaseMode)
	accounts := gin.Accounts{"alice": "a", "bob": "b", "carol": "c"}
	check := func(user, password string) bool { return password != "" && accounts[user] == password }
	for name, framework := range map[string]func(Middleware) http.Handler{
		"chi":  func(limit Middleware) http.Handler { return ChiAuthenticated(limit, check) },
		"echo": func(limit Middleware) http.Handler { return EchoAuthenticated(limit, check) },
		"gin":  func(limit Middleware) http.Handler { return GinAuthenticated(limit, accounts) },
	} {
		t.Run(name, func(t *testing.T) {
			rules, err := policyfile.Parse("policy.yaml", []byte(perUser))
			if err != nil {
				t.Fatal(err)
			}
			server := httptest.NewUnstartedServer(framework(ByUser(policy.NewEngine(memory.New(), rules))))
			var problems bytes.Buffer
			server.Config.ErrorLog = log.New(&problems, "", 0)
			server.Start()
			for i, want := range []struct {
				user, password, path string
				status               int
				left, body           string
			}{
				{"", "", "/things/1", 401, "", ""},
				{"alice", "wrong", "/things/1", 401, "", ""},
				{"alice", "wrong", "/things/1", 401, "", ""},
				{"alice", "a", "/things/1", 200, "1", "1, 1 left"},
				{"alice", "a", "/things/2", 200, "0", "2, 0 left"},
				{"alice", "a", "/things/3", 429, "0", `"violated-policies":["per-user"]`},
				{"bob", "b", "/things/4", 200, "1", "4, 1 left"},
				{"alice", "wrong", "/things/5", 401, "", ""},
				{"alice", "a", "/secret", 403, "1", ""},
				{"alice", "a", "/secret", 403, "0", ""},
				{"alice", "a", "/secret", 429, "0", `"violated-policies":["forbidden"]`},
				{"bob", "b", "/secret", 403, "1", ""},
				{"carol", "c", "/things/9", 200, "0", "9, 1 left"}, // "failed" has no units left until the response is known
				{"carol", "c", "/things/9", 200, "0", "9, 0 left"},
			} {
				resp, body := getAs(t, server.URL+want.path, want.user, want.password)
				if resp.StatusCode != want.status || resp.Header.Get("X-RateLimit-Remaining") != want.left || !strings.Contains(body, want.body) {
					t.Errorf("request %d: %d, %q left, %s; want %+v", i, resp.StatusCode, resp.Header.Get("X-RateLimit-Remaining"), body, want)
				}
				if (resp.Header.Get("Retry-After") != "") != (want.status == 429) || (resp.Header.Get("RateLimit") != "") != (want.status != 401) {
					t.Errorf("request %d: fields %v", i, resp.Header)
				}
			}
			server.Close()
			if problems.Len() > 0 {
				t.Errorf("log of the server: %s", &problems)
			}
		})
	}
}

func getAs(t *testing.T, url, user, password string) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	if user != "" {
		r.SetBasicAuth(user, password)
	}
	resp, err := http.DefaultClient.Do(r)
	return read(t, resp, err)
}
