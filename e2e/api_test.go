package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// project is a repository in a directory of its own, with scripts of ours.
type project struct {
	t   *testing.T
	dir string
}

func newProject(t *testing.T, scripts ...string) project {
	t.Helper()
	p := project{t, t.TempDir()}
	for _, name := range scripts {
		data, err := os.ReadFile(filepath.Join("..", name))
		if err != nil {
			t.Fatal(err)
		}
		p.write(name, string(data))
		if err := os.Chmod(filepath.Join(p.dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	p.git("init", "--quiet")
	return p
}

func (p project) write(name, content string) {
	p.t.Helper()
	path := filepath.Join(p.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		p.t.Fatal(err)
	}
	overwrite(p.t, path, content)
}

func (p project) git(args ...string) {
	p.t.Helper()
	c := exec.CommandContext(p.t.Context(), "git", append([]string{"-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false", "-c", "tag.gpgsign=false"}, args...)...)
	c.Dir = p.dir
	if out, err := c.CombinedOutput(); err != nil {
		p.t.Fatalf("git %q: %v\n%s", args, err, out)
	}
}

// release commits everything as a version.
func (p project) release(version string) {
	p.t.Helper()
	p.git("add", "--all")
	p.git("commit", "--quiet", "--message", version)
	p.git("tag", version)
}

// runs runs a script, and wants its exit code to be 0 or not, and it to say something.
func (p project) runs(ok bool, says string, script ...string) string {
	p.t.Helper()
	c := exec.CommandContext(p.t.Context(), filepath.Join(p.dir, script[0]), script[1:]...)
	out, err := c.CombinedOutput()
	if (err == nil) != ok || !strings.Contains(string(out), says) {
		p.t.Errorf("%q: %v, and it says %q; want success: %v, and %q", script, err, out, ok, says)
	}
	return string(out)
}

// What programs use stays as the last release had it, or the version and the changelog say so.
func TestAPI(t *testing.T) {
	t.Parallel()
	p := newProject(t, "scripts/api", "scripts/notes")
	const f = "package m\n\nfunc F(int) {}\n"
	p.write("go.mod", "module example.com/m\n\ngo 1.26.0\n")
	p.write("m.go", f)
	p.write("internal/i/i.go", "package i\n\nfunc F(int) {}\n")
	p.write("cmd/m/main.go", "package main\n\nfunc main() {}\n")
	p.write("CHANGELOG.md", "# Changelog\n\n## Unreleased\n\n## 0.0.1\n\n- Breaking: earlier.\n")
	p.runs(true, "with nothing", "scripts/api")
	p.release("v0.1.0")

	p.write("m.go", f+"\nfunc G() {}\n")
	p.write("internal/i/i.go", "package i\n\nfunc F(string) {}\n")
	if err := os.RemoveAll(filepath.Join(p.dir, "cmd")); err != nil {
		t.Fatal(err)
	}
	p.runs(true, "", "scripts/api")
	p.write("m.go", "package m\n\nfunc F(string) {}\n")
	p.runs(false, "F: changed from func(int) to func(string)", "scripts/api")
	p.write("CHANGELOG.md", "# Changelog\n\n## Unreleased\n\n- Breaking: F has a string.\n")
	p.runs(true, "The changelog says so.", "scripts/api")

	p.release("v1.0.0")
	p.runs(true, "", "scripts/api")
	p.write("m.go", "package m\n")
	p.runs(false, "F: removed", "scripts/api")
	p.write("go.mod", "module example.com/m/v2\n\ngo 1.26.0\n")
	p.runs(true, "another major version", "scripts/api")
}
