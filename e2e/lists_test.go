package e2e

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"
)

const listPolicy = `version: 1
trusted_proxies: [127.0.0.1]
lists:
  office: [192.0.2.0/24]
  abusers: {file: abusers.txt}
rules:
  - {name: internal, clients: [office], exempt: true}
  - {name: abusers, clients: [abusers], block: true}
  - {name: per-address, key: [client_ip], limit: 2/day, algorithm: fixed_window}
overrides:
  - {rule: per-address, key: {client_ip: 203.0.113.0/24}, limit: 1/day}
`

// The office is exempt and abusers are refused, also those who are added to the file while the
// gateway runs.
func TestLists(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, list := filepath.Join(dir, "policy.yaml"), filepath.Join(dir, "abusers.txt")
	overwrite(t, file, listPolicy)
	overwrite(t, list, "# nobody yet\n")
	g := serve(t, "--policy", file, "--upstream", "sample")
	status := func(client string) int {
		t.Helper()
		resp, body := do(t, request(t, "GET", g.url+"/health", "", "X-Forwarded-For", client))
		if resp.StatusCode == http.StatusForbidden && (resp.Header.Get("Content-Type") != "application/problem+json" ||
			resp.Header.Get("Retry-After") != "" || !strings.Contains(body, `"error":"blocked"`)) {
			t.Errorf("a block says %v %s", resp.Header, body)
		}
		return resp.StatusCode
	}
	want := func(client string, codes ...int) {
		t.Helper()
		for i, code := range codes {
			if got := status(client); got != code {
				t.Errorf("request %d of %s: %d, want %d", i+1, client, got, code)
			}
		}
	}
	want("192.0.2.9", 200, 200, 200)
	want("198.51.100.7", 200, 200, 429)
	want("203.0.113.7", 200, 429)
	want("203.0.113.8", 200, 429) // has a count of its own
	want("198.51.100.8", 200)
	overwrite(t, list, "198.51.100.0/29\n192.0.2.0/24\n198.51.100.8 # he, too\n")
	g.await("the list is followed", loaded)
	want("198.51.100.7", 403)
	want("198.51.100.8", 403)
	want("192.0.2.9", 200) // an exemption comes first
	want("198.51.100.9", 200, 200, 429)

	g.forget()
	overwrite(t, list, "198.51.100.8\nnonsense\n")
	if r := g.await("the broken one is seen", refused); !strings.HasPrefix(r.Problem, list+":2: ") {
		t.Errorf("the log says %q", r.Problem)
	}
	want("198.51.100.7", 403)

	g.forget()
	overwrite(t, list, "198.51.100.8\n")
	g.await("the mend is seen", loaded)
	want("198.51.100.7", 429)
	want("198.51.100.8", 403)
}
