//go:build long

package e2e

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	wire "github.com/sluicehq/sluice/answer"
	"github.com/sluicehq/sluice/internal/redistest"
	"github.com/sluicehq/sluice/internal/testkit"
	"github.com/sluicehq/sluice/policy"
)

func TestLongNodeAsGateway(t *testing.T) {
	nodeAsGateway(t, "http", "express4", "fastify4", "fastify5")
}

func TestLongNodeResponses(t *testing.T) {
	nodeResponses(t, "express4", "express5", "fastify4", "fastify5")
}

// The type declarations work in TypeScript programs, with the types of Express and Fastify.
func TestLongNodeTypes(t *testing.T) {
	t.Parallel()
	c := nodeProgram(t, "../node_modules/typescript/bin/tsc", "-p", "../../clients/node/test")
	if out, err := c.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// In an empty directory, the package and the program of its README lead to a 429. Express is linked from the tree,
// because npm runs offline.
func TestLongNodeNewcomer(t *testing.T) {
	t.Parallel()
	const readme = "../../clients/node/README.md"
	testkit.Program(t, "npm")
	nodeProgram(t, "") // skips the test if its requirements are missing
	program, policy := blocksOf(t, readme, "js")[0], blocksOf(t, readme, "yaml")[0]
	if lines := strings.Count(program, "\n"); lines > 10 {
		t.Errorf("the program has %d lines", lines)
	}
	g := serve(t, "--check", "127.0.0.1:0", "--policy", testkit.File(t, "policy.yaml", policy))
	dir, addr := t.TempDir(), testkit.Addr(t)
	npm := func(in string, args ...string) {
		c := exec.CommandContext(t.Context(), "npm", append(args, "--silent", "--offline", "--cache", filepath.Join(dir, "cache"))...)
		c.Dir = in
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("npm %v: %v\n%s", args, err, out)
		}
	}
	npm("../../clients/node", "pack", "--pack-destination", dir)
	packages, err := filepath.Glob(filepath.Join(dir, "*.tgz"))
	if err != nil || len(packages) != 1 {
		t.Fatalf("npm pack made %v (%v)", packages, err)
	}
	want := []string{"LICENSE", "README.md", "index.d.ts", "index.js", "lib/calls.js", "lib/exchange.js", "lib/limit.js", "lib/options.js",
		"lib/refusal.js", "lib/request.js", "lib/sluice.js", "package.json"}
	if got := packed(t, packages[0]); !slices.Equal(got, want) {
		t.Errorf("the package has %v, want %v", got, want)
	}
	if ours, theirs := output(t, "", "cat", "../../LICENSE"), output(t, "", "cat", "../../clients/node/LICENSE"); ours != theirs {
		t.Error("the package has another licence")
	}
	npm(dir, "init", "-y")
	npm(dir, "install", packages[0])
	express, err := filepath.Abs("../../clients/node/node_modules/express")
	if err == nil {
		err = os.Symlink(express, filepath.Join(dir, "node_modules", "express"))
	}
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := strings.Cut(addr, ":")
	here := strings.NewReplacer("127.0.0.1:8081", g.Check, "3000", port+`, "127.0.0.1"`)
	overwrite(t, filepath.Join(dir, "app.mjs"), here.Replace(program))
	c := exec.CommandContext(t.Context(), "node", "app.mjs")
	c.Dir = dir
	testkit.Launch(t, c, addr)
	for n, want := range []string{"200", "200", "429"} {
		if got := nodeGet(t, "http://"+addr, ""); got != want {
			t.Errorf("request %d: %s, want %s", n+1, got, want)
		}
	}
}

// packed returns the names of the files in a package of npm.
func packed(t *testing.T, file string) (names []string) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	unzipped, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	for all := tar.NewReader(unzipped); ; {
		entry, err := all.Next()
		if errors.Is(err, io.EOF) {
			slices.Sort(names)
			return names
		} else if err != nil {
			t.Fatal(err)
		}
		names = append(names, strings.TrimPrefix(entry.Name, "package/"))
	}
}

