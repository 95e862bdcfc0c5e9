package rls_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/rls"
	"github.com/sluicehq/sluice/policy"
)

// Every mistake is told with its line, and what to do about it.
func TestMistakes(t *testing.T) {
	for _, c := range []struct{ text, says string }{
		{"", "a.yaml:1: the file is empty"},
		{"[]", "a.yaml:1: the file is a list"},
		{"descriptors: []", "a.yaml:1: the file has no domain"},
		{"domain: a\ndomain: b", "a.yaml:2: domain is there twice"},
		{"domain: a\n---\ndomain: b", "a.yaml:2: there is a second document"},
		{"domain: a\nlimits: []", `a.yaml:2: unknown key "limits" in the file`},
		{"domain: a\n descriptors: []", "a.yaml:2: this is not YAML"},
		{"domain: [a]", "a.yaml:1: domain is a list"},
		{"domain: a\ndescriptors: {key: b}", "a.yaml:2: descriptors is a mapping, and must be a list"},
		{"domain: a\ndescriptors:\n- b", "a.yaml:3: a descriptor is a single value"},
		{"domain: a\ndescriptors:\n- value: b", "a.yaml:3: the descriptor has no key"},
		{"domain: a\ndescriptors:\n- {key: b, values: c}", `a.yaml:3: unknown key "values" in a descriptor`},
		{"domain: a\ndescriptors:\n- {key: b*}", `a.yaml:3: the key "b*" has a wildcard`},
		{"domain: a\ndescriptors:\n- {key: b}\n- {key: b}", `a.yaml:4: there are two descriptors of key "b" and value ""; the first is at a.yaml:3`},
		{"domain: a\ndescriptors:\n- {key: b, value: c*}\n- {key: b, value: c*}", "a.yaml:4: there are two descriptors"},
		{"domain: a\ndescriptors:\n- {key: b, value: c}\n- {key: b, value: c}", "a.yaml:4: there are two descriptors"},
		{"domain: a\ndescriptors:\n- {key: b, shadow_mode: maybe}", `a.yaml:3: shadow_mode is "maybe"`},
		{"domain: a\ndescriptors:\n- {key: b, value: c, share_threshold: true}", "a.yaml:3: share_threshold is of a descriptor without a wildcard"},
		{"domain: a\ndescriptors:\n- {key: b, rate_limit: 5}", "a.yaml:3: rate_limit is a single value"},
		{"domain: a\ndescriptors:\n- {key: b, rate_limit: {unit: fortnight}}", `a.yaml:3: unit is "fortnight"`},
		{"domain: a\ndescriptors:\n- {key: b, rate_limit: {requests_per_unit: 5}}", `a.yaml:3: unit is ""`},
		{"domain: a\ndescriptors:\n- {key: b, rate_limit: {unit: unknown, requests_per_unit: 5}}", `a.yaml:3: unit is "unknown"`},
		{"domain: a\ndescriptors:\n- {key: b, rate_limit: {unit: day, burst: 5}}", `a.yaml:3: unknown key "burst" in rate_limit`},
		{"domain: a\ndescriptors:\n- {key: b, rate_limit: {unit: day, unlimited: true}}", "a.yaml:3: unlimited has no unit"},
		{"domain: a\ndescriptors:\n- {key: b, rate_limit: {unit: day, requests_per_unit: -1}}", `a.yaml:3: requests_per_unit is "-1"`},
		{"domain: a\ndescriptors:\n- {key: b, rate_limit: {unit: day, requests_per_unit: 1.5}}", `requests_per_unit is "1.5"`},
		{"domain: a\ndescriptors:\n- {key: b, rate_limit: {unit: day, requests_per_unit: 010}}", `requests_per_unit is "010"`},
		{"domain: a\ndescriptors:\n- {key: b, rate_limit: {unit: day, requests_per_unit: 4294967296}}", `requests_per_unit is "4294967296"`},
		{"domain: a\ndescriptors:\n- {key: b, rate_limit: {unit: day, requests_per_unit: 1, replaces: [{name: ''}]}}", "a.yaml:3: the entry of replaces has no name"},
		{"domain: a\ndescriptors:\n- {key: b, rate_limit: {unit: day, requests_per_unit: 1, name: x, replaces: [{name: x}]}}", `a.yaml:3: the limit "x" replaces itself`},
		{"domain: a\ndescriptors:\n- {key: b, metadata: [x]}", "a.yaml:3: metadata is a list"},
		{"domain: a\ndescriptors:\n- {key: b, metadata: {sluice: {burts: 5}}}", `a.yaml:3: unknown key "burts" in metadata.sluice`},
		{"domain: a\ndescriptors:\n- {key: b, metadata: {sluice: {burst: 0}}}", "a.yaml:3: burst is 0"},
		{"domain: a\ndescriptors:\n- {key: b, metadata: {sluice: {algorithm: bucket}}}", `a.yaml:3: unknown algorithm "bucket"`},
		{"domain: a\ndescriptors:\n- {key: b, metadata: {sluice: {on_error: panic}}}", `a.yaml:3: `},
		{"domain: a\ndescriptors:\n- {key: b, metadata: {sluice: {burst: 5}}, rate_limit: {unit: day, requests_per_unit: 1}}", "a.yaml:3: metadata.sluice.burst is of an algorithm that has none"},
		// These are found by the policy.
		{"domain: a\ndescriptors:\n- {key: b, rate_limit: {unit: year, requests_per_unit: 4294967295}}", "a.yaml:3: rule \"a.b\": limit"},
		{"domain: a\ndescriptors:\n- key: ' b'\n  rate_limit: {unit: year, requests_per_unit: 5}", "a.yaml:4: rule"},
		// What aliases make of little.
		{"domain: &a [*a]", "the document is too large or too deep"},
		{"domain: a\ndescriptors: " + nested(40), "more than 32 deep"},
	} {
		limits, err := rls.Read(files(c.text), sluice.FixedWindow)
		if err == nil {
			_, err = policy.CompileAt(limits.Document, limits.Where)
		}
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s\nsays %v\nwant %s", c.text, err, c.says)
		}
	}
}

