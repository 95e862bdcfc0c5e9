package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// module writes a module of one package with one test, and changes to its directory.
func module(t *testing.T, test string) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module example.com/small\n\ngo 1.26\n",
		"small.go": `package small

func fits(used, cost, limit int) bool {
	if used+cost <= limit {
		return true
	}
	return false
}
`,
		"small_test.go": "package small\n\nimport \"testing\"\n\nfunc TestFits(t *testing.T) {\n" + test + "}\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
}

// A test at the boundary notices every change of a comparison and of a sum. A test that only runs the code notices
// none.
func TestWhatIsNoticed(t *testing.T) {
	const exact = `	if !fits(1, 2, 3) || fits(2, 2, 3) || !fits(1, 1, 9) {
		t.Fatal("wrong")
	}
`
	for _, c := range []struct {
		test string
		want string
	}{{exact, "killed"}, {"	fits(1, 2, 3)\n", survived}} {
		module(t, c.test)
		all, err := ofPackage(".")
		if err != nil {
			t.Fatal(err)
		}
		if len(all) != 3 { // <= to < and to >, + to -
			t.Fatalf("%d changes: %v", len(all), all)
		}
		r := run{pkg: ".", tests: []string{"."}, limit: time.Minute}
		if c.want == survived {
			all = all[:1]
		}
		for _, m := range all {
			if got, err := r.try(m); err != nil || got != c.want {
				t.Errorf("%s: %s, %v, want %s", m, got, err, c.want)
			}
		}
	}
}

// A change that does not compile is reported as invalid, because it does not show whether the tests notice it.
func TestInvalidChange(t *testing.T) {
	module(t, "\tfits(1, 2, 3)\n")
	text, err := os.ReadFile("small.go")
	if err != nil {
		t.Fatal(err)
	}
	path, err := filepath.Abs("small.go")
	if err != nil {
		t.Fatal(err)
	}
	at := strings.Index(string(text), "limit {")
	m := mutant{file: path, from: at, to: at + len("limit"), old: "limit", replacing: `"limit"`}
	if got, err := (run{pkg: ".", tests: []string{"."}, limit: time.Minute}).try(m); err != nil || got != invalid {
		t.Errorf("%s, %v", got, err)
	}
}

// An accepted change needs a reason, and the text of a manual change must occur exactly once.
func TestLists(t *testing.T) {
	t.Chdir(t.TempDir())
	write := func(name, text string) {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("accepted.txt", "# a comment\n\na.go f: x < y: \"<\" to \"<=\"  # never equal\n")
	if known, err := readAccepted("accepted.txt"); err != nil || !known[`a.go f: x < y: "<" to "<="`] {
		t.Errorf("%v, %v", known, err)
	}
	write("accepted.txt", "a.go f: x < y: \"<\" to \"<=\"\n")
	if _, err := readAccepted("accepted.txt"); err == nil {
		t.Error("no error for a missing reason")
	}
	write("a.lua", "local a = 1\nlocal b = 1\n")
	write("changes.txt", "a.lua: local a = 1 => local a = 2\n")
	if all, err := readSubstitutions("changes.txt"); err != nil || len(all) != 1 || all[0].from != 0 || all[0].replacing != "local a = 2" {
		t.Errorf("%v, %v", all, err)
	}
	write("changes.txt", "a.lua: = 1 => = 2\n")
	if _, err := readSubstitutions("changes.txt"); err == nil {
		t.Error("no error for a text that occurs twice")
	}
}
