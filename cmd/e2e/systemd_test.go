package e2e

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/sluicehq/sluice/internal/testkit"
)

// asSystemd runs a command with the LISTEN_PID that systemd would set: the ID of the command's own process.
var asSystemd = []string{"sh", "-c", `LISTEN_PID=$$ exec "$@"`, "sh"}

// handedOver returns a listening socket, as a file that can be passed to a process, and its address.
func handedOver(t *testing.T) (file *os.File, addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if file, err = l.(*net.TCPListener).File(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	return file, l.Addr().String()
}

// states receives the messages about its state that a service sends to systemd.
type states struct {
	*net.UnixConn
	t    *testing.T
	path string
}

func listenForStates(t *testing.T) states {
	t.Helper()
	path := filepath.Join(t.TempDir(), "notify")
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return states{c, t, path}
}

// next returns the next message.
func (s states) next() string {
	s.t.Helper()
	buffer := make([]byte, 1024)
	if err := s.SetReadDeadline(time.Now().Add(patience)); err != nil {
		s.t.Fatal(err)
	}
	n, err := s.Read(buffer)
	if err != nil {
		s.t.Fatal(err)
	}
	return string(buffer[:n])
}

func (s states) want(state string) {
	s.t.Helper()
	if got := s.next(); got != state {
		s.t.Fatalf("the gateway reports %q, want %q", got, state)
	}
}

// With a socket of systemd, the gateway reloads and restarts under load, and no request is refused. The gateway reports
// to systemd when a reload starts and when it is done. By then the policy of the file is in force, if it is valid.
func TestSystemd(t *testing.T) {
	t.Parallel()
	file, addr := handedOver(t)
	states, policy := listenForStates(t), testkit.File(t, "policy.yaml", limited(5_000_000))
	start := func() *gateway {
		t.Helper()
		g := testkit.StartWith(t, func(c *exec.Cmd) {
			c.ExtraFiles = []*os.File{file}
			c.Env = append(c.Env, "LISTEN_FDS=1", "NOTIFY_SOCKET="+states.path)
		}, asSystemd, "--upstream", "sample", "--policy", policy, "--proxy", addr)
		states.want("READY=1")
		if g.Addr != addr {
			t.Errorf("the gateway serves at %s, want the socket's %s", g.Addr, addr)
		}
		return g
	}

	g := start()
	ctx, stop := context.WithCancel(t.Context())
	var served atomic.Int64
	var clients sync.WaitGroup
	for range 4 {
		clients.Go(func() {
			client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
			for ctx.Err() == nil {
				resp, err := client.Get("http://" + addr + "/health")
				if err != nil || resp.StatusCode != http.StatusOK {
					t.Errorf("a request was refused: %v, %v", resp, err)
					return
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
				served.Add(1)
			}
		})
	}
	defer clients.Wait()
	defer stop()
	defer file.Close() // otherwise, clients would wait in its backlog if the gateway is gone
	last := 0
	for _, text := range []string{limited(7_000_000), broken, limited(7_000_000)} {
		overwrite(t, policy, text)
		g.Signal(syscall.SIGHUP)
		state, at := states.next(), 0
		if _, err := fmt.Sscanf(state, "RELOADING=1\nMONOTONIC_USEC=%d", &at); err != nil || at <= last {
			t.Errorf("after %d µs, the start of a reload is reported as %q: %v", last, state, err)
		}
		last = at
		states.want("READY=1")
		wantInForce(t, g, 7_000_000)
	}
	g.Signal(syscall.SIGTERM)
	states.want("STOPPING=1")
	if code := g.Wait(); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	// No gateway runs now, but clients can connect.
	early, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(early, "GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
	start()
	if got := readAll(t, early); !strings.HasPrefix(got, "HTTP/1.1 200") {
		t.Errorf("a request between two processes gets %q", got)
	}
	before := served.Load()
	testkit.Await(t, "other requests are served", func() bool { return served.Load() > before })
}

// The gateway does not start if it would not listen on a passed socket, because clients of that socket would wait. An
// invalid LISTEN_FDS is an error, too.
func TestSystemdSocketElsewhere(t *testing.T) {
	t.Parallel()
	file, addr := handedOver(t)
	for name, tt := range map[string]struct {
		fds  string
		want string
	}{
		"untaken":   {"1", "systemd passed a socket for " + addr},
		"no number": {"one", `LISTEN_FDS="one" is not a number`},
	} {
		c := exec.CommandContext(t.Context(), asSystemd[0], append(slices.Clip(asSystemd[1:]), testkit.Binary(t), "serve", "--upstream", "sample", "--proxy", "127.0.0.1:0", "--admin", "127.0.0.1:0")...)
		c.ExtraFiles = []*os.File{file}
		c.Env = append(testkit.Environ(), "LISTEN_FDS="+tt.fds)
		out, _ := c.CombinedOutput()
		if c.ProcessState.ExitCode() != 1 || !strings.Contains(string(out), tt.want) {
			t.Errorf("%s: exit code %d, %s; want %s", name, c.ProcessState.ExitCode(), out, tt.want)
		}
	}
}

// deployed returns a file of deploy/.
func deployed(t testing.TB, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "..", "deploy", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestSystemdUnits(t *testing.T) {
	t.Parallel()
	service, socket, settings := deployed(t, "systemd/sluice.service"), deployed(t, "systemd/sluice.socket"), deployed(t, "systemd/sluice.yaml")
	for _, pair := range [][2]string{{"ListenStream=8080\n", "\nproxy: :8080\n"}, {"ListenStream=127.0.0.1:9090\n", "\nadmin: 127.0.0.1:9090\n"}} {
		if !strings.Contains(socket, pair[0]) || !strings.Contains(settings, pair[1]) {
			t.Errorf("sluice.socket has no %q, or sluice.yaml no %q", pair[0], pair[1])
		}
	}

	// The settings work unchanged, except for paths.
	const command = "/usr/local/bin/sluice serve --config /etc/sluice/sluice.yaml\n"
	if !strings.Contains(service, "ExecStart="+command) {
		t.Fatalf("sluice.service does not run %s", command)
	}
	config := testkit.File(t, "sluice.yaml", strings.Replace(settings, "/etc/sluice/policy.yaml", testkit.File(t, "policy.yaml", limited(5)), 1))
	serve(t, "--config", config)

	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("NOT VERIFIED: the units, because systemd-analyze is missing")
	}
	dir := t.TempDir()
	overwrite(t, filepath.Join(dir, "sluice.service"), strings.ReplaceAll(service, "/usr/local/bin/sluice", testkit.Binary(t)))
	overwrite(t, filepath.Join(dir, "sluice.socket"), socket)
	out, err := exec.CommandContext(t.Context(), analyze, "verify", "--man=no", "--recursive-errors=no", filepath.Join(dir, "sluice.service"), filepath.Join(dir, "sluice.socket")).CombinedOutput()
	if err != nil || len(out) > 0 {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
	// An exposure of 2.0 of 10 remains for a service that uses the network and reads files of its host.
	out, err = exec.CommandContext(t.Context(), analyze, "security", "--offline=yes", "--threshold=20", "--no-pager", filepath.Join(dir, "sluice.service")).CombinedOutput()
	if err != nil {
		t.Errorf("systemd-analyze security: %v\n%s", err, out)
	}
}
