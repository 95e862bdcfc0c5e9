package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluicehq/sluice/internal/testkit"
)

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

// nodeServer starts a server of a framework that queries a service, and returns its URL. If service is "none", the
// server has no middleware.
func nodeServer(t testing.TB, framework, service, options string) string {
	t.Helper()
	port := testkit.Port(t)
	addr := fmt.Sprintf("127.0.0.1:%d", port)
	testkit.Launch(t, nodeProgram(t, "server.cjs", framework, strconv.Itoa(port), service, options), addr)
	return "http://" + addr
}

// nodeService starts a service with these rules, in YAML.
func nodeService(t testing.TB, rules string, args ...string) *gateway {
	t.Helper()
	policy := testkit.File(t, "policy.yaml", "version: 1\nrules: "+rules+"\n")
	return serve(t, append([]string{"--check", "127.0.0.1:0", "--policy", policy}, args...)...)
}

// The gateway in front of a server and the middleware in it give the same answers: status, fields and body. Afterwards,
// both have the same remaining units. TestLongNodeAsGateway tests the other frameworks.
func TestNodeAsGateway(t *testing.T) {
	nodeAsGateway(t, "express5")
}

func nodeAsGateway(t *testing.T, frameworks ...string) {
	t.Parallel()
	script, err := os.ReadFile("testdata/node/requests.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, framework := range frameworks {
		t.Run(framework, func(t *testing.T) {
			t.Parallel()
			args := []string{"--check", "127.0.0.1:0", "--policy", "testdata/node/policy.yaml"}
			front := serve(t, append(args, "--upstream", nodeServer(t, framework, "none", "{}"))...)
			service := serve(t, args...)
			url := nodeServer(t, framework, service.Check, "{}")
			for line := range strings.Lines(string(script)) {
				if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
					continue
				}
				line, outcome, _ := strings.Cut(line, " -> ")
				got, want := nodeAnswer(t, url, line), nodeAnswer(t, front.URL, line)
				if got != want {
					t.Errorf("%s\n%s\n\nand the gateway answers\n\n%s", line, got, want)
				}
				testkit.Await(t, line+" leaves "+outcome+" at both", func() bool {
					left := nodeLeft(t, service, line)
					return strings.Contains(left, outcome) && left == nodeLeft(t, front, line)
				})
			}
		})
	}
}

// nodeRequest returns the request of a line of requests.txt.
func nodeRequest(t testing.TB, url, line string) *http.Request {
	t.Helper()
	head, fields, _ := strings.Cut(line, " | ")
	method, path, _ := strings.Cut(head, " ")
	r := request(t, method, url, "")
	r.URL.Opaque = path
	if strings.HasPrefix(path, "//") {
		r.URL.Opaque = "" // net/http would take it for an authority
		r.URL.Path = path
	}
	for field := range strings.SplitSeq(fields, " | ") {
		if name, value, ok := strings.Cut(field, ": "); ok {
			r.Header.Add(name, value)
		}
	}
	return r
}

