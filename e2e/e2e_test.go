// Package e2e tests the built binary from outside: real processes, sockets and files.
package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sluicehq/sluice/internal/testkit"
)

// patience bounds the wait for a condition that is sure to come on any machine.
const patience = 5 * time.Minute

// binary is the program, as TestMain has built it.
var binary string

func TestMain(m *testing.M) {
	var err error
	if binary, err = testkit.Sluice(); err != nil {
		log.Fatal(err)
	}
	os.Exit(m.Run())
}

// gateway is a running "sluice serve".
type gateway struct {
	t     *testing.T
	url   string // of the proxy
	addr  string // likewise, without http://
	admin string // URL

	process *exec.Cmd
	ended   chan struct{} // closed when the process has ended
	mu      sync.Mutex
	grown   *sync.Cond
	logs    []record
	raw     bytes.Buffer
}

// record is a line of the log.
type record struct {
	Level, Msg, Problem, Error, Proxy, Admin, Check, Resp, Rule, Was string
}

// serve starts the gateway on free ports. When the test ends it gets SIGTERM, and has to
// end with 0.
func serve(t *testing.T, args ...string) *gateway {
	t.Helper()
	g := begin(t, args...)
	g.awaitStatus(g.admin+"/readyz", http.StatusOK)
	return g
}

// environ is the environment without settings of the gateway, and those of tests. The race
// detector's second of sleep at the end of a process adds up.
func environ() []string {
	env := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "SLUICE_") })
	return append(env, "GORACE=atexit_sleep_ms=20")
}

// begin is serve that does not wait until the gateway is ready.
func begin(t *testing.T, args ...string) *gateway {
	t.Helper()
	return beginAs(t, nil, args...)
}

// beginAs is begin by way of another program, which gets the command as its arguments.
func beginAs(t *testing.T, program []string, args ...string) *gateway {
	t.Helper()
	return beginWith(t, func(*exec.Cmd) {}, program, args...)
}

// beginWith is beginAs with a process that edit has a say in.
func beginWith(t *testing.T, edit func(*exec.Cmd), program []string, args ...string) *gateway {
	t.Helper()
	g := &gateway{t: t, ended: make(chan struct{})}
	g.grown = sync.NewCond(&g.mu)
	command := append(slices.Clip(program), binary, "serve", "--proxy", "127.0.0.1:0", "--admin", "127.0.0.1:0")
	command = append(command, args...)
	g.process = exec.Command(command[0], command[1:]...)
	g.process.Env = environ()
	edit(g.process)
	stderr, err := g.process.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := g.process.Start(); err != nil {
		t.Fatal(err)
	}
	go g.read(stderr)
	t.Cleanup(g.stop)
	started := g.await("it serves", func(r record) bool { return r.Msg == "sluice serves" })
	g.addr = started.Proxy
	g.url, g.admin = "http://"+started.Proxy, "http://"+started.Admin
	return g
}

// read collects the log until the process ends.
func (g *gateway) read(stderr io.Reader) {
	defer func() {
		g.mu.Lock()
		close(g.ended)
		g.mu.Unlock()
		g.grown.Broadcast()
	}()
	for lines := bufio.NewScanner(stderr); lines.Scan(); {
		var r record
		err := json.Unmarshal(lines.Bytes(), &r)
		g.mu.Lock()
		if err == nil {
			g.logs = append(g.logs, r)
		}
		fmt.Fprintf(&g.raw, "%s\n", lines.Bytes())
		g.mu.Unlock()
		g.grown.Broadcast()
	}
}

// await returns the first record that fits, now or later.
func (g *gateway) await(what string, fits func(record) bool) record {
	g.t.Helper()
	late := time.AfterFunc(patience, func() { _ = g.process.Process.Kill() })
	defer late.Stop()
	g.mu.Lock()
	defer g.mu.Unlock()
	for {
		if i := slices.IndexFunc(g.logs, fits); i >= 0 {
			return g.logs[i]
		}
		select {
		case <-g.ended:
			g.t.Fatalf("waiting until %s, the gateway has ended:\n%s", what, &g.raw)
		default:
		}
		g.grown.Wait()
	}
}

// log returns all that was logged.
func (g *gateway) log() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.raw.String()
}

// forget makes await look at later records only.
func (g *gateway) forget() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.logs = nil
}

func (g *gateway) awaitStatus(url string, status int) {
	g.t.Helper()
	var last string
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		resp, err := http.Get(url)
		if err != nil {
			last = err.Error()
			continue
		}
		resp.Body.Close()
		if last = resp.Status; resp.StatusCode == status {
			return
		}
	}
	g.t.Fatalf("GET %s: %s, and never %d", url, last, status)
}

func (g *gateway) signal(s os.Signal) {
	g.t.Helper()
	if err := g.process.Process.Signal(s); err != nil {
		g.t.Fatal(err)
	}
}

// wait returns the exit code.
func (g *gateway) wait() int {
	g.t.Helper()
	select {
	case <-g.ended:
	case <-time.After(patience):
		_ = g.process.Process.Kill()
		g.t.Errorf("the gateway does not end")
		<-g.ended
	}
	err := g.process.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		g.t.Fatal(err)
	}
	return g.process.ProcessState.ExitCode()
}

func (g *gateway) stop() {
	if g.process.ProcessState != nil {
		return // the test has waited for it
	}
	_ = g.process.Process.Signal(syscall.SIGTERM)
	if code := g.wait(); code != 0 {
		g.t.Errorf("exit code %d after SIGTERM", code)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.t.Failed() {
		g.t.Logf("log of the gateway:\n%s", &g.raw)
	}
}

// write makes a file in a directory of the test.
func write(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	overwrite(t, path, content)
	return path
}

func overwrite(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// get returns the status and the body.
func get(t *testing.T, url string) (int, string) {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, strings.TrimSpace(string(body))
}

// run runs the program to its end.
func run(t *testing.T, args ...string) (code int, stderr string) {
	t.Helper()
	var out bytes.Buffer
	c := exec.CommandContext(t.Context(), binary, args...)
	c.Env, c.Stderr = environ(), &out
	err := c.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return c.ProcessState.ExitCode(), out.String()
}
