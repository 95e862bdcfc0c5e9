package redistest

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/sluicehq/sluice/internal/testkit"
)

// Tests of one process share a server, but do not see each other's keys.
func TestShared(t *testing.T) {
	a, b := Shared(t), Shared(t)
	a.Do("SET", "k", "1")
	if a.Addr != b.Addr || a.URL() == b.URL() || b.Do("GET", "k") != "" || a.Do("GET", "k") != "1" {
		t.Errorf("%s has %q, %s has %q", a.URL(), a.Do("GET", "k"), b.URL(), b.Do("GET", "k"))
	}
	var reused *Server
	t.Run("first", func(t *testing.T) {
		reused = Shared(t)
		reused.Do("SET", "k", "1")
	})
	if c := Shared(t); c.DB != reused.DB || c.Do("DBSIZE") != "0" {
		t.Errorf("database %d after %d, with %s keys", c.DB, reused.DB, c.Do("DBSIZE"))
	}
	if x, y := SharedCluster(t), SharedCluster(t); x.Nodes[0].Addr != y.Nodes[0].Addr || x.URL() == y.URL() {
		t.Errorf("clusters %s and %s", x.URL(), y.URL())
	}
}

// The directory of a shared server is removed when the process ends, even if the process is killed.
func TestSharedEndsWithTheProcess(t *testing.T) {
	t.Parallel()
	if os.Getenv("REDISTEST_CHILD") != "" {
		s := Shared(t)
		os.Stdout.WriteString(s.Dir + " " + s.Addr + "\n")
		select {}
	}
	for _, end := range []func(*exec.Cmd) error{
		func(c *exec.Cmd) error { return c.Process.Kill() },
		func(c *exec.Cmd) error { return c.Process.Signal(os.Interrupt) },
	} {
		child := exec.Command(os.Args[0], "-test.run=^TestSharedEndsWithTheProcess$")
		child.Env = append(os.Environ(), "REDISTEST_CHILD=1")
		out, err := child.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		line := make([]byte, 1000)
		n, err := out.Read(line)
		if err != nil {
			t.Fatal(err)
		}
		dir, _, _ := strings.Cut(string(line[:n]), " ")
		if _, err := os.Stat(dir); err != nil {
			t.Fatalf("%q: %v", line[:n], err)
		}
		if err := end(child); err != nil {
			t.Fatal(err)
		}
		_ = child.Wait()
		testkit.Await(t, dir+" is gone", func() bool {
			_, err := os.Stat(dir)
			return os.IsNotExist(err)
		})
	}
}