// nodeAnswer returns the response to a request as text, without its times and the fields of the connection.
func nodeAnswer(t testing.TB, url, line string) string {
	t.Helper()
	resp, body := do(t, nodeRequest(t, url, line))
	for _, name := range []string{"Date", "Connection", "Keep-Alive"} {
		resp.Header.Del(name)
	}
	if resp.Request.Method == http.MethodHead {
		resp.Header.Del("Content-Length") // optional
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

// nodeLeft returns the names of the limits of a request, and the remaining units of each.
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
	var answer struct {
		Results []struct {
			Name      string
			Remaining int
		}
	}
	nodeCall(t, g, "peek", string(question), &answer)
	return fmt.Sprint(answer.Results)
}

// nodeGet returns the status of a response and one of its fields.
func nodeGet(t testing.TB, url, field string) string {
	t.Helper()
	resp, _ := do(t, request(t, http.MethodGet, url, ""))
	return strings.TrimSpace(strconv.Itoa(resp.StatusCode) + " " + resp.Header.Get(field))
}

// nodeRules are the rules of the tests that nodeResponses runs.
const nodeRules = `
  - {name: hold, match: /hold, in_flight: 1}
  - {name: throws, match: /throws, in_flight: 1}
  - {name: report, match: /report, limit: 20/day, cost: {response_header: X-Cost, estimate: 2, max: 9}}
  - {name: egress, match: /events, limit: 1000/365d, cost: {response_bytes: 1}}
  - {name: second, match: "/{$}", limit: 1/second burst 5, algorithm: leaky_bucket}
  - {name: hour, match: /poll, limit: 1/hour burst 5, algorithm: leaky_bucket}
  - {name: day, match: /poll, limit: 9/day}`

// The middleware limits requests in flight, requests in a queue, and requests with a cost from the handler or with a
// streamed response. TestLongNodeResponses tests the other frameworks.
func TestNodeResponses(t *testing.T) {
	nodeResponses(t, "http")
}

func nodeResponses(t *testing.T, frameworks ...string) {
	t.Parallel()
	for _, framework := range frameworks {
		t.Run(framework, func(t *testing.T) {
			t.Parallel()
			g := nodeService(t, nodeRules)
			url := nodeServer(t, framework, g.Check, "{}")
			t.Run("in flight", func(t *testing.T) { testNodeInFlight(t, g, url) })
			t.Run("cost", func(t *testing.T) { testNodeCost(t, g, url) })
			t.Run("stream", func(t *testing.T) { testNodeStream(t, g, url) })
			t.Run("queue", func(t *testing.T) { testNodeQueue(t, g, url) })
		})
	}
}

// A request holds its permit until its response has ended, its client has left, or its handler has failed.
func testNodeInFlight(t *testing.T, g *gateway, url string) {
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	var clients sync.WaitGroup
	hold := func(ctx context.Context) {
		r := request(t, http.MethodGet, url+"/hold", "").WithContext(ctx)
		clients.Go(func() {
			if resp, err := http.DefaultClient.Do(r); err == nil {
				resp.Body.Close()
			}
		})
		testkit.Await(t, "the handler has the request", func() bool { _, body := get(t, url+"/left"); return body == "true" })
	}
	hold(ctx)
	if got := nodeGet(t, url+"/hold", "Retry-After"); got != "429 1" {
		t.Errorf("%s while another is under way", got)
	}
	leave()
	clients.Wait()
	if _, body := get(t, url+"/go?name=hold"); body != "true" {
		t.Errorf("premise: the handler of a client that has left: %s", body)
	}
	left := func(want string) func() bool { return func() bool { return nodeLeft(t, g, "GET /hold") == want } }
	testkit.Await(t, "the permit of a client that left is free", left("[{hold 1}]"))
	hold(t.Context())
	testkit.Await(t, "the next request has the permit", left("[{hold 0}]"))
	get(t, url+"/go?name=hold")
	clients.Wait()
	testkit.Await(t, "the permit of a response that ended is free", left("[{hold 1}]"))
	for range 2 {
		testkit.Await(t, "the permit of a handler that failed is free", func() bool { return nodeGet(t, url+"/throws", "") == "500" })
	}
}

// A handler reports the cost of a request, which no field of the response contains. Without a report, the estimate is
// charged.
func testNodeCost(t *testing.T, g *gateway, url string) {
	for _, step := range []struct {
		path string
		left int
	}{{"/report?settle=9", 11}, {"/report?settle=0", 11}, {"/report", 9}} {
		if got := nodeGet(t, url+step.path, ""); got != "200" {
			t.Errorf("%s: %s", step.path, got)
		}
		want := fmt.Sprintf("[{report %d}]", step.left)
		testkit.Await(t, step.path+" leaves "+want, func() bool { return nodeLeft(t, g, "GET /report") == want })
	}
}

// The parts of a streamed response arrive one by one.
func testNodeStream(t *testing.T, g *gateway, url string) {
	resp, err := http.DefaultClient.Do(request(t, http.MethodGet, url+"/events", ""))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	first := make([]byte, len("data: 1\n\n"))
	if _, err := io.ReadFull(resp.Body, first); err != nil || string(first) != "data: 1\n\n" {
		t.Fatalf("%q, %v", first, err)
	}
	get(t, url+"/go?name=events")
	if rest, err := io.ReadAll(resp.Body); err != nil || string(rest) != "data: 2\n\n" {
		t.Errorf("%q, %v", rest, err)
	}
	testkit.Await(t, "18 bytes are charged", func() bool { return nodeLeft(t, g, "GET /events") == "[{egress 982}]" })
}

// A queued request passes at its turn. If its client leaves, the next request gets the turn.
func testNodeQueue(t *testing.T, g *gateway, url string) {
	began := time.Now()
	for range 2 {
		if got := nodeGet(t, url+"/", ""); got != "200" {
			t.Fatal(got)
		}
	}
	if waited := time.Since(began); waited < time.Second {
		t.Errorf("the second request passed after %v", waited)
	}
	get(t, url+"/poll")
	ctx, leave := context.WithCancel(t.Context())
	r := request(t, http.MethodGet, url+"/poll", "").WithContext(ctx)
	left := make(chan error)
	go func() {
		resp, err := http.DefaultClient.Do(r)
		if err == nil {
			resp.Body.Close()
		}
		left <- err
	}()
	testkit.Await(t, "the second is queued", func() bool { return nodeLeft(t, g, "GET /poll") == "[{hour 3} {day 7}]" })
	leave()
	if err := <-left; err == nil {
		t.Fatal("the second passed at once")
	}
	testkit.Await(t, "the request no longer counts", func() bool { return nodeLeft(t, g, "GET /poll") == "[{hour 3} {day 8}]" })
	testkit.Await(t, "the next request gets the turn", func() bool {
		var next struct {
			Delay float64
			Place string
		}
		nodeCall(t, g, "check", `{"request": {"path": "/poll"}}`, &next)
		if next.Delay <= 3600 {
			return true
		}
		nodeCall(t, g, "release", `{"place": "`+next.Place+`"}`, &next)
		return false
	})
}

// nodeCall makes a call of the check API.
func nodeCall(t testing.TB, g *gateway, path, question string, answer any) {
	t.Helper()
	resp, err := http.Post("http://"+g.Check+"/v1/"+path, "application/json", strings.NewReader(question))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(answer); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s %s: %d %v", path, question, resp.StatusCode, err)
	}
}

