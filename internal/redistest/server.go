// Package redistest runs real Redis or Valkey servers for tests, on free ports of the loopback interface. All tests
// of a process share the server of [Shared] and the cluster of [SharedCluster], which end with the process. Tests
// are isolated by database number and by key prefix. [Start] and [StartCluster] are for tests that kill, freeze or
// configure a server, or count its commands. Their servers end with the test.
package redistest

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluicehq/sluice/internal/testkit"
)

// Binaries returns the servers that are installed: redis-server, which tests need, and valkey-server. Tests start
// the first of them unless they choose another. The environment variable SLUICE_REDIS_SERVER names another program
// to test with.
func Binaries(t testing.TB) []string {
	t.Helper()
	if named := os.Getenv("SLUICE_REDIS_SERVER"); named != "" {
		return []string{named}
	}
	testkit.Program(t, "redis-server")
	all := []string{"redis-server"}
	if _, err := exec.LookPath("valkey-server"); err == nil {
		all = append(all, "valkey-server")
	}
	return all
}

// Server is a server process. Its fields are set by Start.
type Server struct {
	Binary string
	Host   string // 127.0.0.1
	Port   int
	Addr   string // host:port
	// TLSAddr is the host:port for TLS, or "" without TLS.
	TLSAddr string
	Socket  string // the path of the Unix socket
	Dir     string
	// DB is the number of the database that URL, Do and Try name.
	DB int

	t      testing.TB
	args   []string
	env    []string // the environment, in addition to the environment of the test
	cmd    *exec.Cmd
	down   chan struct{} // closed when the process has ended
	shared bool
}

// Start starts a redis-server without persistence. The parameter settings has further command-line arguments, such
// as "--maxmemory", "1mb".
func Start(t testing.TB, settings ...string) *Server {
	t.Helper()
	return StartBinary(t, Binaries(t)[0], settings...)
}

// StartBinary is like Start, but starts one of [Binaries].
func StartBinary(t testing.TB, binary string, settings ...string) *Server {
	t.Helper()
	s := prepare(t, binary, settings...)
	s.start()
	return s
}

// prepare returns a server that has not been started.
func prepare(t testing.TB, binary string, settings ...string) *Server {
	t.Helper()
	s := newServer(t, binary)
	s.args = append([]string{
		"--port", strconv.Itoa(s.Port), "--bind", s.Host, "--dir", s.Dir, "--unixsocket", s.Socket,
		"--save", "", "--appendonly", "no", "--daemonize", "no",
	}, settings...)
	if i := slices.Index(settings, "--tls-port"); i >= 0 {
		s.TLSAddr = net.JoinHostPort(s.Host, settings[i+1])
	}
	return s
}

// write writes a file into the server's directory and returns its path.
func (s *Server) write(name, text string) string {
	s.t.Helper()
	path := filepath.Join(s.Dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
	return path
}

func newServer(t testing.TB, binary string) *Server {
	t.Helper()
	// The path of a Unix socket must be short, and t.TempDir is not.
	dir, err := os.MkdirTemp("", "redistest")
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{Binary: binary, Host: "127.0.0.1", Port: testkit.Port(t), Dir: dir, Socket: filepath.Join(dir, "sock"), t: t}
	s.Addr = net.JoinHostPort(s.Host, strconv.Itoa(s.Port))
	t.Cleanup(func() {
		s.Kill()
		os.RemoveAll(dir)
	})
	return s
}

// start starts a server that ends with the test.
func (s *Server) start() {
	s.t.Helper()
	s.startWith(func(c *exec.Cmd) (func() bool, error) {
		// If the test binary is killed, its servers end, too.
		c.SysProcAttr = testkit.DiesWithTest()
		if err := c.Start(); err != nil {
			return nil, err
		}
		down := make(chan struct{})
		go func() {
			_ = c.Wait()
			close(down)
		}()
		s.down = down
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

// startWith starts the server with a function, and waits until it listens.
func (s *Server) startWith(start func(*exec.Cmd) (ended func() bool, err error)) {
	s.t.Helper()
	log, err := os.OpenFile(filepath.Join(s.Dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		s.t.Fatal(err)
	}
	defer log.Close()
	s.cmd = exec.Command(s.Binary, s.args...)
	s.cmd.Stdout, s.cmd.Stderr = log, log
	s.cmd.Env = append(os.Environ(), s.env...)
	ended, err := start(s.cmd)
	if err != nil {
		s.t.Fatal(err)
	}
	s.waitUp(ended)
}

// waitUp waits until the server listens.
func (s *Server) waitUp(ended func() bool) {
	s.t.Helper()
	testkit.Await(s.t, "the server listens", func() bool {
		if ended() {
			s.t.Fatalf("%s has ended:\n%s", s.Binary, s.Log())
		}
		conn, err := net.Dial("unix", s.Socket)
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
}

// Log returns the log of the server.
func (s *Server) Log() string {
	log, _ := os.ReadFile(filepath.Join(s.Dir, "log"))
	return string(log)
}

// Kill ends the server at once, like kill -9, and waits for its end.
func (s *Server) Kill() {
	s.t.Helper()
	s.notShared("kill")
	if s.cmd != nil && s.cmd.Process != nil {
		_ = s.cmd.Process.Kill()
		<-s.down
	}
}

// Restart ends the server and starts it again, on the same ports, and with the given settings in addition to the
// previous ones.
func (s *Server) Restart(settings ...string) {
	s.t.Helper()
	s.Kill()
	s.args = append(s.args, settings...)
	_ = os.Remove(s.Socket)
	s.start()
}

// Freeze stops the process by SIGSTOP: its connections stay open, but it answers nothing.
func (s *Server) Freeze() { s.signal(syscall.SIGSTOP) }

// Thaw lets a frozen process go on.
func (s *Server) Thaw() { s.signal(syscall.SIGCONT) }

func (s *Server) signal(sig syscall.Signal) {
	s.t.Helper()
	s.notShared("signal")
	if err := s.cmd.Process.Signal(sig); err != nil {
		s.t.Fatal(err)
	}
}

// Do sends a command and returns its reply. The elements of an array are on separate lines. An error fails the
// test.
func (s *Server) Do(args ...string) string {
	s.t.Helper()
	reply, err := s.Try(args...)
	if err != nil {
		s.t.Fatalf("%s: %v", strings.Join(args, " "), err)
	}
	return reply
}

// Try is like Do, but returns the error.
func (s *Server) Try(args ...string) (string, error) {
	s.t.Helper()
	if s.shared && disturbs(args) {
		s.notShared(strings.Join(args, " ") + " on")
	}
	conn, err := net.DialTimeout("unix", s.Socket, testkit.Patience)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(testkit.Patience))
	if s.DB != 0 {
		if _, err := roundTrip(conn, []string{"SELECT", strconv.Itoa(s.DB)}); err != nil {
			return "", err
		}
	}
	return roundTrip(conn, args)
}

// Info returns a field of INFO, or "".
func (s *Server) Info(field string) string {
	s.t.Helper()
	for line := range strings.Lines(s.Do("INFO", "all")) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), field+":"); ok {
			return value
		}
	}
	return ""
}

// URL returns the store URL of the server.
func (s *Server) URL() string {
	if s.DB == 0 {
		return "redis://" + s.Addr
	}
	return fmt.Sprintf("redis://%s/%d", s.Addr, s.DB)
}
