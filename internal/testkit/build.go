package testkit

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// Sluice builds the program from the source tree and returns its path. If the test runs with the race detector, so
// does the program; a race then ends it with exit code 66. The program stays in bin/test, so that only the first of
// several test binaries links it, and the others wait.
func Sluice() (path string, err error) {
	dir, args := filepath.Join(Root(), "bin", "test", "plain"), []string{"build", "-buildvcs=false"}
	if Race {
		dir, args = filepath.Join(Root(), "bin", "test", "race"), []string{"build", "-buildvcs=false", "-race"}
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return "", err
	}
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o666)
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return "", err
	}
	path = filepath.Join(dir, "sluice")
	build := exec.Command("go", append(args, "-o", path, "./cmd/sluice")...)
	build.Dir = Root()
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build ./cmd/sluice: %v\n%s", err, out)
	}
	return path, nil
}

// BuildModule builds a package of a separate module to bin/test. The module is in a directory below the root of the
// tree, and not in a workspace.
func BuildModule(name, dir, pkg string) (path string, err error) {
	path = filepath.Join(Root(), "bin", "test", name)
	build := exec.Command("go", "build", "-buildvcs=false", "-o", path, pkg)
	build.Dir, build.Env = filepath.Join(Root(), dir), append(os.Environ(), "GOWORK=off")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build of %s: %w\n%s", name, err, out)
	}
	return path, nil
}
