//go:build !long

package e2e

import (
	"flag"
	"os"
	"testing"
)

// Most tests wait for other processes, so more tests than processors run at a time.
func TestMain(m *testing.M) {
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f.Value.String() == f.DefValue {
		_ = f.Value.Set("6")
	}
	os.Exit(m.Run())
}
