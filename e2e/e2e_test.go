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
	"net"
	"net/http"
	"net/http/httptest"
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
	t     testing.TB
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
	Level, Msg, Problem, Error, Proxy, Admin, Check, Resp string

	text string // the line
}

// serve starts the gateway on free ports. When the test ends it gets SIGTERM, and has to
// end with 0.
func serve(t testing.TB, args ...string) *gateway {
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
func begin(t testing.TB, args ...string) *gateway {
	t.Helper()
	return beginAs(t, nil, args...)
}

// beginIn is begin in a directory.
func beginIn(t testing.TB, dir string, args ...string) *gateway {
	t.Helper()
	return beginWith(t, func(c *exec.Cmd) { c.Dir = dir }, nil, args...)
}

// beginAs is begin by way of another program, which gets the command as its arguments.
func beginAs(t testing.TB, program []string, args ...string) *gateway {
	t.Helper()
	return beginWith(t, func(*exec.Cmd) {}, program, args...)
}

// beginWith is beginAs with a process that edit has a say in.
func beginWith(t testing.TB, edit func(*exec.Cmd), program []string, args ...string) *gateway {
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
		r.text = lines.Text()
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

// awaitNext is await for the records behind the one that it has found last.
func (g *gateway) awaitNext(what string, fits func(record) bool) {
	g.t.Helper()
	g.await(what, fits)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.logs = g.logs[slices.IndexFunc(g.logs, fits)+1:]
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
func write(t testing.TB, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	overwrite(t, path, content)
	return path
}

func overwrite(t testing.TB, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// get returns the status and the body.
func get(t testing.TB, url string) (int, string) {
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
func run(t testing.TB, args ...string) (code int, stderr string) {
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

func request(t testing.TB, method, url, body string, header ...string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	return r
}

func do(t testing.TB, r *http.Request) (*http.Response, string) {
	t.Helper()
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(body)
}

// upstreamOf serves a handler until the test ends, and returns its URL.
func upstreamOf(t testing.TB, h http.Handler) string {
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL
}

// dial opens a connection to the gateway and sends a text.
func dial(t testing.TB, g *gateway, send string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", g.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if _, err := io.WriteString(c, send); err != nil {
		t.Fatal(err)
	}
	return c
}

// readAnswer reads the head of an answer.
func readAnswer(t testing.TB, c net.Conn) *http.Response {
	t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

// metric reads one number from /metrics.
func metric(t testing.TB, g *gateway, name string) float64 {
	t.Helper()
	_, text := get(t, g.admin+"/metrics")
	for line := range strings.Lines(text) {
		if value, found := strings.CutPrefix(line, name+" "); found {
			n, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatalf("/metrics has no %s", name)
	return 0
}

// A store that is slow because the machine is busy must not be taken for one that is away.
var patientStore = []string{"--store-timeout", patience.String(), "--require-store"}

// limited is a policy whose one limit can be read off RateLimit-Policy.
func limited(n int) string {
	return fmt.Sprintf("version: 1\nrules:\n  - {name: r, limit: %d/day, algorithm: fixed_window}\n", n)
}

const broken = "version: 1\nrules:\n  - name: r\n    limt: 5/day\n"

// inForce returns what clients are told of the policy.
func inForce(t *testing.T, g *gateway) string {
	t.Helper()
	resp, _ := do(t, request(t, "GET", g.url+"/health", ""))
	return resp.Header.Get("RateLimit-Policy")
}

func wantInForce(t *testing.T, g *gateway, n int) {
	t.Helper()
	if got, want := inForce(t, g), fmt.Sprintf(`"r";q=%d;w=86400`, n); got != want {
		t.Errorf("the policy in force is %s, want %s", got, want)
	}
}

func loaded(r record) bool { return r.Msg == "policy loaded" }

func refused(r record) bool { return strings.HasPrefix(r.Msg, "policy refused") }

// awayFromMidnight waits where the windows of a day would end during the test.
func awayFromMidnight(t *testing.T) {
	if left := time.Until(time.Now().UTC().Truncate(24 * time.Hour).Add(24 * time.Hour)); left < 2*time.Minute {
		t.Logf("waiting %v for the next day", left)
		time.Sleep(left + time.Second)
	}
}

// newClient keeps a connection for each request that may be under way.
func newClient(t *testing.T) *http.Client {
	transport := &http.Transport{MaxIdleConnsPerHost: 4096}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: patience}
}
