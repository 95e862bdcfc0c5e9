// Package postgrestest starts real PostgreSQL servers for tests, on free ports of the loopback
// interface, in directories that go with the test, and ends them after it.
package postgrestest

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/sluicehq/sluice/internal/testkit"
)

// patience is how long a test waits for what a server does by itself.
const patience = 5 * time.Minute

// Server is a server process. Its only user is "sluice", and has no password.
type Server struct {
	Addr string // 127.0.0.1:PORT
	Dir  string

	t         testing.TB
	bin       string
	as        *syscall.SysProcAttr
	cmd       *exec.Cmd
	down      chan struct{} // closed when the process has ended
	databases atomic.Int32
}

// Start starts a server that keeps what it has committed through [Server.Kill], and not through
// the loss of power.
func Start(t testing.TB) *Server {
	t.Helper()
	s := &Server{t: t, bin: binaries(t), as: account(t)}
	dir, err := os.MkdirTemp("", "postgrestest")
	if err != nil {
		t.Fatal(err)
	}
	s.Dir, s.Addr = dir, testkit.Addr(t)
	t.Cleanup(func() {
		s.Kill()
		os.RemoveAll(dir)
	})
	if c := s.as.Credential; c != nil {
		if err := os.Chown(dir, int(c.Uid), int(c.Gid)); err != nil {
			t.Fatal(err)
		}
	}
	s.run("initdb", "--no-sync", "-A", "trust", "-U", "sluice", "-E", "UTF8", "--locale", "C", "-D", s.data())
	s.start()
	return s
}

// Database makes a database, and returns its URL.
func (s *Server) Database() string {
	s.t.Helper()
	host, port, _ := net.SplitHostPort(s.Addr)
	name := fmt.Sprintf("test%d", s.databases.Add(1))
	s.run("createdb", "-h", host, "-p", port, "-U", "sluice", name)
	return s.URL(name)
}

// URL returns that of a database where the server is now.
func (s *Server) URL(name string) string {
	return "postgres://sluice@" + s.Addr + "/" + name + "?sslmode=disable"
}

// Kill ends the server at once, as kill -9 does, and waits for its end. What it has started ends
// by itself.
func (s *Server) Kill() {
	if s.cmd != nil && s.cmd.Process != nil {
		_ = s.cmd.Process.Kill()
		<-s.down
	}
}

// Restart ends the server and starts it again, on the same port.
func (s *Server) Restart() {
	s.t.Helper()
	s.Kill()
	s.start()
}

// Move is Restart with another address, which is free.
func (s *Server) Move() {
	s.t.Helper()
	s.MoveTo(testkit.Addr(s.t))
}

// MoveTo is Restart with an address.
func (s *Server) MoveTo(address string) {
	s.t.Helper()
	s.Addr = address
	s.Restart()
}

func (s *Server) data() string { return filepath.Join(s.Dir, "data") }

// binaries returns the directory of the programs, which Debian keeps out of the path.
func binaries(t testing.TB) string {
	t.Helper()
	if path, err := exec.LookPath("initdb"); err == nil {
		if path, err = filepath.EvalSymlinks(path); err == nil {
			return filepath.Dir(path)
		}
	}
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if len(found) == 0 {
		testkit.Missing(t, "PostgreSQL")
	}
	return filepath.Dir(found[len(found)-1])
}

// account is whom the server runs as: it refuses root. It ends with the test binary.
func account(t testing.TB) *syscall.SysProcAttr {
	t.Helper()
	as := &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if os.Geteuid() != 0 {
		return as
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		t.Fatal(err)
	}
	uid, _ := strconv.ParseUint(u.Uid, 10, 32) // they are numbers here
	gid, _ := strconv.ParseUint(u.Gid, 10, 32)
	as.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	return as
}

func (s *Server) command(program string, args ...string) *exec.Cmd {
	c := exec.Command(filepath.Join(s.bin, program), args...)
	c.Dir, c.SysProcAttr = s.Dir, s.as
	return c
}

func (s *Server) run(program string, args ...string) {
	s.t.Helper()
	if out, err := s.command(program, args...).CombinedOutput(); err != nil {
		s.t.Fatalf("%s: %v\n%s", program, err, out)
	}
}

// start starts the server, again and again while what is left of one that was killed holds its
// memory.
func (s *Server) start() {
	s.t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		if s.try() {
			return
		}
		if time.Now().After(end) {
			s.t.Fatalf("postgres does not start:\n%s", s.log())
		}
	}
}

// try reports whether the server has started, and not ended.
func (s *Server) try() bool {
	s.t.Helper()
	log, err := os.OpenFile(filepath.Join(s.Dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		s.t.Fatal(err)
	}
	defer log.Close()
	host, port, _ := net.SplitHostPort(s.Addr)
	s.cmd = s.command("postgres", "-D", s.data(), "-h", host, "-p", port, "-k", s.Dir,
		"-c", "fsync=off", "-c", "max_connections=200", "-c", "autovacuum=off")
	s.cmd.Stdout, s.cmd.Stderr = log, log
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.down = make(chan struct{})
	go func(cmd *exec.Cmd, down chan struct{}) {
		_ = cmd.Wait()
		close(down)
	}(s.cmd, s.down)
	var said []byte
	for end := time.Now().Add(patience); time.Now().Before(end); {
		if said, err = s.command("psql", "-h", host, "-p", port, "-U", "sluice", "-d", "postgres", "-c", "SELECT 1").CombinedOutput(); err == nil {
			return true
		}
		select {
		case <-s.down:
			return false
		case <-time.After(10 * time.Millisecond):
		}
	}
	s.t.Fatalf("postgres does not answer: %v: %s\n%s", err, said, s.log())
	return false
}

func (s *Server) log() string {
	log, _ := os.ReadFile(filepath.Join(s.Dir, "log"))
	if lines := strings.Split(string(log), "\n"); len(lines) > 50 {
		return strings.Join(lines[len(lines)-50:], "\n")
	}
	return string(log)
}
