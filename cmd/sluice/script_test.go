package main

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"sluice": func() { os.Exit(run()) }})
}

var update = flag.Bool("update", false, "write what is said into testdata/script, to be read before it is kept")

// Each file in testdata/script is a test of the command line.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{Dir: "testdata/script", RequireExplicitExec: true, UpdateScripts: *update})
}

// opening is what would lead a reader to let requests pass whom a rule was to limit.
var opening = regexp.MustCompile(`(did you mean|write|give) [^;\n]*\b(allow|exempt|shadow|skip)\b`)

// No advice leads away from enforcing.
func TestMendsEnforce(t *testing.T) {
	all, err := filepath.Glob("testdata/script/mistakes-*.txtar")
	if err != nil || len(all) == 0 {
		t.Fatal(err)
	}
	for _, file := range all {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if bad := opening.Find(data); bad != nil {
			t.Errorf("%s: %s", file, bad)
		}
	}
}