// The programs of docs/node.md run, with the policy beside them.
func TestLongNodeExamples(t *testing.T) {
	t.Parallel()
	for name, paths := range map[string][]string{"express": {"/search", "/report"}, "fastify": {"/search", "/report"}, "http": {"/search"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := serve(t, "--check", "127.0.0.1:0", "--policy", "../../clients/node/examples/policy.yaml")
			addr := testkit.Addr(t)
			_, port, _ := strings.Cut(addr, ":")
			testkit.Launch(t, nodeProgram(t, "../examples/"+name+".mjs", port, "http://"+g.Check), addr)
			for _, path := range paths {
				want := map[string]string{"/search": "200 30", "/report": "200 100"}[path]
				if got := nodeGet(t, "http://"+addr+path, "X-RateLimit-Limit"); got != want {
					t.Errorf("%s: %s, want %s", path, got, want)
				}
			}
			if name == "express" {
				nodeLogins(t, "http://"+addr)
			}
		})
	}
}

// nodeLogins fails to log in until a login is denied. A login with another name is not denied.
func nodeLogins(t *testing.T, url string) {
	t.Helper()
	login := func(name string) int {
		resp, _ := do(t, request(t, http.MethodPost, url+"/login", `{"username": "`+name+`", "password": "wrong"}`, "Content-Type", "application/json"))
		return resp.StatusCode
	}
	for n, want := range []int{401, 401, 401, 401, 401, 429} {
		if got := login("ada"); got != want {
			t.Errorf("login %d: %d, want %d", n+1, got, want)
		}
	}
	if got := login("grace"); got != http.StatusUnauthorized {
		t.Errorf("under another name: %d", got)
	}
}

// A long request keeps its permit. The service frees a permit that was not renewed for 10 seconds.
func TestLongNodeHold(t *testing.T) {
	t.Parallel()
	g := nodeService(t, "[{name: hold, match: /hold, in_flight: 1}]")
	url := nodeServer(t, "http", g.Check, "{}")
	ended := make(chan string)
	go func() { ended <- nodeGet(t, url+"/hold", "") }()
	taken := func() bool { return nodeLeft(t, g, "GET /hold") == "[{hold 0}]" }
	testkit.Await(t, "the request has its permit", taken)
	began := time.Now()
	testkit.Await(t, "the request has had its permit for 15 seconds", func() bool { return !taken() || time.Since(began) > 15*time.Second })
	if !taken() {
		t.Errorf("the permit is free after %v", time.Since(began))
	}
	get(t, url+"/go?name=hold")
	if got := <-ended; got != "200" {
		t.Error(got)
	}
}

const nodeWide = "[{name: all, limit: 1000/365d}]"

