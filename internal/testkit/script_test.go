package testkit

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestFits(t *testing.T) {
	for _, c := range []struct {
		pattern, text string
		want          bool
	}{
		{"a", "a", true}, {"a", "ab", false}, {"", "", true}, {"", "a", false}, {"...", "", true},
		{"a...", "ab", true}, {"a...", "ba", false}, {"...a", "ba", true}, {"...a", "ab", false},
		{"a...b...c", "a1b2c", true}, {"a...b...c", "ac", false}, {"a...b...b", "ab", false}, {"ab...b", "ab", false},
	} {
		if got := fits(c.pattern, c.text); got != c.want {
			t.Errorf("fits(%q, %q) = %v", c.pattern, c.text, got)
		}
	}
}

// failures is a test that collects its errors.
type failures struct {
	testing.TB
	all []string
}

func (f *failures) Helper() {}

func (f *failures) Errorf(format string, args ...any) { f.all = append(f.all, format) }

func TestScript(t *testing.T) {
	file := filepath.Join(t.TempDir(), "script.txt")
	const text = "A head.\n\n== one\nsetup\n\n> a\nA\n# comment\n> b\n> <<3*c>>\nB\n\n> d\n\n> e\nE\n== two\n> f\nwrong\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var steps []string
	f := &failures{TB: t}
	all := Script(t, file)
	for _, c := range all {
		c.Play(f, func(step string) string {
			steps = append(steps, step)
			return map[string]string{"a": "A\n", "b\nccc": "B", "d": "", "e": "E", "f": "F"}[step]
		})
	}
	if got := strings.Join(steps, "|"); got != "a|b\nccc|d|e|f" || len(f.all) != 1 || len(all) != 2 || all[0].Setup != "setup\n\n" || all[1].Name != "two" {
		t.Errorf("steps %q, %d failures, cases %+v", got, len(f.all), all)
	}
}
