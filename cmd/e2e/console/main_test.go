// Package console has a real Chromium look at the dashboard of the real program under traffic.
package console

import (
	"bufio"
	"bytes"
	"encoding/json"
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

	"github.com/sluicehq/sluice/cmd/internal/browsertest"
	"github.com/sluicehq/sluice/internal/testkit"
)

// page is a page of the dashboard.
type page struct {
	*browsertest.Page
	program *program
}

// open opens the dashboard of a program, if there is one, in a window of its own.
func open(t *testing.T, p *program, l browsertest.Look) *page {
	t.Helper()
	site := ""
	if p != nil {
		site = p.admin
	}
	return &page{browsertest.Open(t, site, l), p}
}

// js returns what an expression is.
func js[T any](g *page, expression string) T { return browsertest.JS[T](g.Page, expression) }

// patience bounds the wait for a condition that is sure to come on any machine.
const patience = 5 * time.Minute

// binary returns the path of the program.
var binary = sync.OnceValues(testkit.Sluice)

func TestMain(m *testing.M) { browsertest.Main(m) }

// program is a running "sluice serve".
type program struct {
	t            *testing.T
	proxy, admin string // URLs
	process      *exec.Cmd
	ended        chan struct{}

	mu  sync.Mutex
	log bytes.Buffer
}

// serve starts the program in front of the sample API. When the test ends it gets SIGTERM, and has to
// end with 0.
func serve(t *testing.T, args ...string) *program {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	p := &program{t: t, ended: make(chan struct{})}
	p.process = exec.Command(path, append([]string{"serve", "--upstream", "sample", "--proxy", "127.0.0.1:0", "--admin", "127.0.0.1:0"}, args...)...)
	p.process.Env = append(environment(), "GORACE=atexit_sleep_ms=20")
	p.process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	stderr, err := p.process.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.process.Start(); err != nil {
		t.Fatal(err)
	}
	started := make(chan struct{})
	go p.read(stderr, started)
	t.Cleanup(p.stop)
	select {
	case <-started:
	case <-p.ended:
		t.Fatalf("the program ends:\n%s", p.logged())
	case <-time.After(patience):
		t.Fatalf("the program does not start:\n%s", p.logged())
	}
	return p
}

// environment is that of the test without the settings of the program.
func environment() []string {
	return slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "SLUICE_") })
}

func (p *program) read(stderr io.Reader, started chan<- struct{}) {
	defer close(p.ended)
	for lines := bufio.NewScanner(stderr); lines.Scan(); {
		p.mu.Lock()
		fmt.Fprintf(&p.log, "%s\n", lines.Bytes())
		p.mu.Unlock()
		var r struct{ Msg, Proxy, Admin string }
		if json.Unmarshal(lines.Bytes(), &r) == nil && r.Msg == "sluice serves" {
			p.proxy, p.admin = "http://"+r.Proxy, "http://"+r.Admin
			close(started)
		}
	}
}

func (p *program) logged() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.String()
}

func (p *program) stop() {
	_ = p.process.Process.Signal(syscall.SIGTERM)
	<-p.ended
	if err := p.process.Wait(); err != nil {
		p.t.Errorf("the program ends with %v", err)
	}
	if p.t.Failed() {
		p.t.Logf("log of the program:\n%s", p.logged())
	}
}

// ask sends a request to the gateway, and returns the status.
func (p *program) ask(path string, fields ...string) int {
	p.t.Helper()
	return p.send("GET", path, "", fields...)
}

// send is ask with another method, and a form.
func (p *program) send(method, path, form string, fields ...string) int {
	p.t.Helper()
	r, err := http.NewRequest(method, p.proxy+path, strings.NewReader(form))
	if err != nil {
		p.t.Fatal(err)
	}
	if form != "" {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for _, f := range fields {
		name, value, _ := strings.Cut(f, ": ")
		r.Header.Set(name, value)
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		p.t.Fatal(err)
	}
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, response.Body)
	return response.StatusCode
}

// write makes a file in a directory of the test.
func write(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// await waits for what is sure to come.
func await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it never came that %s", what)
		}
	}
}
