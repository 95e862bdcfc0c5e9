//go:build long

// Package frameworks holds the gateway against what it protects: login servers in real
// frameworks say which handler a request has reached, and which name they took from it.
// Whatever a limit is keyed by has to be what they read.
//
// Every account and address of a policy of one login a day is used up before, so that
// nothing that a client can send may reach a login handler with it again.
package frameworks

import (
	"flag"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/sluicehq/sluice/internal/testkit"
)

// patience bounds the wait for a condition that is sure to come on any machine.
const patience = 2 * time.Minute

func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "100"); err != nil { // turns bounds what is done at once
		log.Fatal(err)
	}
	os.Exit(m.Run())
}

// gateway starts the gateway before an upstream, and returns its address.
func gateway(t *testing.T, upstream, policy string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(file, []byte(policy), 0o600); err != nil {
		t.Fatal(err)
	}
	return testkit.Start(t, func(*exec.Cmd) {}, nil, "--upstream", "http://"+upstream, "--policy", file, "--drain-timeout", "1s").Addr
}
