// Package doors tests the configurations in deploy/ with the real proxies in front of a real backend.
package doors

import (
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sluicehq/sluice/internal/testkit"
)

// builds returns a function that builds a proxy of testdata, once. It links the proxy only if it has changed.
func builds(name, path string) func() (string, error) {
	return sync.OnceValues(func() (string, error) { return testkit.BuildModule(name, "cmd/e2e/doors/testdata/"+name, path) })
}

// limit starts a gateway with a policy, which answers queries at --check.
func limit(t *testing.T, policy string, args ...string) *testkit.Gateway {
	t.Helper()
	return testkit.Start(t, append([]string{"--policy", testkit.File(t, "policy.yaml", policy), "--check", "127.0.0.1:0"}, args...)...)
}

// command returns a command with an environment that has no settings of the gateway.
func command(name string, args ...string) *exec.Cmd {
	c := exec.Command(name, args...)
	c.Env = testkit.Environ()
	return c
}

// seen is a request as the backend has received it.
type seen struct {
	Method, Target, Host, Body string
	Header                     http.Header
}

// backend starts a backend that answers with the request that it has received, or with 403 to /forbidden.
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

// example returns a file of deploy/ with texts replaced. The file must contain each of them.
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

// reply is the response that a client gets.
type reply struct {
	status int
	header http.Header
	body   string
	seen   seen // the request that the backend has received
}

// ask sends a request to a proxy. header has names and values in turn.
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

// raw sends a request unchanged, and returns the status line and the body of the response.
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
