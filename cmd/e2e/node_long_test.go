//go:build long

package e2e

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluicehq/sluice/internal/testkit"
)

// The types fit programs in TypeScript, with those of Express and Fastify.
func TestLongNodeTypes(t *testing.T) {
	t.Parallel()
	c := nodeProgram(t, "../node_modules/typescript/bin/tsc", "-p", "../../clients/node/test")
	if out, err := c.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// From an empty directory, and with the program of the README, a newcomer gets to a 429. Express is that of the
// tree, so that no registry is asked.
func TestLongNodeNewcomer(t *testing.T) {
	t.Parallel()
	const readme = "../../clients/node/README.md"
	testkit.Program(t, "npm")
	nodeProgram(t, "") // skips without what the test needs
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

// nodeLogins fails to log in until it is refused, and is not refused under another name.
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

// A long request keeps its place. The service frees one that is not held after 10 seconds.
func TestLongNodeHold(t *testing.T) {
	t.Parallel()
	g := serve(t, "--check", "127.0.0.1:0", "--policy", testkit.File(t, "policy.yaml", "version: 1\nrules: [{name: hold, match: /hold, in_flight: 1}]\n"))
	url := nodeServer(t, "http", g.Check, "{}")
	ended := make(chan string)
	go func() { ended <- nodeGet(t, url+"/hold", "") }()
	taken := func() bool { return nodeLeft(t, g, "GET /hold") == "[{hold 0}]" }
	testkit.Await(t, "it has its place", taken)
	began := time.Now()
	testkit.Await(t, "it has its place for 15 seconds", func() bool { return !taken() || time.Since(began) > 15*time.Second })
	if !taken() {
		t.Errorf("the place is free after %v", time.Since(began))
	}
	get(t, url+"/go?name=hold")
	if got := <-ended; got != "200" {
		t.Error(got)
	}
}
