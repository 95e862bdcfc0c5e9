package policyfile_test

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/policyfile"
)

var update = flag.Bool("update", false, "write the messages about testdata/mistakes and testdata/bad into the files; review them before a commit")

// mistake is a common mistake in a policy: a document, the messages about it, and the document after a user has
// followed them.
type mistake struct {
	name, document, problems, mended string
}

// mistakes returns the mistakes in an archive, which has three files for each.
func mistakes(t *testing.T, a *txtar.Archive) (all []mistake) {
	t.Helper()
	for i := 0; i+2 < len(a.Files); i += 3 {
		f := a.Files[i : i+3]
		name := strings.TrimSuffix(f[0].Name, ".yaml")
		if f[0].Name != name+".yaml" || f[1].Name != name+".txt" || f[2].Name != name+".mended" {
			t.Fatalf("%s, %s and %s are not the three files of a mistake", f[0].Name, f[1].Name, f[2].Name)
		}
		all = append(all, mistake{name, string(f[0].Data), string(f[1].Data), string(f[2].Data)})
	}
	return all
}

// problems returns the errors about a document, one on each line, or its warnings if it has no errors. The result wrong
// reports whether it has errors.
func problems(name, document string) (lines string, wrong bool) {
	p, err := policyfile.Parse(name, []byte(document))
	if err != nil {
		return err.Error() + "\n", true
	}
	for _, w := range p.Warnings() {
		lines += w.String() + "\n"
	}
	return lines, false
}

// Each mistake of testdata/mistakes leads to the messages in its file, which contain its position and a correction. The
// corrected document is a valid policy, and enforces its limits.
func TestMistakes(t *testing.T) {
	n := 0
	for _, file := range files(t, "testdata/mistakes/*.txtar") {
		a, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for i, m := range mistakes(t, a) {
			n++
			t.Run(filepath.Base(file)+"/"+m.name, func(t *testing.T) {
				got, _ := problems(m.name+".yaml", m.document)
				if *update {
					a.Files[3*i+1].Data = []byte(got)
					return
				}
				diff(t, got, m.problems)
				m.saysWhere(t)
				m.mends(t)
				m.enforces(t)
			})
		}
		if *update {
			if err := os.WriteFile(file, txtar.Format(a), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	if n < 100 {
		t.Errorf("%d mistakes", n)
	}
}

var words = regexp.MustCompile(`\b[A-Za-z_][A-Za-z0-9_-]*`)

// mends checks that the corrected document is valid, that all its words are in the original document or in the
// messages, and that it does not lead to the same messages.
func (m *mistake) mends(t *testing.T) {
	again, wrong := problems(m.name+".yaml", m.mended)
	if wrong {
		t.Errorf("the corrected document is rejected: %s", again)
	}
	for line := range strings.Lines(m.problems) {
		if strings.Contains(again, line) {
			t.Errorf("the corrected document has the same message: %s", line)
		}
	}
	known := m.document + m.problems
	for _, w := range words.FindAllString(m.mended, -1) {
		if !strings.Contains(known, w) {
			t.Errorf("the messages do not contain %q", w)
		}
	}
}

// opening matches advice that would stop a rule from limiting requests.
var opening = regexp.MustCompile(`did you mean "?(allow|exempt|shadow|skip)|exempt: true|shadow: true|on_error: allow|missing: skip|(remove|leave out) (it|the rule)\b`)

// enforces checks that no message advises against enforcing a rule, and that every rule of the corrected document
// limits requests.
func (m *mistake) enforces(t *testing.T) {
	if bad := opening.FindString(m.problems); bad != "" {
		t.Errorf("a message advises against enforcing: %q", bad)
	}
	doc, err := policyfile.Decode("mended.yaml", []byte(m.mended))
	if err != nil || len(doc.Rules) == 0 {
		t.Fatalf("%d rules, %v", len(doc.Rules), err)
	}
	for _, r := range doc.Rules {
		limits := r.Limit != "" || len(r.Limits) > 0 || r.InFlight != policy.InFlight{} || r.Distinct.Limit != "" || r.Share.Of != ""
		if !limits || r.Exempt || r.Shadow || r.OnError == "allow" || r.Missing == "skip" {
			t.Errorf("the rule %s of the corrected document does not limit: %+v", r.Name, r)
		}
	}
}

// saysWhere checks that each message has a position and a correction.
func (m *mistake) saysWhere(t *testing.T) {
	p, err := policyfile.Parse(m.name+".yaml", []byte(m.document))
	found, _ := errors.AsType[policy.Errors](err)
	if err == nil {
		found = p.Warnings()
	}
	if len(found) == 0 {
		t.Error("there is no message")
	}
	for _, f := range found {
		if f.Line < 1 || f.File == "" || f.Hint == "" && !strings.ContainsAny(f.Message, ":;") {
			t.Errorf("no position or no correction: %v", f)
		}
	}
}
