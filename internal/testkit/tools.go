// Package testkit has helpers for the tests of all packages, for example free ports, and the programs that tests
// run. It imports only the standard library, because the tests of the library use it.
package testkit

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
)

// Program returns the path of the first of the named programs that this machine has. It looks in the PATH, in
// /usr/sbin, which is often not in the PATH, and in bin/tools of the tree. If no program is found, the test is
// skipped: see [Missing].
func Program(t testing.TB, names ...string) string {
	t.Helper()
	for _, name := range names {
		if path, ok := Find(name); ok {
			return path
		}
	}
	Missing(t, names[0])
	return ""
}

// Find returns the path of one program like [Program], but returns false if it is not found.
func Find(name string) (path string, ok bool) {
	if path, err := exec.LookPath(name); err == nil {
		return path, true
	}
	for _, dir := range []string{"/usr/sbin", filepath.Join(root(), "bin", "tools")} {
		if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return path, true
		}
	}
	return "", false
}

// Missing skips a test that needs something that "make tools" installs. If TEST_TOOLS is "all", as in CI, the test
// fails instead.
func Missing(t testing.TB, what string) {
	t.Helper()
	treeRead()
	if os.Getenv("TEST_TOOLS") == "all" {
		t.Fatalf("%s is missing: \"make tools\" installs it", what)
	}
	t.Skipf("%s is missing: \"make tools\" installs it", what)
}

// Root returns the root directory of the tree. A test that calls it runs again after each change of the tree.
func Root() string {
	treeRead()
	return root()
}

// treeRead makes the result of a test depend on TEST_TREE, which the Makefile sets to a hash of the tree and of the
// missing programs: Go reuses a test's result unless files of its own module, or variables that it has read, change.
func treeRead() { os.Getenv("TEST_TREE") }

func root() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Dir(filepath.Dir(filepath.Dir(file)))
}
