//go:build long

package e2e

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The scripts in testdata/script/long are slower, and need the caches of Go and an author for git.
func TestLongScripts(t *testing.T) {
	scripts, err := filepath.Abs("../../scripts")
	if err != nil {
		t.Fatal(err)
	}
	caches, err := exec.Command("go", "env", "GOCACHE", "GOMODCACHE").Output()
	if err != nil {
		t.Fatal(err)
	}
	build, modules, _ := strings.Cut(strings.TrimSpace(string(caches)), "\n")
	runScripts(t, "testdata/script/long", "SCRIPTS="+scripts, "ROOT="+filepath.Dir(scripts), "GOCACHE="+build, "GOMODCACHE="+modules,
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.com")
}
