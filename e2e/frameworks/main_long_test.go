//go:build long

// Package frameworks holds the gateway against what it protects: login servers in real
// frameworks say which handler a request has reached, and which name they took from it.
// Whatever a limit is keyed by has to be what they read.
//
// Every account and address of a policy of one login a day is used up before, so that
// nothing that a client can send may reach a login handler with it again.
package frameworks

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluicehq/sluice/internal/testkit"
)

// patience bounds the wait for a condition that is sure to come on any machine.
const patience = 2 * time.Minute

// binary is the gateway, as TestMain has built it.
var binary string

func TestMain(m *testing.M) { os.Exit(buildAndRun(m)) }

func buildAndRun(m *testing.M) int {
	flag.Parse()
	if err := flag.Set("test.parallel", "100"); err != nil { // turns bounds what is done at once
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	var err error
	if binary, err = testkit.Sluice(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// gateway starts the gateway before an upstream, and returns its address. When the test
// ends it has to end with 0.
func gateway(t *testing.T, upstream, policy string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(file, []byte(policy), 0o600); err != nil {
		t.Fatal(err)
	}
	c := exec.Command(binary, "serve", "--proxy", "127.0.0.1:0", "--admin", "127.0.0.1:0",
		"--upstream", "http://"+upstream, "--policy", file, "--drain-timeout", "1s")
	c.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "SLUICE_") })
	c.Env = append(c.Env, "GORACE=atexit_sleep_ms=20")
	stderr, err := c.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Process.Signal(syscall.SIGTERM)
		if err := c.Wait(); err != nil {
			t.Errorf("the gateway ends with %v", err)
		}
	})
	return serving(t, stderr)
}

// serving returns the address that the gateway says it serves at, and drops what else it says.
func serving(t *testing.T, stderr io.Reader) string {
	t.Helper()
	lines := bufio.NewReader(stderr)
	var said []byte
	for {
		line, err := lines.ReadBytes('\n')
		said = append(said, line...)
		if err != nil {
			t.Fatalf("the gateway does not serve: %v\n%s", err, said)
		}
		var r struct{ Msg, Proxy string }
		if json.Unmarshal(line, &r) == nil && r.Msg == "sluice serves" {
			go func() { _, _ = io.Copy(io.Discard, lines) }()
			return r.Proxy
		}
	}
}
