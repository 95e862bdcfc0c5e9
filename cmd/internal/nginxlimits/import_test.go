package nginxlimits

import (
	"bytes"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/sluicehq/sluice/cmd/internal/nginxlimits/conf"
	"github.com/sluicehq/sluice/internal/testkit"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/policyfile"
)

// importText returns the policy that a configuration becomes, as YAML, or the error.
func importText(text string) (string, error) {
	var files conf.Files
	if err := files.AddText("a.conf", text); err != nil {
		return "", err
	}
	im, err := Import(&files)
	if err != nil {
		return "", err
	}
	out, err := im.Text([]string{"a.conf"})
	return string(out), err
}

// The setup of a case is a configuration, and a step a text that the policy, on one line, has or has not.
func TestImport(t *testing.T) {
	t.Parallel()
	for _, c := range testkit.Script(t, "testdata/import.txt") {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			text, err := importText(c.Setup)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := policyfile.Parse("policy.yaml", []byte(text)); err != nil {
				t.Error(err)
			}
			line := strings.Join(strings.Fields(text), " ")
			c.Play(t, func(step string) string {
				if strings.Contains(line, step) {
					return "yes"
				}
				return "no"
			})
			if t.Failed() {
				t.Log(text)
			}
		})
	}
}

func TestImportMistakes(t *testing.T) {
	t.Parallel()
	for _, row := range testkit.SectionOf(t, "testdata/mistakes.txt", "mistakes").Rows(t) {
		if _, err := importText(row.In); err == nil || !strings.Contains(err.Error(), row.Want) {
			t.Errorf("%s: %v, want %s", row.In, err, row.Want)
		}
	}
}

// Whatever the configuration, there is a policy, or an error with a line.
func FuzzImport(f *testing.F) {
	for _, name := range []string{"testdata/import.txt", "../../e2e/doors/testdata/imports.txt", "../../e2e/doors/testdata/imports_long.txt"} {
		for _, c := range testkit.Script(f, name) {
			f.Add(c.Setup)
		}
	}
	for _, row := range testkit.SectionOf(f, "testdata/mistakes.txt", "mistakes").Rows(f) {
		f.Add(row.In)
	}
	hasLine := regexp.MustCompile(`^\S+:\d+: `)
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = os.RemoveAll(dir) })
	f.Chdir(dir) // so that "include *" reads nothing
	f.Fuzz(func(t *testing.T, text string) {
		if strings.Contains(text, "include") {
			return // of files elsewhere
		}
		out, err := importText(text)
		if err != nil {
			if !hasLine.MatchString(err.Error()) {
				t.Errorf("an error without a line: %v", err)
			}
			return
		}
		doc, err := policyfile.Decode("policy.yaml", []byte(out))
		if err == nil {
			_, err = policy.Compile(doc)
		}
		if err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		if bytes.ContainsAny([]byte(out), "\r\x00\x1b") {
			t.Errorf("the policy has control characters: %q", out)
		}
	})
}
