package cli

import (
	"errors"
	"flag"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/sluicehq/sluice/internal/testkit"
)

func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) != "sluice" { // SLUICE_ variables of the test run must not configure the program
		for _, v := range os.Environ() {
			if name, _, _ := strings.Cut(v, "="); strings.HasPrefix(name, "SLUICE_") {
				os.Unsetenv(name)
			}
		}
	}
	testscript.Main(m, map[string]func(){"sluice": func() { os.Exit(Main(Build{})) }})
}

var update = flag.Bool("update", false, "write the actual output to testdata/script and docs/cli.md; review it before committing")

// Each file in testdata/script is a test of the command line.
func TestScripts(t *testing.T) {
	dir, err := filepath.Abs("testdata/script") // because commands change the directory
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir: dir, RequireExplicitExec: true, UpdateScripts: *update,
		Setup: func(e *testscript.Env) error {
			e.Setenv("GORACE", "atexit_sleep_ms=20") // otherwise, with -race, each command sleeps for a second
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			// ports NAME… sets variables to unused addresses.
			"ports": func(ts *testscript.TestScript, _ bool, names []string) {
				for _, name := range names {
					ts.Setenv(name, testkit.Addr(t))
				}
			},
			"await":      await,
			"fetch":      fetch,
			"eventually": eventually,
			"run":        runWithin,
		},
	})
}

// within is locked while a command uses the directory, the environment and the outputs of this process.
var within sync.Mutex

// runWithin implements "run sluice ARGS…". It runs the program within the test's process, which takes a fraction of the
// time of "exec sluice". Because it changes the state of the process, TestScripts does not run in parallel with other
// tests.
func runWithin(ts *testscript.TestScript, fails bool, args []string) {
	within.Lock()
	defer within.Unlock()
	names := variables()
	dir, err := os.Getwd()
	ts.Check(err)
	ts.Check(os.Chdir(ts.MkAbs(".")))
	defer func() { ts.Check(os.Chdir(dir)) }()
	for _, name := range names {
		if value := ts.Getenv(name); value != "" {
			ts.Check(os.Setenv(name, value))
			defer os.Unsetenv(name)
		}
	}
	defer redirect(ts, &os.Stdout, ts.Stdout())()
	defer redirect(ts, &os.Stderr, ts.Stderr())()
	was := os.Args
	defer func() { os.Args = was }()
	os.Args = args
	if code := Main(Build{}); (code != 0) != fails {
		ts.Fatalf("sluice exits with %d", code)
	}
}

// redirect redirects an output of the process to a file. The function that it returns restores the output and copies
// the file to the writer.
func redirect(ts *testscript.TestScript, output **os.File, to io.Writer) func() {
	was := *output
	f, err := os.CreateTemp("", "sluice-output-")
	ts.Check(err)
	*output = f
	return func() {
		*output = was
		_, err := f.Seek(0, io.SeekStart)
		ts.Check(err)
		_, err = io.Copy(to, f)
		ts.Check(err)
		ts.Check(errors.Join(f.Close(), os.Remove(f.Name())))
	}
}

// variables returns the names of the SLUICE_ variables that scripts set.
var variables = sync.OnceValue(func() (names []string) {
	files, _ := filepath.Glob("testdata/script/*.txtar")
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			panic(err)
		}
		for _, m := range regexp.MustCompile(`(?m)^env (SLUICE_[A-Z_]+)=`).FindAllSubmatch(text, -1) {
			names = append(names, string(m[1]))
		}
	}
	return names
})

// await URL [STATUS] waits until the URL answers with the status, by default 200.
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

// fetch N URL requests the URL N times.
func fetch(ts *testscript.TestScript, _ bool, args []string) {
	n, err := strconv.Atoi(args[0])
	ts.Check(err)
	for range n {
		response, err := http.Get(args[1])
		ts.Check(err)
		_ = response.Body.Close()
	}
}

// eventually PATTERN COMMAND… runs the command until its output has a line that matches.
func eventually(ts *testscript.TestScript, _ bool, args []string) {
	pattern := regexp.MustCompile("(?m)" + args[0])
	until(ts, args[0], func() bool {
		return ts.Exec(args[1], args[2:]...) == nil && pattern.MatchString(ts.ReadFile("stdout"))
	})
}

// until waits until holds returns true. After a minute the script fails.
func until(ts *testscript.TestScript, what string, holds func() bool) {
	for end := time.Now().Add(time.Minute); !holds(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			ts.Fatalf("gave up after a minute waiting for: %s", what)
		}
	}
}

// opening matches advice to let requests pass that a rule was meant to limit.
var opening = regexp.MustCompile(`(did you mean|write|give) [^;\n]*\b(allow|exempt|shadow|skip)\b`)

// No hint about a mistake suggests a less strict policy.
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
