package rls_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/rls"
	"github.com/sluicehq/sluice/internal/testkit"
	"github.com/sluicehq/sluice/policy"
)

// What is no file is refused, and not read: a pipe would be waited for.
func TestReadDirDevice(t *testing.T) {
	name := filepath.Join(t.TempDir(), "device.yaml")
	if err := os.Symlink(os.DevNull, name); err != nil {
		t.Fatal(err)
	}
	if _, err := rls.ReadDir(filepath.Dir(name)); err == nil || !strings.HasPrefix(err.Error(), name+": it is no file") {
		t.Error(err)
	}
}

// Rules have names that people can read, and no two the same.
func TestNames(t *testing.T) {
	limits := read(t, sluice.FixedWindow, `
domain: Edge_EU
descriptors:
  - {key: path, value: /Login, rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: user, value: x.path_y, rate_limit: {unit: hour, requests_per_unit: 1}}
  - key: user
    value: x
    rate_limit: {unit: hour, requests_per_unit: 1}
    descriptors:
      - {key: path, value: y, rate_limit: {unit: hour, requests_per_unit: 1}}
      - {key: path, value: z, rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: very, value: `+strings.Repeat("long", 30)+`, rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: a/b, value: c, rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: a, value: b/c, rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: free, rate_limit: {unlimited: true}}
`)
	var names []string
	seen := make(map[string]bool)
	for _, r := range limits.Document.Rules {
		if seen[r.Name] || len(r.Name) > 64 {
			t.Errorf("the name %q", r.Name)
		}
		seen[r.Name] = true
		names = append(names, r.Name)
	}
	if len(names) != 8 || !seen["edge_eu.path_-login"] || !seen["edge_eu.user_x"] || !seen["edge_eu.user_x.path_z"] || seen["edge_eu.user_x.path_y"] {
		t.Errorf("names: %q", names)
	}
	if _, err := policy.Compile(limits.Document); err != nil {
		t.Error(err)
	}
}

// Whatever is read makes a policy or is told to be wrong, and ends.
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
			t.Errorf("an error without a place: %v", err)
		} else if err == nil {
			doc, _ := limits.Convert()
			if _, err := policy.Compile(doc); err != nil {
				t.Errorf("what it is converted to: %v", err)
			}
		}
	})
}
