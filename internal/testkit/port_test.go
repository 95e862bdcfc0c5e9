package testkit

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// Two processes that each take thousands of ports at the same time never get the same port.
func TestPortsAreNotShared(t *testing.T) {
	const each = 2000
	if os.Getenv("TESTKIT_PORTS_CHILD") != "" {
		var out strings.Builder
		for range each {
			out.WriteString(Addr(t) + "\n")
		}
		os.Stdout.WriteString(out.String())
		// The ports are held until the parent has taken its own.
		_, _ = os.Stdin.Read(make([]byte, 1))
		os.Exit(0)
	}
	child := exec.Command(os.Args[0], "-test.run=TestPortsAreNotShared")
	child.Env = append(os.Environ(), "TESTKIT_PORTS_CHILD=1")
	hold, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	taken := map[string]bool{}
	for range each {
		addr := Addr(t)
		if taken[addr] {
			t.Fatalf("one process got %s twice", addr)
		}
		taken[addr] = true
	}
	var theirs []byte
	for strings.Count(string(theirs), "\n") < each {
		chunk := make([]byte, 64<<10)
		n, err := stdout.Read(chunk)
		if theirs = append(theirs, chunk[:n]...); err != nil {
			t.Fatalf("%v after %d ports", err, strings.Count(string(theirs), "\n"))
		}
	}
	for _, addr := range strings.Fields(string(theirs)) {
		if taken[addr] {
			t.Errorf("both processes got %s", addr)
		}
	}
	hold.Close()
	if err := child.Wait(); err != nil {
		t.Fatal(err)
	}
}
