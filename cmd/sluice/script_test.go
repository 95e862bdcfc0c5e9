package main

import (
	"flag"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/sluicehq/sluice/internal/testkit"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"sluice": func() { os.Exit(run()) }})
}

var update = flag.Bool("update", false, "write what is said into testdata/script and docs/cli.md, to be read before it is kept")

// Each file in testdata/script is a test of the command line.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script", RequireExplicitExec: true, UpdateScripts: *update,
		Setup: func(e *testscript.Env) error {
			e.Setenv("GORACE", "atexit_sleep_ms=20") // or each command sleeps for a second at its end
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			// ports NAME… sets variables to addresses that nobody listens on.
			"ports": func(ts *testscript.TestScript, _ bool, names []string) {
				for _, name := range names {
					ts.Setenv(name, testkit.Addr(t))
				}
			},
			"await":      await,
			"fetch":      fetch,
			"eventually": eventually,
		},
	})
}

// await URL [STATUS] waits until it answers with that, or 200.
func await(ts *testscript.TestScript, _ bool, args []string) {
	want := "200"
	if len(args) > 1 {
		want = args[1]
	}
	until(ts, args[0]+" answers", func() bool {
		response, err := http.Get(args[0])
		if err != nil {
			return false
		}
		_ = response.Body.Close()
		return strconv.Itoa(response.StatusCode) == want
	})
}

// fetch N URL asks for it so often.
func fetch(ts *testscript.TestScript, _ bool, args []string) {
	n, err := strconv.Atoi(args[0])
	ts.Check(err)
	for range n {
		response, err := http.Get(args[1])
		ts.Check(err)
		_ = response.Body.Close()
	}
}

// eventually PATTERN COMMAND… runs it until its output has a line that matches.
func eventually(ts *testscript.TestScript, _ bool, args []string) {
	pattern := regexp.MustCompile("(?m)" + args[0])
	until(ts, args[0], func() bool {
		return ts.Exec(args[1], args[2:]...) == nil && pattern.MatchString(ts.ReadFile("stdout"))
	})
}

// until waits for what is sure to come.
func until(ts *testscript.TestScript, what string, holds func() bool) {
	for end := time.Now().Add(time.Minute); !holds(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			ts.Fatalf("it never came that %s", what)
		}
	}
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
