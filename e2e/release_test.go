package e2e

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// A release has the number that its changes ask for, and its notes are those of the changelog.
func TestRelease(t *testing.T) {
	t.Parallel()
	p := newProject(t, "scripts/api", "scripts/notes", "scripts/release")
	p.write("go.mod", "module example.com/m\n\ngo 1.26.0\n")
	p.write("m.go", "package m\n")
	p.write(".gitattributes", "* text=auto\n")
	commit := func() {
		t.Helper()
		p.git("add", "--all")
		p.git("commit", "--quiet", "--message", "a change")
	}
	unreleased := func(line string) {
		t.Helper()
		p.write("CHANGELOG.md", "# Changelog\n\n## Unreleased\n\n"+line+"\n\n## v0.1.0, 2026-01-02\n\n- The first [page](docs/a.md), [by](https://example.com/a).\n\n## v0.1.0-rc, 2026-01-01\n\n- A try.\n")
		commit()
	}

	p.write("CHANGELOG.md", "# Changelog\n\n## Unreleased\n")
	commit()
	p.runs(false, "CHANGELOG.md says nothing of Unreleased", "scripts/release", "v0.1.0")
	unreleased("- A flag.")
	want := "- The first [page](https://github.com/sluicehq/sluice/blob/v0.1.0/docs/a.md), [by](https://example.com/a).\n"
	if got := p.runs(true, "", "scripts/notes", "v0.1.0"); got != want {
		t.Errorf("notes: %q, want %q", got, want)
	}
	p.runs(false, "says nothing of v0.1.1", "scripts/notes", "v0.1.1")
	p.git("tag", "v0.1.0")

	for _, bad := range []string{"", "0.1.1", "v0.1", "v0.1.01", "v0.1.1-rc", "v0.1.1\nv0.1.2"} {
		p.runs(false, "is no version", "scripts/release", bad)
	}
	for _, bad := range []string{"v0.1.0", "v0.1.2", "v0.3.0", "v0.2.1", "v2.0.0"} {
		p.runs(false, "the next one is v0.1.1, v0.2.0 or v1.0.0", "scripts/release", bad)
	}
	p.write("m.go", "package m\n\nfunc F() {}\n")
	p.runs(false, "not committed", "scripts/release", "v0.1.1")
	commit()
	p.runs(true, "git tag v0.1.1", "scripts/release", "v0.1.1")
	changelog, err := os.ReadFile(filepath.Join(p.dir, "CHANGELOG.md"))
	if err != nil {
		t.Fatal(err)
	}
	if !regexp.MustCompile(`## Unreleased\n\n## v0\.1\.1, \d{4}-\d\d-\d\d\n\n- A flag\.\n\n## v0\.1\.0,`).Match(changelog) {
		t.Errorf("the changelog is\n%s", changelog)
	}
	if got := p.runs(true, "", "scripts/notes", "v0.1.1"); got != "- A flag.\n" {
		t.Errorf("notes: %q", got)
	}
	commit()
	p.git("tag", "v0.1.1")
	p.runs(false, "CHANGELOG.md says nothing of Unreleased", "scripts/release", "v0.1.2")

	unreleased("- Breaking: no flag.")
	p.runs(false, "v0.2.0, or v1.0.0", "scripts/release", "v0.1.2")
	p.runs(true, "", "scripts/release", "v0.2.0")
	commit()
	p.git("tag", "v1.2.3")
	unreleased("- Breaking: another flag.")
	p.runs(false, "only a major version", "scripts/release", "v1.3.0")
	p.runs(false, "has to end in /v2", "scripts/release", "v2.0.0")
	p.write("go.mod", "module example.com/m/v2\n\ngo 1.26.0\n")
	commit()
	p.runs(true, "another major version", "scripts/release", "v2.0.0")
}
