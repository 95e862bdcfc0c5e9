package rls_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/cmd/internal/door/rls"
	"github.com/sluicehq/sluice/internal/testkit"
	"github.com/sluicehq/sluice/policy"
)

// ReadDir refuses devices, because reading one, or a pipe, might never end.
func TestReadDirDevice(t *testing.T) {
	name := filepath.Join(t.TempDir(), "device.yaml")
	if err := os.Symlink(os.DevNull, name); err != nil {
		t.Fatal(err)
	}
	if _, err := rls.ReadDir(filepath.Dir(name)); err == nil || !strings.HasPrefix(err.Error(), name+": not a regular file") {
		t.Error(err)
	}
}

// Read terminates for every text, and returns either a configuration or an error with a line. Policies that result from
// conversion are valid.
func FuzzRead(f *testing.F) {
	for _, c := range testkit.Script(f, "testdata/decisions.txt") {
		f.Add(c.Setup)
	}
	f.Add("domain: &a [*a]")
	f.Add("domain: a\ndescriptors: &x\n- {key: b, descriptors: *x}")
	f.Add("domain: a\ndescriptors: " + strings.Repeat("[{key: b, descriptors: ", 40) + "[]" + strings.Repeat("}]", 40))
	f.Add("domain: a\ndescriptors:\n- {key: \"\\x01\", value: '*', metadata: {a: .nan, sluice: {burst: 3}}, share_threshold: true, rate_limit: {unit: day, replaces: [{name: x}]}}")
	f.Fuzz(func(t *testing.T, text string) {
		limits, err := rls.Read(files(text), sluice.SlidingWindowCounter)
		if err != nil {
			if problems, ok := err.(policy.Errors); !ok || len(problems) == 0 || problems[0].Line < 1 {
				t.Errorf("an error without a line: %v", err)
			}
			return
		}
		if _, err := policy.CompileAt(limits.Document, limits.Where); err != nil && !strings.HasPrefix(err.Error(), "a.yaml:") {
			t.Errorf("an error without a position: %v", err)
		} else if err == nil {
			doc, _ := limits.Convert()
			if _, err := policy.Compile(doc); err != nil {
				t.Errorf("the converted policy: %v", err)
			}
		}
	})
}
