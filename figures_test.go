package sluice_test

import (
	"regexp"
	"strings"
	"testing"
)

// section is the part of a page whose heading has the anchor.
func section(t *testing.T, file, anchor string) string {
	t.Helper()
	for _, text := range regexp.MustCompile(`(?m)^## `).Split(read(t, file), -1) {
		if anchors("## " + text)[anchor] {
			return text
		}
	}
	t.Errorf("%s has no %s", file, anchor)
	return ""
}

// What the README says in figures is what the results say that it links to. Where this fails, the
// results are newer, and the README has to say what they say.
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
		t.Errorf("%d of %d rows that begin with a link are read", len(rows), all)
	}
	sentences := regexp.MustCompile(`\[(\d[\d.]*) [^\]]*\]\((bench/[^)#]+)#([^)]+)\)`).FindAllStringSubmatch(page, -1)
	for _, m := range sentences {
		if !strings.Contains(section(t, m[2], m[3]), "| "+m[1]+" ") {
			t.Errorf("%s: %s does not have it", m[0], m[2])
		}
	}
	if len(rows) == 0 || len(sentences) == 0 {
		t.Errorf("the README has %d rows and %d sentences of figures", len(rows), len(sentences))
	}
}
