package e2e

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// guarded has a rule of each kind that a target could slip past.
const guarded = `
version: 1
rules:
  - {name: by-path, match: POST /auth/login, key: [client_ip], limit: 3/day}
  - {name: by-host, hosts: [shop.test], key: [host], limit: 3/day}
  - {name: stars, match: "OPTIONS /{rest...}", limit: 3/day}
  - {name: public, match: "/static/", exempt: true}
`

// recorder is an upstream that remembers which requests have come.
type recorder struct {
	mu   sync.Mutex
	seen []string
}

func (u *recorder) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	u.mu.Lock()
	defer u.mu.Unlock()
	u.seen = append(u.seen, fmt.Sprintf("%s %s %s %s", r.Method, r.Host, r.RequestURI, body))
}

func (u *recorder) all() []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Clone(u.seen)
}

// raw sends one request as it is, and returns the status and the body.
func raw(t *testing.T, g *gateway, send string) (int, string) {
	t.Helper()
	c := dial(t, g, send)
	defer c.Close()
	if err := c.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// A target is a path, an http URL, or the "*" of OPTIONS. Of everything else the rules and
// the upstream could read different things.
func TestTargets(t *testing.T) {
	t.Parallel()
	for _, upstreamPath := range []string{"", "/base"} {
		u := new(recorder)
		upstream := httptest.NewServer(u)
		t.Cleanup(upstream.Close)
		g := serve(t, "--policy", write(t, "p.yaml", guarded), "--upstream", upstream.URL+upstreamPath)
		for _, target := range []string{
			"a:http://h/auth/login", "http:auth/login", "http:/auth/login", "http:///auth/login", "https:/auth/login",
			"a:/auth/login", "a://h/auth/login", "ws://shop.test/auth/login", "file:///auth/login", "mailto:x",
			"http://user@shop.test/auth/login", "http://user:pass@shop.test/auth/login", "http://@shop.test/auth/login",
			"HTTP:opaque", "*", "h:80", "shop.test", "auth/login", "?x=1", "",
		} {
			for range 5 {
				status, body := raw(t, g, "POST "+target+" HTTP/1.1\r\nHost: shop.test\r\nConnection: close\r\nContent-Length: 3\r\n\r\na=b")
				if status != 400 && status != 429 {
					t.Errorf("%q: %d %s", target, status, body)
				}
			}
		}
		for _, connect := range []string{"CONNECT shop.test:443", "CONNECT /auth/login", "CONNECT *", "CONNECT http://shop.test/"} {
			if status, body := raw(t, g, connect+" HTTP/1.1\r\nHost: shop.test\r\nConnection: close\r\n\r\n"); status != 400 {
				t.Errorf("%q: %d %s", connect, status, body)
			}
		}
		if got := u.all(); len(got) > 0 {
			t.Errorf("the upstream has got %q", got)
		}
	}
}

func TestTargetRefusalSaysWhy(t *testing.T) {
	t.Parallel()
	g := before(t, new(recorder).ServeHTTP)
	status, body := raw(t, g, "GET a:http://h/auth/login HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
	const want = `{"type":"about:blank","title":"Bad Request","status":400,"detail":"The request target must be a path, or an http URL with a host.","error":"malformed_request"}` + "\n"
	if status != 400 || body != want {
		t.Errorf("%d %s", status, body)
	}
}

// The authority of an absolute target is the host, for rules as for the upstream, and what
// the Host field says does not matter.
func TestAbsoluteTarget(t *testing.T) {
	t.Parallel()
	u := new(recorder)
	upstream := httptest.NewServer(u)
	t.Cleanup(upstream.Close)
	g := serve(t, "--policy", write(t, "p.yaml", guarded), "--upstream", upstream.URL)
	send := func(target, host string) int {
		status, _ := raw(t, g, "GET "+target+" HTTP/1.1\r\nHost: "+host+"\r\nConnection: close\r\n\r\n")
		return status
	}
	var got []int
	for range 4 {
		got = append(got, send("http://shop.test/x?y", "other.test"), send("http://other.test/x?y", "shop.test"))
	}
	if want := []int{200, 200, 200, 200, 200, 200, 429, 200}; !slices.Equal(got, want) {
		t.Errorf("statuses %v, want %v", got, want)
	}
	seen := u.all()
	slices.Sort(seen)
	want := append(slices.Repeat([]string{"GET other.test /x?y "}, 4), slices.Repeat([]string{"GET shop.test /x?y "}, 3)...)
	if !slices.Equal(seen, want) {
		t.Errorf("the upstream has got %q, want %q", seen, want)
	}
	// Without a path it is the root.
	if status, _ := raw(t, g, "GET http://other.test HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"); status != 200 {
		t.Errorf("without a path: %d", status)
	}
	if seen = u.all(); seen[len(seen)-1] != "GET other.test / " {
		t.Errorf("without a path: %q", seen[len(seen)-1])
	}
}

// "OPTIONS *" is answered by the gateway, and counted before.
func TestOptionsStar(t *testing.T) {
	t.Parallel()
	u := new(recorder)
	upstream := httptest.NewServer(u)
	t.Cleanup(upstream.Close)
	g := serve(t, "--policy", write(t, "p.yaml", guarded), "--upstream", upstream.URL)
	var got []int
	for range 5 {
		status, _ := raw(t, g, "OPTIONS * HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
		got = append(got, status)
	}
	if want := []int{200, 200, 200, 429, 429}; !slices.Equal(got, want) || len(u.all()) > 0 {
		t.Errorf("statuses %v, want %v; the upstream has got %q", got, want, u.all())
	}
}

// A path does not lead out of the path of --upstream, however it is written.
func TestUpstreamPrefix(t *testing.T) {
	t.Parallel()
	u := new(recorder)
	upstream := httptest.NewServer(u)
	t.Cleanup(upstream.Close)
	g := serve(t, "--policy", write(t, "p.yaml", wide), "--upstream", upstream.URL+"/base")
	for _, path := range []string{"/../admin", "/x/../../admin", "/%2e%2e/admin", "/.%2E/admin", `/..\admin`, "/..%5cadmin",
		"/..%2fadmin", "/%252e%252e/admin", "/%252e%252e%252fadmin", "/%25252e./admin", "/..;x/admin", "/..%3bx/admin", "/%zz/%252e./admin"} {
		if status, body := raw(t, g, "GET "+path+" HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"); status != 400 {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
	if got := u.all(); len(got) > 0 {
		t.Errorf("the upstream has got %q", got)
	}
	for _, path := range []string{"/", "/a..b", "/...", "/a/./b", "/x%2fy?z=/../"} {
		if status, _ := raw(t, g, "GET "+path+" HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"); status != 200 {
			t.Errorf("%s: %d", path, status)
		}
	}
	if got, want := u.all(), []string{"GET a /base/ ", "GET a /base/a..b ", "GET a /base/... ", "GET a /base/a/./b ", "GET a /base/x%2fy?z=/../ "}; !slices.Equal(got, want) {
		t.Errorf("the upstream has got %q, want %q", got, want)
	}
}

// The query goes on as it was decided about, and a request without a host is decided by
// the one that the upstream gets.
func TestPassedOnAsDecided(t *testing.T) {
	t.Parallel()
	u := new(recorder)
	upstream := httptest.NewServer(u)
	t.Cleanup(upstream.Close)
	name := strings.TrimPrefix(upstream.URL, "http://")
	g := serve(t, "--upstream", upstream.URL, "--policy", write(t, "p.yaml",
		"version: 1\nrules: [{name: a, hosts: [127.0.0.1], limit: 2/day}]\n"))
	for _, test := range []struct {
		send   string
		status int
		seen   string
	}{
		{"GET /?b=1;c=%zz&a=%&; HTTP/1.1\r\nHost: x.test", 200, "GET x.test /?b=1;c=%zz&a=%&; "},
		{"GET /? HTTP/1.1\r\nHost: x.test", 200, "GET x.test /? "},
		{"GET / HTTP/1.0", 200, "GET " + name + " / "},
		{"GET / HTTP/1.1\r\nHost:", 200, "GET " + name + " / "},
		{"GET / HTTP/1.0", 429, ""},
		{"GET http://127.0.0.1/ HTTP/1.0", 429, ""},
	} {
		before := len(u.all())
		status, _ := raw(t, g, test.send+"\r\nConnection: close\r\n\r\n")
		seen := strings.Join(u.all()[before:], "|")
		if status != test.status || seen != test.seen {
			t.Errorf("%q: %d, and the upstream has got %q; want %d and %q", test.send, status, seen, test.status, test.seen)
		}
	}
}
