package httplimit

import (
	"bufio"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"

	"github.com/sluicehq/sluice/memory"
)

// corsFields returns what an answer says of other origins, several values joined.
func corsFields(h http.Header) map[string]string {
	said := make(map[string]string)
	for name, values := range h {
		if strings.HasPrefix(name, "Access-Control-") || name == "Vary" {
			said[name] = strings.Join(values, "|")
		}
	}
	return said
}

// A refusal tells the pages that may read it, and an answer of the handler is the handler's:
// the door adds only what may be read of its own fields.
func TestCORS(t *testing.T) {
	const (
		allow, credentials, expose = "Access-Control-Allow-Origin", "Access-Control-Allow-Credentials", "Access-Control-Expose-Headers"
		app                        = "https://app.example.com"
		told                       = "RateLimit, RateLimit-Policy, Retry-After, X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset"
	)
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(allow, "https://said.by.upstream")
		w.Header().Set(expose, "X-Own")
		w.Header().Set("Vary", "Accept")
	}))
	defer upstream.Close()
	target, err := url.Parse(upstream.URL)
	if err != nil {
		t.Fatal(err)
	}
	behind := map[string]string{allow: "https://said.by.upstream", expose: "X-Own", "Vary": "Accept"}
	exposing := maps.Clone(behind)
	exposing[expose] = told + "|X-Own"
	for name, test := range map[string]struct {
		cors, origin    string
		passed, refused map[string]string
	}{
		"none":             {"", app, behind, map[string]string{}},
		"allowed":          {"cors: {origins: [" + app + "]}", app, exposing, map[string]string{allow: app, expose: told, "Vary": "Origin"}},
		"with credentials": {"cors: {origins: [" + app + "], credentials: true}", app, exposing, map[string]string{allow: app, credentials: "true", expose: told, "Vary": "Origin"}},
		"not allowed":      {"cors: {origins: [" + app + "]}", "https://evil.test", behind, map[string]string{"Vary": "Origin"}},
		"no origin":        {"cors: {origins: [" + app + "]}", "", behind, map[string]string{"Vary": "Origin"}},
		"every":            {"cors: {origins: '*'}", app, exposing, map[string]string{allow: "*", expose: told}},
	} {
		h := Policy(mustEngine(t, memory.New(), "version: 1\n"+test.cors+"\nrules: [{name: a, limit: 1/day}]\n"))(
			Keep(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }}))
		for i, want := range []map[string]string{test.passed, test.refused} {
			r := httptest.NewRequest("GET", "/", nil)
			if test.origin != "" {
				r.Header.Set("Origin", test.origin)
			}
			w := recorded(h, r)
			if status := []int{200, 429}[i]; w.Code != status || !maps.Equal(corsFields(w.Header()), want) {
				t.Errorf("%s: %d %v, want %v", name, w.Code, corsFields(w.Header()), want)
			}
		}
	}
}

// Browsers go on only after a preflight that has passed: where it is exempt, it does, and
// the request behind it is the one that is counted.
func TestPreflightIsExempt(t *testing.T) {
	h := Policy(mustEngine(t, memory.New(),
		"version: 1\ncors: {origins: [https://app.example.com], preflights: exempt}\nrules: [{name: a, limit: 2/day}]\n"))(things)
	ask := func(method string) int {
		r := httptest.NewRequest(method, "/", nil)
		r.Header.Set("Origin", "https://app.example.com")
		if method == "OPTIONS" {
			r.Header.Set("Access-Control-Request-Method", "PUT")
		}
		return recorded(h, r).Code
	}
	for i, want := range []int{200, 200, 429} {
		if preflight, request := ask("OPTIONS"), ask("PUT"); preflight != 200 || request != want {
			t.Errorf("%d: the preflight %d, the request %d, want 200 and %d", i, preflight, request, want)
		}
	}
}

// What has a body is no preflight, however the body is sent, and its sender is not waited for.
func TestPreflightsHaveNoBody(t *testing.T) {
	const head = "OPTIONS /login.php HTTP/1.1\r\nHost: a\r\nConnection: close\r\nOrigin: https://app.example.com\r\nAccess-Control-Request-Method: POST\r\n"
	server := httptest.NewServer(http.MaxBytesHandler(Policy(mustEngine(t, memory.New(),
		"version: 1\ncors: {origins: [https://app.example.com], preflights: exempt}\nrules: [{name: a, limit: 2/day}]\n"))(things), 1<<20))
	defer server.Close()
	for _, test := range []struct {
		rest string
		want int
	}{
		{"\r\n", 200},
		{"Content-Length: 0\r\n\r\n", 200},
		{"Content-Type: application/json\r\nContent-Length: 20\r\n\r\n{\"username\":\"alice\"}", 200},
		{"Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n", 200},
		{"Content-Length: 1\r\n\r\nx", 429},
		{"Transfer-Encoding: chunked\r\n\r\n", 429},
		{"\r\n", 200},
	} {
		c, err := net.Dial("tcp", server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		fmt.Fprint(c, head+test.rest)
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode != test.want {
			t.Errorf("%q: %s, want %d", test.rest, resp.Status, test.want)
		}
	}
}
