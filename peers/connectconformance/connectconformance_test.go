// Package connectconformance runs connectrpc.com/conformance through the gateway.
package connectconformance

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"
)

// build builds a program of a package into dir.
func build(t *testing.T, dir, from, pkg string) string {
	t.Helper()
	program := filepath.Join(dir, filepath.Base(pkg))
	c := exec.CommandContext(t.Context(), "go", "build", "-o", program, pkg)
	c.Dir = from
	if from != "." {
		c.Env = append(os.Environ(), "GOWORK=") // the program is built in its own workspace
	}
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return program
}

var (
	total  = regexp.MustCompile(`(?m)^(\d+) passed, (\d+) failed`)
	failed = regexp.MustCompile(`(?m)^FAILED: (.*?):?$`)
)

// The gateway fails no case that the reference server passes without it.
func TestConformance(t *testing.T) {
	dir := t.TempDir()
	suite := build(t, dir, ".", "connectrpc.com/conformance/cmd/connectconformance")
	server := build(t, dir, ".", "connectrpc.com/conformance/cmd/referenceserver")
	sluice := build(t, dir, "../..", "./cmd/sluice")
	gateway := build(t, dir, ".", "./gateway")
	run := func(t *testing.T, features string, env []string, command string, only ...string) (int, []string) {
		t.Helper()
		conf := filepath.Join(t.TempDir(), "conf.yaml")
		if err := os.WriteFile(conf, []byte("features: "+features), 0o600); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute) // for cases that hang: the others take some seconds
		defer cancel()
		args := []string{"--mode", "server", "--conf", conf}
		for _, name := range only {
			args = append(args, "--run", name)
		}
		c := exec.CommandContext(ctx, suite, append(args, "--", command)...)
		c.Cancel = func() error { return c.Process.Signal(os.Interrupt) }
		c.WaitDelay = 10 * time.Second
		c.Env = append(os.Environ(), env...)
		out, err := c.CombinedOutput()
		found := total.FindSubmatch(out)
		if found == nil {
			t.Fatalf("%v\n%s", err, out)
		}
		var names []string
		for _, m := range failed.FindAllSubmatch(out, -1) {
			names = append(names, string(m[1]))
		}
		passed, _ := strconv.Atoi(string(found[1]))
		t.Logf("%s: %s", filepath.Base(command), found[0])
		if err != nil && len(names) == 0 {
			t.Errorf("%v\n%s", err, out)
		}
		return passed, names
	}
	const (
		http1 = "{versions: [HTTP_VERSION_1], supportsH2c: false, supportsHalfDuplexBidiOverHttp1: true}"
		http2 = "{versions: [HTTP_VERSION_2], supportsH2c: false}"
	)
	for _, test := range []struct{ name, features, scheme string }{
		{"HTTP1", http1, "http"},
		{"HTTP2 to h2c", http2, "h2c"},
		{"HTTP2 to https", http2, "https"},
	} {
		t.Run(test.name, func(t *testing.T) {
			direct, known := run(t, test.features, nil, server)
			env := []string{"PEERS_SLUICE=" + sluice, "PEERS_SERVER=" + server, "PEERS_SCHEME=" + test.scheme}
			passed, names := run(t, test.features, env, gateway)
			if direct < 500 || passed+len(names) != direct+len(known) {
				t.Errorf("%d cases directly, %d through the gateway", direct+len(known), passed+len(names))
			}
			if len(names) > 0 && len(names) < 20 { // cases have deadlines, which a busy machine misses
				_, names = run(t, test.features, env, gateway, names...)
			}
			for _, name := range names {
				if !slices.Contains(known, name) {
					t.Errorf("the gateway fails %s", name)
				}
			}
		})
	}
}