// The program options.cjs tests the options of limits with Express and Fastify.
func TestNodeOptions(t *testing.T) {
	t.Parallel()
	g := serve(t, "--check", "127.0.0.1:0", "--policy", "../../clients/node/test/policy.yaml")
	if out, err := nodeProgram(t, "options.cjs", g.Check).CombinedOutput(); err != nil || string(out) != "done\n" {
		t.Errorf("%v\n%s", err, out)
	}
}

// Concurrent checks share calls of 64 checks, and no more checks pass than the limit allows.
func TestNodeBatches(t *testing.T) {
	t.Parallel()
	g := nodeService(t, "[{name: all, limit: 150/day}]")
	var calls atomic.Int64
	proxy := nodeProxy(t, g, func(string) { calls.Add(1) })
	out, err := nodeProgram(t, "burst.cjs", "http://"+proxy, "1000").CombinedOutput()
	if err != nil || string(out) != "150\n" || calls.Load() != 16 {
		t.Errorf("%s of 1000 passed in %d calls, want 150 in 16: %v", out, calls.Load(), err)
	}
}

// nodeProxy returns the address of a proxy in front of a service. The proxy calls before with the path of each call.
func nodeProxy(t testing.TB, g *gateway, before func(path string)) string {
	t.Helper()
	service := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: g.Check})
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		before(r.URL.Path)
		service.ServeHTTP(w, r)
	}))
	t.Cleanup(proxy.Close)
	return proxy.Listener.Addr().String()
}
