package testkit

import (
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Patience is how long a test waits for a condition before it fails: long enough for any machine under load.
const Patience = 5 * time.Minute

// Await calls holds until it returns true, with pauses between the calls.
func Await(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for begin := time.Now(); time.Since(begin) < Patience; time.Sleep(pause(time.Since(begin))) {
		if holds() {
			return
		}
	}
	t.Fatalf("gave up after %v waiting until %s", Patience, what)
}

// pause returns the time to the next try: a sixteenth of the time waited, at least 2 ms and at most 100 ms, so that
// long waits take little processor time from other tests.
func pause(waited time.Duration) time.Duration {
	return min(max(waited/16, 2*time.Millisecond), 100*time.Millisecond)
}

// Listens reports whether a TCP server listens on an address.
func Listens(addr string) bool {
	c, err := net.Dial("tcp", addr)
	if err == nil {
		c.Close()
	}
	return err == nil
}

// File writes a file into a new temporary directory and returns its path.
func File(t testing.TB, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}
