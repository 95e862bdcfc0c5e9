package testkit

import (
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
)

// A long line does not end the reading of a gateway's log.
func TestRecordIsLong(t *testing.T) {
	t.Parallel()
	g := &Gateway{TB: t, ended: make(chan struct{})}
	g.grown = sync.NewCond(&g.mu)
	g.read(strings.NewReader(`{"msg":"` + strings.Repeat("x", 100_000) + "\"}\nno JSON\n{\"msg\":\"serves\"}"))
	if all := g.Records(); len(all) != 2 || len(all[0].Msg) != 100_000 || all[1].Msg != "serves" {
		t.Errorf("%d records: %.300v", len(all), all)
	}
}

// Launch does not wait for a process that its program has left running and that has inherited the program's output.
func TestLaunchLeavesBehind(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	held, hold, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer hold.Close() // ends the process
	begun, begins, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Run("program", func(t *testing.T) {
		c := exec.Command("sh", "-c", "cat <&3 & echo >&4; wait")
		c.ExtraFiles = []*os.File{held, begins}
		Launch(t, c, l.Addr().String())
		if _, err := begun.Read(make([]byte, 1)); err != nil {
			t.Error(err)
		}
	})
}
