// Command licencegen writes the licences of all code that is linked into sluice on any of its release platforms:
//
//	go generate ./cmd/internal/licencegen
//
// It fails if code has a licence that is not in allowed.
package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/google/licensecheck"
)

//go:generate go run . ../../.. ../../../cmd/internal/cli/licences.txt

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "licencegen: give a module and an output file, as in licencegen . cmd/internal/cli/licences.txt")
		os.Exit(2)
	}
	text, err := generate(os.Args[1])
	if err == nil {
		err = os.WriteFile(os.Args[2], text, 0o644)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "licencegen:", err)
		os.Exit(1)
	}
}

// allowed has the licences that a file may have, by their names in licensecheck.
var allowed = []string{"Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT", "MPL-2.0", "blessing"}

// known has the licences of texts that licensecheck does not recognize, by the first words of the text.
var known = map[string]string{
	"SQLite Is Public Domain": "blessing",
}

var (
	licenceFile = regexp.MustCompile(`(?i)^(licen[cs]e|copying)`)
	noticeFile  = regexp.MustCompile(`(?i)^(notice|patents)`)
	// A collection repeats the licences of other projects, whose own licence files are also found.
	collection = regexp.MustCompile(`(?i)3rd-party`)
	artwork    = regexp.MustCompile(`LICENSE-LOGO$`) // the licence of a logo, which is not linked
)

// module is a module with linked packages, and the directories of these packages.
type module struct {
	name, version, root string
	dirs                map[string]bool
}

// linked returns the modules of the command, the Go standard library first.
func linked(dir string) ([]*module, error) {
	goroot, err := output(dir, nil, "go", "env", "GOROOT")
	if err != nil {
		return nil, err
	}
	all := map[string]*module{}
	for _, system := range []string{"linux", "darwin", "windows"} {
		list, err := output(dir, []string{"GOOS=" + system, "GOARCH=amd64", "CGO_ENABLED=0"}, "go", "list", "-deps", "-json=Dir,Module,Standard", "./cmd/sluice")
		if err != nil {
			return nil, err
		}
		for d := json.NewDecoder(bytes.NewReader(list)); ; {
			var p struct {
				Dir      string
				Standard bool
				Module   *struct {
					Path, Version, Dir string
					Main               bool
				}
			}
			if err := d.Decode(&p); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				return nil, err
			}
			if p.Standard || p.Module == nil || p.Module.Main {
				continue
			}
			m := all[p.Module.Path]
			if m == nil {
				m = &module{p.Module.Path, p.Module.Version, p.Module.Dir, map[string]bool{}}
				all[m.name] = m
			}
			for at := p.Dir; ; at = filepath.Dir(at) {
				m.dirs[at] = true
				if at == m.root {
					break
				}
			}
		}
	}
	// The descriptors of these modules are in cmd/internal/door/rls/descriptors.binpb.gz.
	for _, name := range []string{"github.com/envoyproxy/go-control-plane/envoy", "github.com/cncf/xds/go", "github.com/envoyproxy/protoc-gen-validate"} {
		about, err := output(dir, nil, "go", "list", "-m", "-f", "{{.Version}} {{.Dir}}", name)
		if err != nil {
			return nil, err
		}
		version, root, _ := strings.Cut(strings.TrimSpace(string(about)), " ")
		all[name] = &module{name, version, root, map[string]bool{root: true}}
	}
	const assets = "cmd/internal/console/assets/vendor"
	std := strings.TrimSpace(string(goroot))
	first := []*module{
		{name: "The Go standard library and runtime", root: std, dirs: map[string]bool{std: true}},
		{name: "uPlot", root: filepath.Join(dir, assets), dirs: map[string]bool{filepath.Join(dir, assets): true}},
	}
	return append(first, slices.SortedFunc(maps.Values(all), func(a, b *module) int { return cmp.Compare(a.name, b.name) })...), nil
}

func output(dir string, env []string, name string, args ...string) ([]byte, error) {
	c := exec.Command(name, args...)
	c.Dir, c.Env, c.Stderr = dir, append(os.Environ(), env...), os.Stderr
	out, err := c.Output()
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", name, strings.Join(args, " "), err)
	}
	return out, nil
}

// file is a licence file of a module.
type file struct{ name, text string }

// texts returns the licence files of a module, and the names of the licences.
func (m *module) texts() (files []file, licences []string, err error) {
	dirs := slices.Sorted(maps.Keys(m.dirs))
	for _, dir := range dirs {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return nil, nil, err
		}
		for _, e := range entries {
			path := filepath.Join(dir, e.Name())
			name := strings.TrimPrefix(e.Name(), "uPlot-")
			licence := licenceFile.MatchString(name)
			if e.IsDir() || strings.HasSuffix(name, ".go") || artwork.MatchString(name) || !licence && !noticeFile.MatchString(name) {
				continue
			}
			data, err := os.ReadFile(path)
			if err != nil {
				return nil, nil, err
			}
			text := strings.TrimSpace(strings.ReplaceAll(string(data), "\r\n", "\n"))
			at, err := filepath.Rel(m.root, path)
			if err != nil {
				return nil, nil, err
			}
			files = append(files, file{filepath.ToSlash(at), text})
			if !licence || collection.MatchString(name) {
				continue
			}
			names, err := identify(text)
			if err != nil {
				return nil, nil, fmt.Errorf("%s: %s: %w", m.name, at, err)
			}
			licences = append(licences, names...)
		}
	}
	if len(licences) == 0 {
		return nil, nil, fmt.Errorf("%s has no licence in %s", m.name, m.root)
	}
	slices.Sort(licences)
	return files, slices.Compact(licences), nil
}

// identify returns the licences of a text. A licence that is not allowed is an error.
func identify(text string) (names []string, err error) {
	for start, name := range known {
		if strings.HasPrefix(text, start) {
			return []string{name}, nil
		}
	}
	coverage := licensecheck.Scan([]byte(text))
	for _, m := range coverage.Match {
		if m.IsURL {
			continue
		}
		if !slices.Contains(allowed, m.ID) {
			return nil, fmt.Errorf("the licence %s is not one of %s", m.ID, strings.Join(allowed, ", "))
		}
		names = append(names, m.ID)
	}
	if len(names) == 0 || coverage.Percent < 70 {
		return nil, fmt.Errorf("unknown licence: %.0f %% of the text match %q", coverage.Percent, names)
	}
	return names, nil
}

// generate returns the list of all modules with their licences, followed by each distinct text.
func generate(dir string) ([]byte, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	modules, err := linked(dir)
	if err != nil {
		return nil, err
	}
	var list, body bytes.Buffer
	var order []string
	whose := map[string][]string{}
	for _, m := range modules {
		files, licences, err := m.texts()
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&list, "%s: %s\n", strings.TrimSpace(m.name+" "+m.version), strings.Join(licences, ", "))
		for _, f := range files {
			if whose[f.text] == nil {
				order = append(order, f.text)
			}
			whose[f.text] = append(whose[f.text], m.name+", "+f.name)
		}
	}
	for _, text := range order {
		fmt.Fprintf(&body, "\n%s\n%s\n\n%s\n", strings.Repeat("=", 80), strings.Join(whose[text], "\n"), text)
	}
	const head = "Sluice contains the following, under the licences that are named; their texts are below.\n\n"
	return slices.Concat([]byte(head), list.Bytes(), body.Bytes()), nil
}
