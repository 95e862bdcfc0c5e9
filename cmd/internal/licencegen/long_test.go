//go:build long

package main

import (
	"bytes"
	"os"
	"testing"

	"github.com/sluicehq/sluice/internal/testkit"
)

// The list has the licences of all packages in the program, for every system.
func TestLongUpToDate(t *testing.T) {
	want, err := generate(testkit.Root())
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile("../cli/licences.txt"); err != nil || !bytes.Equal(got, want) {
		t.Errorf("cmd/internal/cli/licences.txt is out of date: run go generate ./cmd/internal/licencegen (%v)", err)
	}
}