// nested returns descriptors so deep in each other.
func nested(depth int) string {
	return strings.Repeat("[{key: b, descriptors: ", depth) + "[]" + strings.Repeat("}]", depth)
}

// All of several problems are told, those of several files too.
func TestAllMistakes(t *testing.T) {
	_, err := rls.Read(files("domain: a\ndescriptors:\n- {key: b, x: 1, rate_limit: {unit: z}}\n- {value: c}", "domain: ''"), sluice.FixedWindow)
	problems, _ := err.(policy.Errors)
	if len(problems) != 4 || problems[3].File != "b.yaml" {
		t.Errorf("problems: %v", err)
	}
}

// Files of one domain make one tree, and what both have is an error.
func TestMerge(t *testing.T) {
	one := "{domain: edge, descriptors: [{key: a, rate_limit: {unit: hour, requests_per_unit: 1}}]}"
	limits := read(t, sluice.FixedWindow, one, "{domain: edge, descriptors: [{key: b, rate_limit: {unit: hour, requests_per_unit: 1}}]}")
	if n := len(limits.Document.Rules); n != 2 {
		t.Errorf("%d rules", n)
	}
	if _, err := rls.Read(files(one, one), sluice.FixedWindow); err == nil || !strings.Contains(err.Error(), "b.yaml:1: there are two descriptors") {
		t.Errorf("the same twice: %v", err)
	}
}

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
	f.Add(lookups)
	f.Add("domain: &a [*a]")
	f.Add("domain: a\ndescriptors: &x\n- {key: b, descriptors: *x}")
	f.Add("domain: a\ndescriptors: " + nested(40))
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
