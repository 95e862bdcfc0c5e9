package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/sluicehq/sluice/internal/testkit"
)

// nodeFrameworks are those of clients/node/test/server.cjs.
var nodeFrameworks = []string{"http", "express4", "express5", "fastify4", "fastify5"}

// nodeProgram returns a program of clients/node/test.
func nodeProgram(t testing.TB, name string, args ...string) *exec.Cmd {
	t.Helper()
	node := testkit.Program(t, "node")
	if _, err := os.Stat("../../clients/node/node_modules"); err != nil {
		testkit.Missing(t, "clients/node/node_modules")
	}
	c := exec.CommandContext(t.Context(), node, append([]string{"../../clients/node/test/" + name}, args...)...)
	c.Env = append(os.Environ(), "NODE_OPTIONS=--trace-warnings")
	return c
}

// nodeServer starts a server of a framework that asks a service, or "none", and returns its URL.
func nodeServer(t testing.TB, framework, service, settings string) string {
	t.Helper()
	port := testkit.Port(t)
	addr := fmt.Sprintf("127.0.0.1:%d", port)
	testkit.Launch(t, nodeProgram(t, "server.cjs", framework, strconv.Itoa(port), service, settings), addr)
	return "http://" + addr
}

// everyNodeFramework runs a test with a server of each framework behind a policy.
func everyNodeFramework(t *testing.T, policy string, test func(t *testing.T, g *gateway, url string)) {
	t.Parallel()
	for _, framework := range nodeFrameworks {
		t.Run(framework, func(t *testing.T) {
			t.Parallel()
			g := serve(t, "--check", "127.0.0.1:0", "--policy", testkit.File(t, "policy.yaml", "version: 1\ntrusted_proxies: [127.0.0.1]\nrules:\n"+policy))
			test(t, g, nodeServer(t, framework, g.Check, "{}"))
		})
	}
}

// The gateway before a server, and the middleware in it, answer the same: status, fields and body. Then as much is
// left at both.
func TestNodeAsGateway(t *testing.T) {
	t.Parallel()
	script, err := os.ReadFile("testdata/node/requests.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, framework := range nodeFrameworks {
		t.Run(framework, func(t *testing.T) {
			t.Parallel()
			policy := []string{"--check", "127.0.0.1:0", "--policy", "testdata/node/policy.yaml"}
			front := serve(t, append(policy, "--upstream", nodeServer(t, framework, "none", "{}"))...)
			service := serve(t, policy...)
			url := nodeServer(t, framework, service.Check, "{}")
			for line := range strings.Lines(string(script)) {
				if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
					continue
				}
				got, want := nodeAnswer(t, url, line), nodeAnswer(t, front.URL, line)
				if got != want {
					t.Errorf("%s\n%s\n\nand the gateway answers\n\n%s", line, got, want)
				}
				want = nodeLeft(t, front, line)
				testkit.Await(t, line+" leaves "+want, func() bool { return nodeLeft(t, service, line) == want })
			}
		})
	}
}

// nodeRequest returns the request of a line of requests.txt.
func nodeRequest(t testing.TB, url, line string) *http.Request {
	t.Helper()
	head, fields, _ := strings.Cut(line, " | ")
	method, path, _ := strings.Cut(head, " ")
	r, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.URL.Opaque = path
	if strings.HasPrefix(path, "//") {
		r.URL.Opaque = "" // and it would be an authority
		r.URL.Path = path
	}
	for field := range strings.SplitSeq(fields, " | ") {
		if name, value, ok := strings.Cut(field, ": "); ok {
			r.Header.Add(name, value)
		}
	}
	return r
}

// nodeAnswer returns what a client gets, without what passes with time and what is about the connection.
func nodeAnswer(t testing.TB, url, line string) string {
	t.Helper()
	resp, body := do(t, nodeRequest(t, url, line))
	for _, name := range []string{"Date", "Connection", "Keep-Alive"} {
		resp.Header.Del(name)
	}
	if resp.Request.Method == http.MethodHead {
		resp.Header.Del("Content-Length") // may be there, or not
	}
	if resp.Header.Get("X-Request-Id") != "" {
		resp.Header.Set("X-Request-Id", "…")
	}
	var b strings.Builder
	fmt.Fprintln(&b, resp.StatusCode)
	for _, name := range slices.Sorted(maps.Keys(resp.Header)) {
		fmt.Fprintf(&b, "%s: %s\n", name, strings.Join(resp.Header[name], ", "))
	}
	return timeless(b.String() + "\n" + body)
}

// nodeLeft returns what is left of the limits of a request.
func nodeLeft(t testing.TB, g *gateway, line string) string {
	t.Helper()
	r := nodeRequest(t, "http://x", line)
	r.Header.Set("Host", "x")
	question, err := json.Marshal(map[string]any{"request": map[string]any{
		"method": r.Method, "path": strings.Fields(line)[1], "headers": r.Header, "client": "127.0.0.1",
	}})
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.Post("http://"+g.Check+"/v1/peek", "application/json", bytes.NewReader(question))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var answer struct {
		Results []struct {
			Name      string
			Remaining int
		}
	}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(answer.Results)
}