// While the service is down, onError decides. After it has come back, requests are limited again.
func TestLongNodeRestart(t *testing.T) {
	t.Parallel()
	addr := testkit.Addr(t)
	start := func() *gateway { return nodeService(t, nodeWide, "--check", addr) }
	g := start()
	open := nodeServer(t, "express5", addr, "{}")
	closed := nodeServer(t, "fastify5", addr, `{"onError": "deny"}`)
	limited := func(url string) func() bool {
		return func() bool { return strings.HasPrefix(nodeGet(t, url, "X-RateLimit-Limit"), "200 1000") }
	}
	if !limited(open)() || !limited(closed)() {
		t.Error("premise: no limit")
	}
	g.Stop()
	if got := nodeGet(t, open, "X-RateLimit-Limit"); got != "200" {
		t.Errorf("%s without the service, want 200 without fields", got)
	}

	// The gateway answers in the same way while its store is down.
	var a wire.Answer
	h := http.Header{}
	new(wire.Encoder).Encode(&a, h, &policy.Decision{Unavailable: true, RetryAfter: time.Second}, wire.Client{})
	resp, body := do(t, request(t, http.MethodGet, closed, ""))
	if resp.StatusCode != a.Status || body != string(a.Body()) {
		t.Errorf("%d %s\nwant %d %s", resp.StatusCode, body, a.Status, a.Body())
	}
	for name, want := range h {
		if got := resp.Header[name]; !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	start()
	testkit.Await(t, "the limit is back", limited(open))
	testkit.Await(t, "the limit is back", limited(closed))
}

// The first requests to a frozen service wait for their deadlines. Later ones do not wait.
func TestLongNodeFrozen(t *testing.T) {
	t.Parallel()
	g := nodeService(t, nodeWide)
	url := nodeServer(t, "http", g.Check, `{"deadline": 300}`)
	nodeGet(t, url, "")
	g.Signal(syscall.SIGSTOP)
	t.Cleanup(func() { g.Signal(syscall.SIGCONT) })
	testkit.Await(t, "the service is frozen", g.Frozen)
	began := time.Now()
	for n := range 100 {
		if got := nodeGet(t, url, "X-RateLimit-Limit"); got != "200" {
			t.Fatalf("request %d: %s", n, got)
		}
	}
	if took := time.Since(began); took < 1500*time.Millisecond || took > 20*time.Second {
		t.Errorf("100 requests took %v: each waited for a deadline of 300 ms, or none did", took)
	}
	g.Signal(syscall.SIGCONT)
	testkit.Await(t, "the limit is back", func() bool { return nodeGet(t, url, "X-RateLimit-Limit") == "200 1000" })
}

// If the connection breaks before the answer to a call arrives, the call is repeated, and charged once.
func TestLongNodeBrokenConnection(t *testing.T) {
	t.Parallel()
	g := nodeService(t, nodeWide)
	proxy := redistest.StartProxy(t, g.Check)
	url := nodeServer(t, "http", proxy.Addr, "{}")
	for n := range 10 {
		var broken atomic.Bool
		if n > 0 {
			proxy.Spoil(func() (time.Duration, bool) { return 0, !broken.Swap(true) })
		}
		want := fmt.Sprintf("200 %d", 999-n)
		if got := nodeGet(t, url, "X-RateLimit-Remaining"); got != want || n > 0 && !broken.Load() {
			t.Errorf("request %d: %s, want %s", n, got, want)
		}
		proxy.Heal()
	}
}

// A client that leaves during the check holds no permit afterwards, and is counted.
func TestLongNodeClientLeaves(t *testing.T) {
	t.Parallel()
	g := nodeService(t, "[{name: all, limit: 1000/365d}, {name: hold, match: /hold, in_flight: 1}]")
	asked, left := make(chan struct{}), make(chan struct{})
	url := nodeServer(t, "http", nodeProxy(t, g, func(path string) {
		if path == "/v1/check" {
			close(asked)
			<-left
		}
	}), "{}")
	ctx, leave := context.WithCancel(t.Context())
	r := request(t, http.MethodGet, url+"/hold", "").WithContext(ctx)
	go func() {
		<-asked
		leave()
	}()
	if resp, err := http.DefaultClient.Do(r); err == nil {
		resp.Body.Close()
		t.Fatal("premise: the request was answered")
	}
	close(left)
	testkit.Await(t, "the request is counted, and has no permit", func() bool { return nodeLeft(t, g, "GET /hold") == "[{all 999} {hold 1}]" })
}

// A service can require a token, TLS and a client certificate.
func TestLongNodeTLS(t *testing.T) {
	t.Parallel()
	ours := testkit.NewAuthority(t)
	cert, key := ours.Make("127.0.0.1")
	client, clientKey := ours.Make("client")
	const token = "a-token-of-the-tests"
	tokens := testkit.File(t, "tokens", fmt.Sprintf("node %x\n", sha256.Sum256([]byte(token))))
	g := nodeService(t, nodeWide, "--door-tokens", tokens, "--door-tls-cert", cert, "--door-tls-key", key, "--door-tls-client-ca", ours.CA)
	read := func(file string) string {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	for _, c := range []struct {
		token, want string
	}{{token, "100\n"}, {"another", "0\n"}} {
		options, err := json.Marshal(map[string]any{"token": c.token, "tls": map[string]string{"ca": read(ours.CA), "cert": read(client), "key": read(clientKey)}})
		if err != nil {
			t.Fatal(err)
		}
		program := nodeProgram(t, "burst.cjs", "https://"+g.Check, "100", string(options))
		var log strings.Builder
		program.Stderr = &log
		if out, err := program.Output(); err != nil || string(out) != c.want || (log.String() == "") != (c.token == token) {
			t.Errorf("token %q: %s, want %s: %v\n%s", c.token, out, c.want, err, &log)
		}
	}
}
