package e2e

import (
	"net/http"
	"strings"
	"syscall"
	"testing"
)

// With --shadow nothing is refused, whatever the policy says and whenever it comes, and the log says
// so.
func TestShadow(t *testing.T) {
	t.Parallel()
	const strict = `version: 1
rules:
  - {name: closed, match: /api/closed, block: true}
  - {name: typed, match: "POST /api/{rest...}", key: ["body:user"], limit: 1/day}
  - {name: key, key: [api_key], limit: 1/day, missing: refuse}
`
	path := write(t, "policy.yaml", strict)
	ask := func(g *gateway) (codes []int) {
		t.Helper()
		codes = []int{g.asKey("k"), g.asKey("k")}
		for _, r := range []*http.Request{request(t, "GET", g.url+"/api/closed", ""), request(t, "GET", g.url+"/api/users", ""), request(t, "POST", g.url+"/api/users", `{"user":"a","user":"b"}`)} {
			resp, _ := do(t, r)
			codes = append(codes, resp.StatusCode)
		}
		return codes
	}
	refused := func(codes []int) (n int) {
		for _, code := range codes {
			if code == 429 || code == 403 || code == 400 {
				n++
			}
		}
		return n
	}
	if codes := ask(serve(t, "--policy", path, "--upstream", "sample")); refused(codes) != 4 {
		t.Errorf("premise: without the flag %v", codes)
	}
	g := serve(t, "--policy", path, "--upstream", "sample", "--shadow")
	g.await("the log warns", func(r record) bool { return r.Level == "WARN" && strings.HasPrefix(r.Msg, "NOTHING IS REFUSED") })
	if codes := ask(g); refused(codes) > 0 {
		t.Errorf("with --shadow: %v", codes)
	}
	g.signal(syscall.SIGHUP)
	g.await("the policy is loaded again", loaded)
	if codes := ask(g); refused(codes) > 0 {
		t.Errorf("with --shadow, after a reload: %v", codes)
	}
}
