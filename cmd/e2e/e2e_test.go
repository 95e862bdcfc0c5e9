// Package e2e tests the built binary from outside: real processes, sockets and files.
package e2e

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/sluicehq/sluice/internal/testkit"
)

const patience = testkit.Patience

type (
	gateway = testkit.Gateway
	record  = testkit.Record
)

var serve = testkit.Serve

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

// run runs the program until it ends.
func run(t testing.TB, args ...string) (code int, stderr string) {
	t.Helper()
	var out bytes.Buffer
	c := exec.CommandContext(t.Context(), testkit.Binary(t), args...)
	c.Env, c.Stderr = testkit.Environ(), &out
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
	c, err := net.Dial("tcp", g.Addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if _, err := io.WriteString(c, send); err != nil {
		t.Fatal(err)
	}
	return c
}

// dialHTTP2 opens an HTTP/2 connection, over TLS if config is not nil.
func dialHTTP2(t testing.TB, addr string, config *tls.Config) (net.Conn, *http2.Framer) {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	if config != nil {
		config = config.Clone()
		config.NextProtos, config.ServerName = []string{"h2"}, "127.0.0.1"
		c = tls.Client(c, config)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(patience))
	f := http2.NewFramer(c, c)
	if _, err := io.WriteString(c, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	if err := f.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	return c, f
}

// readAnswer reads the head of a response.
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

// limited returns a policy with one limit, which RateLimit-Policy shows.
func limited(n int) string {
	return fmt.Sprintf("version: 1\nrules:\n  - {name: r, limit: %d/day, algorithm: fixed_window}\n", n)
}

const broken = "version: 1\nrules:\n  - name: r\n    limt: 5/day\n"

// inForce returns the RateLimit-Policy field of a response, which shows the policy in force.
func inForce(t *testing.T, g *gateway) string {
	t.Helper()
	resp, _ := do(t, request(t, "GET", g.URL+"/health", ""))
	return resp.Header.Get("RateLimit-Policy")
}

func wantInForce(t *testing.T, g *gateway, n int) {
	t.Helper()
	if got, want := inForce(t, g), fmt.Sprintf(`"r";q=%d;w=86400`, n); got != want {
		t.Errorf("the policy in force is %s, want %s", got, want)
	}
}

// awayFromMidnight waits if a window of a day would end during the test.
func awayFromMidnight(t *testing.T) {
	if left := time.Until(time.Now().UTC().Truncate(24 * time.Hour).Add(24 * time.Hour)); left < 2*time.Minute {
		t.Logf("waiting %v for the next day", left)
		time.Sleep(left + time.Second)
	}
}
