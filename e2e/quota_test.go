package e2e

import (
	"encoding/json"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// Clients ask the gateway what is left of their limits: it costs nothing, tells of nobody else, and
// does not reach the upstream.
func TestQuota(t *testing.T) {
	t.Parallel()
	var reached atomic.Int64
	policy := write(t, "policy.yaml", `version: 1
trusted_proxies: [127.0.0.1]
tiers: {subject: api_key}
rules:
  - {name: per-key, key: [api_key], limit: 3/day, tiers: {pro: 8/day}}
  - {name: orders, match: POST /orders, key: [client_ip], limit: 2/day}
  - {name: login, match: POST /login, key: [client_ip, body:user], limit: 5/day}
overrides:
  - {rule: per-key, key: {api_key: evil}, block: true, until: 2127-01-31, reason: what mallory did}
  - {rule: per-key, key: {api_key: batch}, exempt: true}
subjects:
  - {subject: paid, tier: pro}
`)
	g := before(t, func(http.ResponseWriter, *http.Request) { reached.Add(1) }, "--policy", policy, "--quota-path", "/v1/quota")
	quota := func(key, query string, status int) map[string]int64 {
		t.Helper()
		resp, body := do(t, request(t, "GET", g.url+"/v1/quota"+query, "", "X-Api-Key", key))
		var told struct {
			Limits []struct {
				Name                            string
				Quota, Window, Remaining, Reset int64
			}
		}
		if err := json.Unmarshal([]byte(body), &told); err != nil || resp.StatusCode != status {
			t.Fatalf("%d, %v, %s", resp.StatusCode, err, body)
		}
		for _, name := range []string{"mallory", "paid", "batch", "evil"} {
			if name != key && strings.Contains(body, name) {
				t.Errorf("%s is told of %s: %s", key, name, body)
			}
		}
		left := make(map[string]int64)
		for _, l := range told.Limits {
			if left[l.Name] = l.Remaining; l.Window != 86400 || l.Quota < l.Remaining || l.Reset <= time.Now().Unix() && l.Remaining < l.Quota {
				t.Errorf("%+v", l)
			}
		}
		return left
	}
	check := func(key, query string, want map[string]int64) {
		t.Helper()
		for range 2 {
			got := quota(key, query, http.StatusOK)
			for name, n := range want {
				if left, told := got[name]; !told || left != n {
					t.Errorf("%s%s: %v, want %v", key, query, got, want)
				}
			}
			if len(got) != len(want) {
				t.Errorf("%s%s: %v, want %v", key, query, got, want)
			}
		}
	}
	ask := func(key, method, path string, status int) {
		t.Helper()
		if resp, body := do(t, request(t, method, g.url+path, "", "X-Api-Key", key)); resp.StatusCode != status {
			t.Errorf("%s %s of %s: %d, %s", method, path, key, resp.StatusCode, body)
		}
	}
	check("k", "", map[string]int64{"per-key": 3})
	check("paid", "", map[string]int64{"per-key": 8})
	check("batch", "", map[string]int64{})
	ask("k", "POST", "/orders", 200)
	check("k", "", map[string]int64{"per-key": 2})
	check("k", "?path=/orders&method=POST", map[string]int64{"per-key": 2, "orders": 1})
	check("other", "?path=/login&method=POST", map[string]int64{"per-key": 3}) // whose login is not known
	ask("k", "GET", "/", 200)
	ask("k", "GET", "/", 200)
	ask("k", "GET", "/", 429)
	check("k", "", map[string]int64{"per-key": 0})
	if n := reached.Load(); n != 3 {
		t.Errorf("%d requests reached the upstream, want 3", n)
	}
	quota("evil", "", http.StatusForbidden)
	ask("evil", "GET", "/", 403)
	ask("batch", "GET", "/", 200)
	quota("k", "?path=orders", http.StatusBadRequest)
}
