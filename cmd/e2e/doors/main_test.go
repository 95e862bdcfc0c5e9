// Package doors holds the configurations in deploy/ to what they say, with real proxies before a
// real backend.
package doors

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
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

// program returns the path of the program.
func program(t *testing.T) string {
	t.Helper()
	path, err := build()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

var build = sync.OnceValues(testkit.Sluice)

// builds returns what builds a proxy of testdata, once, and links it only if it has changed.
func builds(name, path string) func() (string, error) {
	return sync.OnceValues(func() (string, error) {
		file := filepath.Join(testkit.Root(), "bin", "test", name)
		c := exec.Command("go", "build", "-o", file, path)
		c.Dir, c.Env = filepath.Join("testdata", name), append(os.Environ(), "GOWORK=off") // a module of its own
		if out, err := c.CombinedOutput(); err != nil {
			return "", fmt.Errorf("%w\n%s", err, out)
		}
		return file, nil
	})
}

// limiter is a running "sluice serve" with --check.
type limiter struct {
	t      *testing.T
	addr   string // of --check
	policy string // the file
	ended  chan struct{}

	mu  sync.Mutex
	log bytes.Buffer
}

// limit starts a limiter by a policy. When the test ends it gets SIGTERM, and has to end with 0.
func limit(t *testing.T, policy string, args ...string) *limiter {
	t.Helper()
	l := &limiter{t: t, policy: testkit.File(t, "policy.yaml", policy), ended: make(chan struct{})}
	process := command(program(t), append([]string{"serve", "--policy", l.policy, "--check", "127.0.0.1:0", "--admin", "127.0.0.1:0"}, args...)...)
	stderr, err := process.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = process.Process.Signal(syscall.SIGTERM)
		<-l.ended
		if err := process.Wait(); err != nil {
			t.Errorf("the limiter ends with %v", err)
		}
		if t.Failed() {
			t.Logf("log of the limiter:\n%s", l.logged())
		}
	})
	started := make(chan string, 1)
	go l.read(stderr, started)
	select {
	case l.addr = <-started:
	case <-time.After(testkit.Patience):
	}
	if l.addr == "" {
		t.Fatalf("the limiter does not start:\n%s", l.logged())
	}
	return l
}

// command is a process without settings of the environment.
func command(name string, args ...string) *exec.Cmd {
	c := exec.Command(name, args...)
	c.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "SLUICE_") })
	c.Env = append(c.Env, "GORACE=atexit_sleep_ms=20")
	return c
}

// read collects the log until the process ends.
func (l *limiter) read(stderr io.Reader, started chan<- string) {
	defer close(l.ended)
	defer close(started)
	for lines := bufio.NewScanner(stderr); lines.Scan(); {
		l.mu.Lock()
		fmt.Fprintf(&l.log, "%s\n", lines.Bytes())
		l.mu.Unlock()
		var r struct{ Msg, Check string }
		if json.Unmarshal(lines.Bytes(), &r) == nil && r.Msg == "sluice serves" {
			started <- r.Check
		}
	}
}

func (l *limiter) logged() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.log.String()
}

// awaitLog waits until the log has the text.
func (l *limiter) awaitLog(text string) {
	l.t.Helper()
	testkit.Await(l.t, "the log has "+text, func() bool { return strings.Contains(l.logged(), text) })
}

// seen is what the backend has got of a request.
type seen struct {
	Method, Target, Host, Body string
	Header                     http.Header
}

// backend answers what it has got of a request, or the status that the path asks for.
func backend(t *testing.T) (addr string) {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if r.URL.Path == "/forbidden" {
			http.Error(w, "the backend's own", http.StatusForbidden)
			return
		}
		w.Header().Set("X-Backend", "yes")
		_ = json.NewEncoder(w).Encode(seen{r.Method, r.RequestURI, r.Host, string(body), r.Header})
	}))
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

// example returns a file of deploy/ with texts replaced, each of which it has to have.
func example(t *testing.T, name string, replaced ...string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "..", "..", "deploy", name))
	if err != nil {
		t.Fatal(err)
	}
	text := string(data)
	for i := 0; i < len(replaced); i += 2 {
		if !strings.Contains(text, replaced[i]) {
			t.Fatalf("%s has no %q", name, replaced[i])
		}
		text = strings.ReplaceAll(text, replaced[i], replaced[i+1])
	}
	return text
}

// reply is what a client gets.
type reply struct {
	status int
	header http.Header
	body   string
	seen   seen // by the backend
}

// ask makes a request of a proxy: header has names and values.
func ask(t *testing.T, method, url, body string, header ...string) reply {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		if header[i] == "Host" {
			r.Host = header[i+1]
		}
		r.Header.Add(header[i], header[i+1])
	}
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	got := reply{status: resp.StatusCode, header: resp.Header, body: string(data)}
	if resp.Header.Get("X-Backend") != "" {
		if err := json.Unmarshal(data, &got.seen); err != nil {
			t.Fatal(err)
		}
	}
	return got
}

// raw sends a request as it is written, and returns the first line of the answer and the body.
func raw(t *testing.T, addr, request string) (status, body string) {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(testkit.Patience))
	if _, err := io.WriteString(c, request); err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(c)
	if err != nil && !errors.Is(err, syscall.ECONNRESET) {
		t.Fatal(err)
	}
	head, body, _ := strings.Cut(string(answer), "\r\n\r\n")
	status, _, _ = strings.Cut(head, "\r\n")
	return status, body
}
