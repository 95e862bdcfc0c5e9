package sluice_test

import (
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var (
	mdFence = regexp.MustCompile("(?ms)^(```+|~~~+).*?^(```+|~~~+) *$")
	mdCode  = regexp.MustCompile("`[^`\n]*`")
	mdLink  = regexp.MustCompile(`\]\(<?([^)\s>]+)>?(?: "[^"]*")?\)|(?m:^\[[^\]]+\]: (\S+))|(?:href|src)="([^"]+)"`)
	mdHead  = regexp.MustCompile(`(?m)^#{1,6} +(.+?) *#*$`)
	mdWords = regexp.MustCompile(`[^\p{L}\p{N}\p{M} _-]`)
)

// anchors are those that GitHub gives the headings of a page.
func anchors(page string) map[string]bool {
	all := map[string]bool{}
	for _, m := range mdHead.FindAllStringSubmatch(mdFence.ReplaceAllString(page, ""), -1) {
		text := regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`).ReplaceAllString(m[1], "$1")
		name := strings.ReplaceAll(mdWords.ReplaceAllString(strings.ToLower(text), ""), " ", "-")
		for once, n := name, 1; all[name]; n++ {
			name = once + "-" + strconv.Itoa(n)
		}
		all[name] = true
	}
	return all
}

// Every link of a page to another one, or to a place in it, leads somewhere.
func TestLinks(t *testing.T) {
	checked := 0
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		// What tests install is others'.
		if d.IsDir() && path != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "node_modules") {
			return fs.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(path, ".md") {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, m := range mdLink.FindAllStringSubmatch(mdCode.ReplaceAllString(mdFence.ReplaceAllString(string(text), ""), "`"), -1) {
			link := m[1] + m[2] + m[3]
			u, err := url.Parse(link)
			if err != nil {
				t.Errorf("%s: %s: %v", path, link, err)
				continue
			}
			if u.Scheme != "" || u.Host != "" {
				continue
			}
			checked++
			target := path
			if u.Path != "" {
				target = filepath.Join(filepath.Dir(path), filepath.FromSlash(u.Path))
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s: %s leads nowhere: %v", path, link, err)
				continue
			}
			if u.Fragment == "" {
				continue
			}
			if page, err := os.ReadFile(target); err != nil || !anchors(string(page))[u.Fragment] {
				t.Errorf("%s: %s: there is no such heading (%v)", path, link, err)
			}
		}
		return nil
	})
	if err != nil || checked < 40 {
		t.Errorf("%d links were found (%v)", checked, err)
	}
}

// The page about operations has a row for each alert, and for no other.
func TestAlertsExplained(t *testing.T) {
	names := func(path, pattern string) (all []string) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(string(text), -1) {
			all = append(all, m[1])
		}
		return all
	}
	alerts := names("deploy/prometheus/alerts.yaml", `(?m)^ *- alert: (\w+)$`)
	rows := names("docs/operations.md", "(?m)^\\| `(Sluice\\w+)` \\| [^|]+ \\| [^|]+ \\|$")
	if len(alerts) == 0 || !slices.Equal(alerts, rows) {
		t.Errorf("alerts.yaml has\n%v, and docs/operations.md\n%v", alerts, rows)
	}
}

// The tests that the page about security names are there.
func TestSecurityHeld(t *testing.T) {
	page, err := os.ReadFile("docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("`(Test\\w+)`").FindAllStringSubmatch(string(page), -1)
	there := map[string]bool{}
	err = filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, m := range regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllStringSubmatch(string(text), -1) {
			there[m[1]] = true
		}
		return err
	})
	if err != nil || len(named) < 15 {
		t.Fatalf("%d tests are named (%v)", len(named), err)
	}
	for _, m := range named {
		if !there[m[1]] {
			t.Errorf("there is no %s", m[1])
		}
	}
}

// The first page of the documents leads to all others, and the index of the examples has all of them.
func TestIndexes(t *testing.T) {
	for _, index := range []struct{ page, all, link string }{
		{"docs/README.md", "docs/*.md", "](%s)"}, {"examples/README.md", "examples/*", "\n| [%s]("},
	} {
		text, err := os.ReadFile(index.page)
		if err != nil {
			t.Fatal(err)
		}
		found, err := filepath.Glob(index.all)
		if err != nil || len(found) < 10 {
			t.Fatalf("%s: %d (%v)", index.all, len(found), err)
		}
		for _, path := range found {
			name := filepath.Base(path)
			if name != "README.md" && name != "examples.go" && !strings.Contains(string(text), fmt.Sprintf(index.link, name)) {
				t.Errorf("%s does not have %s", index.page, name)
			}
		}
	}
}

// Every package that programs import has an example.
func TestPackagesHaveExamples(t *testing.T) {
	looked := 0
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		switch name := d.Name(); {
		case path == ".":
		case strings.HasPrefix(name, "."), slices.Contains([]string{"bin", "internal", "cmd", "e2e", "examples", "bench", "deploy", "testdata", "node_modules"}, name):
			return fs.SkipDir
		}
		if _, err := os.Stat(filepath.Join(path, "go.mod")); err == nil && path != "." {
			return fs.SkipDir // it is a module of its own
		}
		sources, err := filepath.Glob(filepath.Join(path, "*.go"))
		if err != nil || len(sources) == 0 {
			return err
		}
		looked++
		for _, source := range sources {
			text, err := os.ReadFile(source)
			if err != nil {
				return err
			}
			if strings.HasSuffix(source, "_test.go") && strings.Contains(string(text), "\nfunc Example") {
				return nil
			}
		}
		t.Errorf("%s has no example", path)
		return nil
	})
	if err != nil || looked < 15 {
		t.Errorf("%d packages (%v)", looked, err)
	}
}
