// Package postgrestest runs real PostgreSQL servers for tests, on free ports of the loopback interface. All tests
// of a process share the server of [Database], which ends with the process. [Start] starts a server for a test that
// kills or moves it; this server ends with the test.
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
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/sluicehq/sluice/internal/testkit"
)

// patience is how long a test waits for a server.
const patience = testkit.Patience

// Server is a server process. Its only user is "sluice", without a password.
type Server struct {
	Addr string // 127.0.0.1:PORT
	Dir  string

	t     testing.TB
	bin   string
	as    *syscall.SysProcAttr
	cmd   *exec.Cmd
	ended func() bool // whether the process has ended
}

// databases numbers the databases of all servers.
var databases atomic.Int32

var shared struct {
	sync.Mutex
	server *Server
}

// Database returns the URL of an empty database in the server that all tests of the process share.
func Database(t testing.TB) string {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	if shared.server == nil {
		s := prepare(testkit.Lasting(t))
		s.startWith(func(c *exec.Cmd) (func() bool, error) { return testkit.StartGuarded(c, "QUIT", s.Dir) })
		shared.server = s
	}
	view := *shared.server
	view.t = t
	return view.Database()
}

// Start starts a server. Committed data survives [Server.Kill], but would not survive a loss of power.
func Start(t testing.TB) *Server {
	t.Helper()
	s := prepare(t)
	t.Cleanup(func() {
		s.Kill()
		os.RemoveAll(s.Dir)
	})
	s.start()
	return s
}

// prepare returns a server that has its files, but has not been started.
func prepare(t testing.TB) *Server {
	t.Helper()
	s := &Server{t: t, bin: binaries(t), as: account(t)}
	dir, err := os.MkdirTemp("", "postgrestest")
	if err != nil {
		t.Fatal(err)
	}
	s.Dir, s.Addr = dir, testkit.Addr(t)
	if c := s.as.Credential; c != nil {
		if err := os.Chown(dir, int(c.Uid), int(c.Gid)); err != nil {
			t.Fatal(err)
		}
	}
	s.run("initdb", "--no-sync", "-A", "trust", "-U", "sluice", "-E", "UTF8", "--locale", "C", "-D", s.data())
	return s
}

// Database makes a database, and returns its URL.
func (s *Server) Database() string {
	s.t.Helper()
	host, port, _ := net.SplitHostPort(s.Addr)
	name := fmt.Sprintf("test%d", databases.Add(1))
	s.run("createdb", "-h", host, "-p", port, "-U", "sluice", name)
	return s.URL(name)
}

// URL returns the URL of a database at the present address of the server.
func (s *Server) URL(name string) string {
	return "postgres://sluice@" + s.Addr + "/" + name + "?sslmode=disable"
}

// Kill ends the server at once, like kill -9, and waits for its end. The processes that the server has started end
// by themselves.
func (s *Server) Kill() {
	if s.cmd != nil && s.cmd.Process != nil {
		_ = s.cmd.Process.Kill()
		for !s.ended() {
			time.Sleep(time.Millisecond)
		}
	}
}

// Restart ends the server and starts it again, on the same port.
func (s *Server) Restart() {
	s.t.Helper()
	s.Kill()
	s.start()
}

// Move ends the server, and starts it again at a free address.
func (s *Server) Move() {
	s.t.Helper()
	s.MoveTo(testkit.Addr(s.t))
}

// MoveTo ends the server, and starts it again at the given address.
func (s *Server) MoveTo(address string) {
	s.t.Helper()
	s.Addr = address
	s.Restart()
}

func (s *Server) data() string { return filepath.Join(s.Dir, "data") }

// binaries returns the directory of the programs. On Debian, it is not in the PATH.
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

// account returns process attributes with which the server ends with the test binary. If the test runs as root, the
// server runs as postgres, because it refuses to run as root.
func account(t testing.TB) *syscall.SysProcAttr {
	t.Helper()
	as := testkit.DiesWithTest()
	if os.Geteuid() != 0 {
		return as
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		t.Fatal(err)
	}
	uid, _ := strconv.ParseUint(u.Uid, 10, 32) // user IDs are numbers on Unix
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

// start starts the server.
func (s *Server) start() {
	s.t.Helper()
	s.startWith(func(c *exec.Cmd) (func() bool, error) {
		if err := c.Start(); err != nil {
			return nil, err
		}
		down := make(chan struct{})
		go func() {
			_ = c.Wait()
			close(down)
		}()
		return func() bool {
			select {
			case <-down:
				return true
			default:
				return false
			}
		}, nil
	})
}

// startWith starts the server with a function. It repeats this while processes of a killed server still hold its
// shared memory.
func (s *Server) startWith(start func(*exec.Cmd) (ended func() bool, err error)) {
	s.t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		if s.try(start) {
			return
		}
		if time.Now().After(end) {
			s.t.Fatalf("postgres does not start:\n%s", s.log())
		}
	}
}

// try starts the server, and reports whether it runs. It returns false if the server has ended.
func (s *Server) try(start func(*exec.Cmd) (func() bool, error)) bool {
	s.t.Helper()
	log, err := os.OpenFile(filepath.Join(s.Dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		s.t.Fatal(err)
	}
	defer log.Close()
	host, port, _ := net.SplitHostPort(s.Addr)
	s.cmd = s.command("postgres", "-D", s.data(), "-h", host, "-p", port, "-k", s.Dir,
		"-c", "fsync=off", "-c", "max_connections=400", "-c", "autovacuum=off")
	s.cmd.Stdout, s.cmd.Stderr = log, log
	if s.ended, err = start(s.cmd); err != nil {
		s.t.Fatal(err)
	}
	var output []byte
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if output, err = s.command("psql", "-h", host, "-p", port, "-U", "sluice", "-d", "postgres", "-c", "SELECT 1").CombinedOutput(); err == nil {
			return true
		}
		if s.ended() {
			return false
		}
	}
	s.t.Fatalf("postgres does not answer: %v: %s\n%s", err, output, s.log())
	return false
}

func (s *Server) log() string {
	log, _ := os.ReadFile(filepath.Join(s.Dir, "log"))
	if lines := strings.Split(string(log), "\n"); len(lines) > 50 {
		return strings.Join(lines[len(lines)-50:], "\n")
	}
	return string(log)
}
