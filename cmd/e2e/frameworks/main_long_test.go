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
	"testing"

	"github.com/sluicehq/sluice/internal/testkit"
)

const patience = testkit.Patience

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
	return testkit.Start(t, "--upstream", "http://"+upstream, "--policy", testkit.File(t, "policy.yaml", policy), "--drain-timeout", "1s").Addr
}
