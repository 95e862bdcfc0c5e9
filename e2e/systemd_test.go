package e2e

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// asSystemd makes systemd's environment of a command: its process's id, and where it says how it goes.
var asSystemd = []string{"sh", "-c", `LISTEN_PID=$$ exec "$@"`, "sh"}

// handedOver is a listening socket, as a file to hand on and by its address.
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

// Over a socket of systemd the gateway restarts under load, and nobody is refused.
func TestSystemdRestart(t *testing.T) {
	t.Parallel()
	file, addr := handedOver(t)
	path := filepath.Join(t.TempDir(), "notify")
	states, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer states.Close()
	awaitState := func(want string) {
		t.Helper()
		buffer := make([]byte, 1024)
		if err := states.SetReadDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
		n, err := states.Read(buffer)
		if err != nil || string(buffer[:n]) != want {
			t.Fatalf("it says %q, %v; want %s", buffer[:n], err, want)
		}
	}
	start := func() *gateway {
		t.Helper()
		g := beginWith(t, func(c *exec.Cmd) {
			c.ExtraFiles = []*os.File{file}
			c.Env = append(c.Env, "LISTEN_FDS=1", "NOTIFY_SOCKET="+path)
		}, asSystemd, "--upstream", "sample", "--proxy", addr)
		awaitState("READY=1")
		if g.addr != addr {
			t.Errorf("it serves at %s, and not at the socket's %s", g.addr, addr)
		}
		return g
	}

	g := start()
	var served atomic.Int64
	var stop atomic.Bool
	var clients sync.WaitGroup
	for range 4 {
		clients.Go(func() {
			client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
			for !stop.Load() {
				resp, err := client.Get("http://" + addr + "/health")
				if err != nil {
					t.Errorf("a request was refused: %v", err)
					return
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
				if resp.StatusCode != http.StatusOK {
					t.Errorf("a request got %s", resp.Status)
				}
				served.Add(1)
			}
		})
	}
	defer clients.Wait()
	defer stop.Store(true)
	defer file.Close() // so that nobody waits in its backlog if the gateway is gone
	for range 3 {
		g.signal(syscall.SIGTERM)
		awaitState("STOPPING=1")
		if code := g.wait(); code != 0 {
			t.Fatalf("exit code %d", code)
		}
		// Nobody is there now, and yet one can ask.
		early, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(early, "GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
		g = start()
		answer, err := io.ReadAll(early)
		early.Close()
		if err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 200") {
			t.Errorf("who has asked between two processes gets %q, %v", answer, err)
		}
		for before := served.Load(); served.Load() == before && !t.Failed(); {
			time.Sleep(time.Millisecond)
		}
	}
}

// systemd hears when a reload begins and that it is done, and what the file says is in force then, if it
// can be.
func TestSystemdReload(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "notify")
	states, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer states.Close()
	state := func() string {
		t.Helper()
		buffer := make([]byte, 1024)
		if err := states.SetReadDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
		n, err := states.Read(buffer)
		if err != nil {
			t.Fatal(err)
		}
		return string(buffer[:n])
	}
	policy := write(t, "policy.yaml", limited(5))
	g := beginWith(t, func(c *exec.Cmd) { c.Env = append(c.Env, "NOTIFY_SOCKET="+path) }, []string{"env"}, "--upstream", "sample", "--policy", policy)
	if got := state(); got != "READY=1" {
		t.Fatalf("it begins with %q", got)
	}
	began := regexp.MustCompile(`^RELOADING=1\nMONOTONIC_USEC=(\d+)$`)
	last := 0
	reload := func() {
		t.Helper()
		g.signal(syscall.SIGHUP)
		said := state()
		m := began.FindStringSubmatch(said)
		if m == nil {
			t.Fatalf("it begins to reload with %q", said)
		}
		at, err := strconv.Atoi(m[1])
		if err != nil || at <= last {
			t.Errorf("a reload at %s µs, after one at %d", m[1], last)
		}
		last = at
		if got := state(); got != "READY=1" {
			t.Fatalf("it ends to reload with %q", got)
		}
	}
	wantInForce(t, g, 5)
	overwrite(t, policy, limited(7))
	reload()
	wantInForce(t, g, 7)
	overwrite(t, policy, broken)
	reload()
	wantInForce(t, g, 7)
	g.await("why it is refused", refused)
	reload() // of what has not changed
	g.signal(syscall.SIGTERM)
	if got := state(); got != "STOPPING=1" {
		t.Errorf("it ends with %q", got)
	}
	if code := g.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// A socket that nothing listens at would leave its clients waiting.
func TestSystemdSocketElsewhere(t *testing.T) {
	t.Parallel()
	file, addr := handedOver(t)
	for name, tt := range map[string]struct {
		fds  string
		want string
	}{
		"untaken":   {"1", "systemd has passed a socket at " + addr},
		"no number": {"one", `LISTEN_FDS="one" is no number`},
	} {
		c := exec.CommandContext(t.Context(), asSystemd[0], append(slices.Clip(asSystemd[1:]), binary, "serve", "--upstream", "sample", "--proxy", "127.0.0.1:0", "--admin", "127.0.0.1:0")...)
		c.ExtraFiles = []*os.File{file}
		c.Env = append(environ(), "LISTEN_FDS="+tt.fds)
		out, _ := c.CombinedOutput()
		if c.ProcessState.ExitCode() != 1 || !strings.Contains(string(out), tt.want) {
			t.Errorf("%s: exit code %d, %s; want %s", name, c.ProcessState.ExitCode(), out, tt.want)
		}
	}
}

// deployed returns a file of deploy/.
func deployed(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "deploy", name))
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

	// The settings run as they are, but for where things are.
	const command = "/usr/local/bin/sluice serve --config /etc/sluice/sluice.yaml\n"
	if !strings.Contains(service, "ExecStart="+command) {
		t.Fatalf("sluice.service does not run %s", command)
	}
	config := write(t, "sluice.yaml", strings.Replace(settings, "/etc/sluice/policy.yaml", write(t, "policy.yaml", limited(5)), 1))
	serve(t, "--config", config)

	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("NOT VERIFIED: the units, for there is no systemd-analyze")
	}
	dir := t.TempDir()
	overwrite(t, filepath.Join(dir, "sluice.service"), strings.ReplaceAll(service, "/usr/local/bin/sluice", binary))
	overwrite(t, filepath.Join(dir, "sluice.socket"), socket)
	out, err := exec.CommandContext(t.Context(), analyze, "verify", "--man=no", "--recursive-errors=no", filepath.Join(dir, "sluice.service"), filepath.Join(dir, "sluice.socket")).CombinedOutput()
	if err != nil || len(out) > 0 {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
	// 2.0 of 10 is what is left to a service that has the network and reads its host's files.
	out, err = exec.CommandContext(t.Context(), analyze, "security", "--offline=yes", "--threshold=20", "--no-pager", filepath.Join(dir, "sluice.service")).CombinedOutput()
	if err != nil {
		t.Errorf("systemd-analyze security: %v\n%s", err, out)
	}
}
