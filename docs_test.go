package sluice_test

import (
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path"
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

// anchors returns the anchors that GitHub generates for the headings of a page.
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

// pages returns the contents of the files below folder with names that end with suffix, by path. It skips hidden
// directories and those where tests install programs.
func pages(t *testing.T, folder, suffix string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && path != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "node_modules" || d.Name() == "bin") {
			return fs.SkipDir
		}
		if err != nil || d.IsDir() || !strings.HasSuffix(path, suffix) {
			return err
		}
		text, err := os.ReadFile(path)
		all[filepath.ToSlash(path)] = string(text)
		return err
	})
	if err != nil || len(all) == 0 {
		t.Fatalf("found %d files with suffix %s: %v", len(all), suffix, err)
	}
	return all
}

// The target of every relative link in a Markdown page exists: the file, and the heading of an anchor.
func TestLinks(t *testing.T) {
	checked := 0
	for file, text := range pages(t, ".", ".md") {
		for _, m := range mdLink.FindAllStringSubmatch(mdCode.ReplaceAllString(mdFence.ReplaceAllString(text, ""), "`"), -1) {
			link := m[1] + m[2] + m[3]
			u, err := url.Parse(link)
			if err != nil {
				t.Errorf("%s: %s: %v", file, link, err)
				continue
			}
			if u.Scheme != "" || u.Host != "" {
				continue
			}
			checked++
			target := file
			if u.Path != "" {
				target = path.Join(path.Dir(file), u.Path)
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s: target of %s is missing: %v", file, link, err)
			} else if page, err := os.ReadFile(target); u.Fragment != "" && !anchors(string(page))[u.Fragment] {
				t.Errorf("%s: %s: no such heading (%v)", file, link, err)
			}
		}
	}
	if checked < 40 {
		t.Errorf("found only %d links", checked)
	}
}

// matches returns the first group of each match of a pattern in a text.
func matches(text, pattern string) (all []string) {
	for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
		all = append(all, m[1])
	}
	return all
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// docs/operations.md has one row for each alert, with its severity, in the order of alerts.yaml, and no other rows.
func TestAlertsExplained(t *testing.T) {
	var alerts []string
	for _, m := range regexp.MustCompile(`(?s)- alert: (\w+)\n.*?severity: (\w+)`).FindAllStringSubmatch(read(t, "deploy/prometheus/alerts.yaml"), -1) {
		alerts = append(alerts, "`"+m[1]+"` | "+m[2])
	}
	rows := matches(read(t, "docs/operations.md"), "(?m)^\\| (`Sluice\\w+` \\| \\w+) \\| [^|]+ \\| [^|]+ \\|$")
	if len(alerts) == 0 || !slices.Equal(alerts, rows) {
		t.Errorf("alerts.yaml has\n%v, and docs/operations.md\n%v", alerts, rows)
	}
}

// Every test that docs/security.md names exists.
func TestSecurityHeld(t *testing.T) {
	there := map[string]bool{}
	for _, text := range pages(t, ".", "_test.go") {
		for _, name := range matches(text, `(?m)^func (Test\w+)\(`) {
			there[name] = true
		}
	}
	named := matches(read(t, "docs/security.md"), "`(Test\\w+)`")
	for _, name := range named {
		if !there[name] {
			t.Errorf("docs/security.md names %s, which does not exist", name)
		}
	}
	if len(named) < 15 {
		t.Errorf("docs/security.md names only %d tests", len(named))
	}
}

// examples/README.md lists every example, and docs/README.md lists every document.
func TestIndexes(t *testing.T) {
	for pattern, entry := range map[string]string{"examples/*": "\n| [%s](", "docs/*.md": "](%s)"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) < 10 {
			t.Fatalf("%s: %d files (%v)", pattern, len(files), err)
		}
		index := read(t, path.Dir(pattern)+"/README.md")
		for _, file := range files {
			name := filepath.Base(file)
			if name != "README.md" && name != "examples.go" && !strings.Contains(index, fmt.Sprintf(entry, name)) {
				t.Errorf("%s/README.md does not have %s", path.Dir(pattern), name)
			}
		}
	}
}

// Every public package has an example.
func TestPackagesHaveExamples(t *testing.T) {
	public := map[string]bool{} // whether the package in a directory has an example
	for file, text := range pages(t, ".", ".go") {
		dir := path.Dir(file)
		first, _, _ := strings.Cut(dir, "/")
		if slices.Contains([]string{"internal", "cmd", "e2e", "examples", "bench", "deploy", "peers"}, first) || strings.Contains(dir, "internal") || strings.Contains(dir, "testdata") {
			continue
		}
		public[dir] = public[dir] || strings.HasSuffix(file, "_test.go") && strings.Contains(text, "\nfunc Example")
	}
	for dir, has := range public {
		if !has {
			t.Errorf("%s has no example", dir)
		}
	}
	if len(public) < 15 {
		t.Errorf("found only %d public packages", len(public))
	}
}

// section returns the section of a page under the heading with the given anchor.
func section(t *testing.T, file, anchor string) string {
	t.Helper()
	for _, text := range regexp.MustCompile(`(?m)^## `).Split(read(t, file), -1) {
		if anchors("## " + text)[anchor] {
			return text
		}
	}
	t.Errorf("%s has no section %s", file, anchor)
	return ""
}

// The figures in the README equal those in the results that it links to. If this test fails after a new benchmark,
// update the README.
func TestFigures(t *testing.T) {
	page := read(t, "README.md")
	row := regexp.MustCompile(`(?m)^\| \[[^\]]+\]\((bench/[^)#]+)#([^)]+)\), [^|]+ \| \**([\d,.]+)\** \| \**([\d,.]+)\**, ([^|]+) \| ([\d.]+) \|$`)
	rows := row.FindAllStringSubmatch(page, -1)
	for _, m := range rows {
		text, rival := section(t, m[1], m[2]), regexp.QuoteMeta(m[5])
		figure := func(s string) string { return `[^\n]*\| ` + regexp.QuoteMeta(strings.ReplaceAll(s, ",", "")) }
		for _, want := range []string{
			`(?m)^\| \*\*sluice` + figure(m[3]) + ` (±|\|)`,
			`(?m)^\| ` + rival + figure(m[4]) + ` (±|\|)`,
			`(?m)^\| sluice[^|]* / best rival ` + figure(m[6]) + ` \(` + rival,
		} {
			if !regexp.MustCompile(want).MatchString(text) {
				t.Errorf("%s\n%s has no %s", m[0], m[1], want)
			}
		}
	}
	if all := strings.Count(page, "\n| ["); len(rows) != all {
		t.Errorf("read %d of %d rows that begin with a link", len(rows), all)
	}
	sentences := regexp.MustCompile(`\[(\d[\d.]*) [^\]]*\]\((bench/[^)#]+)#([^)]+)\)`).FindAllStringSubmatch(page, -1)
	for _, m := range sentences {
		if !strings.Contains(section(t, m[2], m[3]), "| "+m[1]+" ") {
			t.Errorf("%s: %s does not contain this figure", m[0], m[2])
		}
	}
	if len(rows) == 0 || len(sentences) == 0 {
		t.Errorf("the README has %d rows and %d sentences of figures", len(rows), len(sentences))
	}
}
