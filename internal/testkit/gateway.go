package testkit

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

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

// Environ returns the environment without settings of the gateway, and with settings for tests. These remove the
// second for which the race detector sleeps at the end of each process.
func Environ() []string {
	env := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "SLUICE_") })
	return append(env, "GORACE=atexit_sleep_ms=20")
}

// Gateway is a running "sluice serve".
type Gateway struct {
	testing.TB
	URL, Addr         string // the URL and the address of the proxy
	Admin             string // URL
	Check, Resp, Grpc string // the addresses of the integrations that the gateway serves

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

	Text string `json:"-"` // the whole line
}

// Serve is like [Start], but also waits until the gateway is ready.
func Serve(t testing.TB, args ...string) *Gateway {
	t.Helper()
	g := Start(t, args...)
	g.AwaitStatus(g.Admin+"/readyz", http.StatusOK)
	return g
}

// Start starts a gateway on free ports, and waits until it serves, which may be before it is ready. When the test
// ends, the gateway gets SIGTERM, and must end with exit code 0.
func Start(t testing.TB, args ...string) *Gateway {
	t.Helper()
	return StartWith(t, func(*exec.Cmd) {}, nil, args...)
}

// StartWith is like [Start], but lets edit change the command first. If launcher is not empty, it is the command of
// another program, which has to start the gateway: the gateway's command is appended to its arguments.
func StartWith(t testing.TB, edit func(*exec.Cmd), launcher []string, args ...string) *Gateway {
	t.Helper()
	g := &Gateway{TB: t, ended: make(chan struct{})}
	g.grown = sync.NewCond(&g.mu)
	command := append(slices.Clip(launcher), Binary(t), "serve", "--proxy", "127.0.0.1:0", "--admin", "127.0.0.1:0")
	command = append(command, args...)
	g.process = exec.Command(command[0], command[1:]...)
	g.process.Env, g.process.SysProcAttr = Environ(), DiesWithTest()
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
	serves := g.Await("the gateway serves", func(r Record) bool { return r.Msg == "sluice serves" })
	g.Addr, g.URL, g.Admin = serves.Proxy, "http://"+serves.Proxy, "http://"+serves.Admin
	g.Check, g.Resp, g.Grpc = serves.Check, serves.Resp, serves.Grpc
	return g
}

// read collects the log until the process ends.
func (g *Gateway) read(stderr io.Reader) {
	defer func() {
		g.mu.Lock()
		close(g.ended)
		g.mu.Unlock()
		g.grown.Broadcast()
	}()
	lines := bufio.NewReader(stderr) // not a Scanner, because it fails on lines above 64 KiB
	for {
		line, err := lines.ReadString('\n')
		if line != "" {
			r := Record{}
			wrong := json.Unmarshal([]byte(line), &r)
			r.Text = strings.TrimSuffix(line, "\n")
			g.mu.Lock()
			if wrong == nil {
				g.records = append(g.records, r)
			}
			g.raw.WriteString(line)
			g.mu.Unlock()
			g.grown.Broadcast()
		}
		if err != nil {
			return
		}
	}
}

// AwaitRecords calls holds with the records until it returns true.
func (g *Gateway) AwaitRecords(what string, holds func([]Record) bool) {
	g.Helper()
	late := time.AfterFunc(Patience, func() { _ = g.process.Process.Kill() })
	defer late.Stop()
	g.mu.Lock()
	defer g.mu.Unlock()
	for !holds(g.records) {
		select {
		case <-g.ended:
			g.Fatalf("the gateway has ended while the test waited until %s:\n%s", what, &g.raw)
		default:
		}
		g.grown.Wait()
	}
}

// Await returns the first record for which fits returns true, and waits for it if necessary.
func (g *Gateway) Await(what string, fits func(Record) bool) (found Record) {
	g.Helper()
	g.AwaitRecords(what, func(all []Record) bool {
		i := slices.IndexFunc(all, fits)
		if i >= 0 {
			found = all[i]
		}
		return i >= 0
	})
	return found
}

// AwaitNext is like Await, but then forgets the found record and all records before it.
func (g *Gateway) AwaitNext(what string, fits func(Record) bool) {
	g.Helper()
	g.AwaitRecords(what, func(all []Record) bool {
		i := slices.IndexFunc(all, fits)
		if i >= 0 {
			g.records = all[i+1:]
		}
		return i >= 0
	})
}

// Records returns the records that were not forgotten by Forget or AwaitNext.
func (g *Gateway) Records() []Record {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.records)
}

// Forget makes Await consider only later records.
func (g *Gateway) Forget() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.records = nil
}

// Logged returns all that was logged.
func (g *Gateway) Logged() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.raw.String()
}

// AwaitStatus waits until a GET of a URL returns a status.
func (g *Gateway) AwaitStatus(url string, status int) {
	g.Helper()
	Await(g, fmt.Sprintf("GET %s returns %d", url, status), func() bool {
		resp, err := http.Get(url)
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == status
	})
}

// AwaitMetric waits until a metric has a value. The name includes the labels, as in /metrics.
func (g *Gateway) AwaitMetric(name string, value float64) {
	g.Helper()
	Await(g, fmt.Sprintf("%s is %v", name, value), func() bool { return g.Metric(name) == value })
}

// Metric returns the value of a metric, or NaN if it is missing. The name includes the labels, as in /metrics.
func (g *Gateway) Metric(name string) float64 {
	g.Helper()
	value, err := g.TryMetric(name)
	if err != nil {
		g.Fatal(err)
	}
	return value
}

// TryMetric is Metric for a gateway that may refuse the connection.
func (g *Gateway) TryMetric(name string) (float64, error) {
	resp, err := http.Get(g.Admin + "/metrics")
	if err != nil {
		return math.NaN(), err
	}
	defer resp.Body.Close()
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if text, found := strings.CutPrefix(lines.Text(), name+" "); found {
			return strconv.ParseFloat(text, 64)
		}
	}
	return math.NaN(), nil
}

// Signal sends a signal to the process.
func (g *Gateway) Signal(s os.Signal) {
	g.Helper()
	if err := g.process.Process.Signal(s); err != nil {
		g.Fatal(err)
	}
}

// Pid returns the ID of the process.
func (g *Gateway) Pid() int { return g.process.Process.Pid }

// Frozen reports whether all threads of the process are stopped, which takes some time after the signal.
func (g *Gateway) Frozen() bool {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", g.Pid()))
	if err != nil || len(threads) == 0 {
		g.Fatalf("cannot read the threads of the process: %v", err)
	}
	return !slices.ContainsFunc(threads, func(path string) bool {
		stat, err := os.ReadFile(path)
		return err != nil || !strings.Contains(string(stat), ") T ")
	})
}

// Wait waits until the process has ended, and returns its exit code.
func (g *Gateway) Wait() int {
	g.Helper()
	select {
	case <-g.ended:
	case <-time.After(Patience):
		_ = g.process.Process.Kill()
		g.Errorf("the gateway has not ended")
		<-g.ended
	}
	err := g.process.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		g.Fatal(err)
	}
	return g.process.ProcessState.ExitCode()
}

// Stop ends the process by SIGTERM, unless it has ended.
func (g *Gateway) Stop() {
	if g.process.ProcessState != nil {
		return
	}
	_ = g.process.Process.Signal(syscall.SIGTERM)
	if code := g.Wait(); code != 0 {
		g.Errorf("exit code %d after SIGTERM", code)
	}
	if g.Failed() {
		g.Logf("log of the gateway:\n%s", g.Logged())
	}
}
