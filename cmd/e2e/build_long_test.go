//go:build long

package e2e

import (
	"bytes"
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// mostBytes bounds the binary of "make build".
const mostBytes = 50_000_000

// copyTree puts a copy of the sources into a directory.
func copyTree(t *testing.T, dir string) {
	t.Helper()
	list, err := exec.CommandContext(t.Context(), "git", "-C", "../..", "ls-files", "-z", "--cached", "--others", "--exclude-standard").Output()
	if err != nil {
		t.Skipf("NOT BUILT: git does not say what the sources are: %v", err)
	}
	for _, name := range strings.Split(strings.TrimSuffix(string(list), "\x00"), "\x00") {
		from := filepath.Join("..", "..", name)
		about, err := os.Stat(from)
		if os.IsNotExist(err) {
			continue // deleted, and not yet in a commit
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		to := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			t.Fatal(err)
		}
		overwrite(t, to, string(data))
		if err := os.Chmod(to, about.Mode()); err != nil {
			t.Fatal(err)
		}
	}
}

// made is what "make build" makes of a copy of the sources in a directory of its own.
func made(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	copyTree(t, dir)
	c := exec.CommandContext(t.Context(), "make", "-C", dir, "build", "VERSION=v1.2.3", "COMMIT=0123456789abcdef")
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("make build: %v\n%s", err, out)
	}
	return filepath.Join(dir, "bin", "sluice")
}

// What "make build" makes needs no library, says what it is, and is the same wherever it is made.
func TestLongBuild(t *testing.T) {
	t.Parallel()
	path := made(t)
	binary, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d bytes", len(binary))
	if len(binary) >= mostBytes {
		t.Errorf("the binary has %d bytes, and is to have less than %d", len(binary), mostBytes)
	}
	out, err := exec.CommandContext(t.Context(), path, "version").Output()
	if want := "sluice v1.2.3 commit 0123456789ab "; err != nil || !strings.HasPrefix(string(out), want) {
		t.Errorf("%q, %v; want %s…", out, err, want)
	}
	if runtime.GOOS == "linux" {
		f, err := elf.NewFile(bytes.NewReader(binary))
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range f.Progs {
			if p.Type == elf.PT_INTERP || p.Type == elf.PT_DYNAMIC {
				t.Errorf("it is not static: it has a segment %v", p.Type)
			}
		}
	}
	again, err := os.ReadFile(made(t))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(binary, again) {
		t.Error("two directories make two binaries of the same sources")
	}
}
