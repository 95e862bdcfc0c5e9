package testkit

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
)

// patience bounds the wait for a condition that is sure to come on any machine.
const patience = 5 * time.Minute

var program = sync.OnceValues(Sluice)

// Binary returns the path of the program: see [Sluice].
func Binary(t testing.TB) string {
	t.Helper()
	path, err := program()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// Environ is the environment without settings of the gateway, and those of tests. The race detector's
// second of sleep at the end of a process adds up.
func Environ() []string {
	env := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "SLUICE_") })
	return append(env, "GORACE=atexit_sleep_ms=20")
}

// Gateway is a running "sluice serve".
type Gateway struct {
	URL, Addr string // of the proxy
	Admin     string // URL

	t       testing.TB
	process *exec.Cmd
	ended   chan struct{} // closed when the process has ended
	mu      sync.Mutex
	grown   *sync.Cond
	records []Record
	raw     bytes.Buffer
}

// Record is a line of the log.
type Record struct {
	Level, Msg, Problem, Error, Proxy, Admin, Check, Resp, Grpc string

	Text string `json:"-"` // the line
}

// Start starts a gateway on free ports, and waits until it serves, which may be before it is ready. The
// process starts as edit leaves it, and by way of another program if there is one, which gets the command as
// its arguments. When the test ends the gateway gets SIGTERM, and has to end with 0.
func Start(t testing.TB, edit func(*exec.Cmd), by []string, args ...string) *Gateway {
	t.Helper()
	g := &Gateway{t: t, ended: make(chan struct{})}
	g.grown = sync.NewCond(&g.mu)
	command := append(slices.Clip(by), Binary(t), "serve", "--proxy", "127.0.0.1:0", "--admin", "127.0.0.1:0")
	command = append(command, args...)
	g.process = exec.Command(command[0], command[1:]...)
	g.process.Env = Environ()
	edit(g.process)
	stderr, err := g.process.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := g.process.Start(); err != nil {
		t.Fatal(err)
	}
	go g.read(stderr)
	t.Cleanup(g.Stop)
	started := g.Started()
	g.Addr, g.URL, g.Admin = started.Proxy, "http://"+started.Proxy, "http://"+started.Admin
	return g
}

// Started returns the record that names the addresses.
func (g *Gateway) Started() Record {
	g.t.Helper()
	return g.Await("it serves", func(r Record) bool { return r.Msg == "sluice serves" })
}

// read collects the log until the process ends.
func (g *Gateway) read(stderr io.Reader) {
	defer func() {
		g.mu.Lock()
		close(g.ended)
		g.mu.Unlock()
		g.grown.Broadcast()
	}()
	for lines := bufio.NewScanner(stderr); lines.Scan(); {
		var r Record
		err := json.Unmarshal(lines.Bytes(), &r)
		r.Text = lines.Text()
		g.mu.Lock()
		if err == nil {
			g.records = append(g.records, r)
		}
		fmt.Fprintf(&g.raw, "%s\n", lines.Bytes())
		g.mu.Unlock()
		g.grown.Broadcast()
	}
}

// AwaitRecords waits until the records hold something.
func (g *Gateway) AwaitRecords(what string, holds func([]Record) bool) {
	g.t.Helper()
	late := time.AfterFunc(patience, func() { _ = g.process.Process.Kill() })
	defer late.Stop()
	g.mu.Lock()
	defer g.mu.Unlock()
	for !holds(g.records) {
		select {
		case <-g.ended:
			g.t.Fatalf("waiting until %s, the gateway has ended:\n%s", what, &g.raw)
		default:
		}
		g.grown.Wait()
	}
}

// Await returns the first record that fits, now or later.
func (g *Gateway) Await(what string, fits func(Record) bool) (found Record) {
	g.t.Helper()
	g.AwaitRecords(what, func(all []Record) bool {
		i := slices.IndexFunc(all, fits)
		if i >= 0 {
			found = all[i]
		}
		return i >= 0
	})
	return found
}

// AwaitNext is Await for the records behind the one that it has found last.
func (g *Gateway) AwaitNext(what string, fits func(Record) bool) {
	g.t.Helper()
	g.AwaitRecords(what, func(all []Record) bool {
		i := slices.IndexFunc(all, fits)
		if i >= 0 {
			g.records = all[i+1:]
		}
		return i >= 0
	})
}

// Records returns the records since the last Forget.
func (g *Gateway) Records() []Record {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.records)
}

// Forget makes Await look at later records only.
func (g *Gateway) Forget() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.records = nil
}

// Log returns all that was logged.
func (g *Gateway) Log() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.raw.String()
}

// AwaitStatus waits until a URL has a status.
func (g *Gateway) AwaitStatus(url string, status int) {
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

// Signal sends a signal to the process.
func (g *Gateway) Signal(s os.Signal) {
	g.t.Helper()
	if err := g.process.Process.Signal(s); err != nil {
		g.t.Fatal(err)
	}
}

// Pid returns the number of the process.
func (g *Gateway) Pid() int { return g.process.Process.Pid }

// Frozen reports whether all threads of the process are stopped: a signal takes its time.
func (g *Gateway) Frozen() bool {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", g.Pid()))
	if err != nil || len(threads) == 0 {
		g.t.Fatalf("no threads: %v", err)
	}
	return !slices.ContainsFunc(threads, func(path string) bool {
		stat, err := os.ReadFile(path)
		return err != nil || !strings.Contains(string(stat), ") T ")
	})
}

// Wait returns the exit code.
func (g *Gateway) Wait() int {
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

// Stop ends the process by SIGTERM, unless the test has waited for its end.
func (g *Gateway) Stop() {
	if g.process.ProcessState != nil {
		return
	}
	_ = g.process.Process.Signal(syscall.SIGTERM)
	if code := g.Wait(); code != 0 {
		g.t.Errorf("exit code %d after SIGTERM", code)
	}
	if g.t.Failed() {
		g.t.Logf("log of the gateway:\n%s", g.Log())
	}
}
