package testkit

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
)

const first, count = 12_000, 20_000

var next atomic.Uint32

// Port returns a free TCP port of the loopback interface. It is reserved until the test ends.
//
// A port that the system assigns is free again when the test closes it, so another process could take it before the
// server listens, or while the server restarts. The ports of this function are below those that Linux, macOS and
// the BSDs assign, and no other test, in this process or another, gets the same port before this test has ended.
func Port(t testing.TB) int {
	t.Helper()
	dir := filepath.Join(os.TempDir(), "sluice-test-ports")
	// Other users may run tests on this machine, too.
	if err := os.Mkdir(dir, 0o777); err == nil {
		err = os.Chmod(dir, 0o777)
		if err != nil {
			t.Fatal(err)
		}
	} else if !errors.Is(err, os.ErrExist) {
		t.Fatal(err)
	}
	for range count {
		// Each process begins at a different port, so that few locks are tried in vain.
		port := first + int((uint32(os.Getpid())*97+next.Add(1))%count)
		if unlock, ok := reserve(t, filepath.Join(dir, strconv.Itoa(port))); ok {
			l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
			if err == nil {
				l.Close()
				t.Cleanup(unlock)
				return port
			}
			unlock()
		}
	}
	t.Fatalf("no port from %d to %d is free", first, first+count-1)
	return 0
}

// Addr returns the address 127.0.0.1 with a port of [Port].
func Addr(t testing.TB) string {
	t.Helper()
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(Port(t)))
}

// reserve locks a file. The file is never removed, because a removed file could be locked twice. The lock ends with
// the process, even if the process is killed.
func reserve(t testing.TB, path string) (unlock func(), ok bool) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDONLY, 0o666)
	if errors.Is(err, os.ErrPermission) {
		return nil, false // the file belongs to another user
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		return nil, false
	}
	return func() { f.Close() }, true
}
