package testkit

import (
	"bytes"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

// Launch starts a program, waits until it listens at an address, and ends it with the test. If the test fails, it
// logs the output of the program.
func Launch(t testing.TB, c *exec.Cmd, addr string) {
	t.Helper()
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	c.SysProcAttr = DiesWithTest()
	c.WaitDelay = time.Second // for processes that it leaves behind with its output
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { _ = c.Wait(); close(ended) }()
	t.Cleanup(func() {
		_ = c.Process.Signal(syscall.SIGTERM)
		select {
		case <-ended:
		case <-time.After(Patience):
			_ = c.Process.Kill()
			t.Errorf("%s has not ended", c.Path)
			<-ended
		}
		if t.Failed() {
			t.Logf("%s wrote:\n%s", c.Path, &out)
		}
	})
	Await(t, c.Path+" listens", func() bool {
		select {
		case <-ended:
			t.Fatalf("%s has ended:\n%s", c.Path, &out)
		default:
		}
		return Listens(addr)
	})
}
