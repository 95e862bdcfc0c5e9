//go:build long

// Package frameworks compares the gateway with the servers that it protects: login servers in real frameworks report
// which handler a request has reached, and which name they have read from it. The keys of the limits must be what the
// servers read.
//
// The policy allows one login a day for each account and address. The tests first use up all of them. After that, no
// request may reach a login handler with one of these accounts or addresses.
package frameworks

import (
	"flag"
	"log"
	"os"
	"testing"

	"github.com/sluicehq/sluice/internal/testkit"
)

const patience = testkit.Patience

func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "100"); err != nil { // turns bounds the concurrency
		log.Fatal(err)
	}
	os.Exit(m.Run())
}

// gateway starts a gateway in front of an upstream, and returns its address.
func gateway(t *testing.T, upstream, policy string) string {
	t.Helper()
	return testkit.Start(t, "--upstream", "http://"+upstream, "--policy", testkit.File(t, "policy.yaml", policy), "--drain-timeout", "1s").Addr
}
