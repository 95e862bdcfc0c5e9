package httplimit

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/memory"
)

// Whatever target a server takes, a handler gets none that has no path.
func TestTargets(t *testing.T) {
	limiter := mustLimiter(t, memory.New(), "1000/second", sluice.TokenBucket)
	for name, door := range map[string]func(http.Handler) http.Handler{
		"policy": Policy(mustEngine(t, memory.New(), layers)), "limit": Limit(limiter, nil),
	} {
		server := httptest.NewUnstartedServer(door(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprintf(w, "%s %s%s", r.Method, r.Host, r.URL.EscapedPath())
		})))
		server.Config.DisableGeneralOptionsHandler = true
		server.Start()
		defer server.Close()
		for _, test := range []struct{ line, want string }{
			{"GET /x", "200 GET a/x"},
			{"GET //x", "200 GET a//x"},
			{"GET http://b/x", "200 GET b/x"},
			{"GET HTTPS://b:1/x", "200 GET b:1/x"},
			{"GET http://b", "200 GET b"},
			{"OPTIONS *", "200 OPTIONS a*"},
			{"GET /x?a=b#", "400 The request target must not have a fragment."},
			{"GET /x#/../y", "400 The request target must not have a fragment."},
			{"GET http://b/x?#y", "400 The request target must not have a fragment."},
			{"GET *", `400 The target "*" is for OPTIONS only.`},
			{"GET a:http://b/login", "400 The request target must be a path, or an http URL with a host."},
			{"POST http:login", "400 The request target must be a path, or an http URL with a host."},
			{"POST http:/login", "400 The request target must be a path, or an http URL with a host."},
			{"POST ftp://b/login", "400 The request target must be a path, or an http URL with a host."},
			{"GET http://u:p@b/x", "400 The request target must not have a user."},
			{"CONNECT b:443", "400 This is not a forward proxy, and CONNECT is not taken."},
			{"CONNECT /login", "400 This is not a forward proxy, and CONNECT is not taken."},
		} {
			c, err := net.Dial("tcp", server.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(c, "%s HTTP/1.1\r\nHost: a\r\nAccept: text/plain\r\nConnection: close\r\n\r\n", test.line)
			resp, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(resp.Body)
			if err != nil {
				t.Fatal(err)
			}
			c.Close()
			if got := fmt.Sprint(resp.StatusCode, " ", strings.TrimSpace(string(body))); got != test.want {
				t.Errorf("%s: %s: %s, want %s", name, test.line, got, test.want)
			}
			if told := resp.Header.Get("RateLimit") != ""; told != (resp.StatusCode == 200) {
				t.Errorf("%s: %s: RateLimit is told: %v", name, test.line, told)
			}
		}
	}
}

// Over HTTP/2 the target has a place of its own for the host, and one that names another
// is refused.
func TestTargetsOverHTTP2(t *testing.T) {
	for path, want := range map[string]int{"/x": 200, "http://b/x": 400, "a:http://b/x": 400, "*": 400} {
		r := httptest.NewRequest("GET", path, nil)
		r.Proto, r.ProtoMajor, r.ProtoMinor = "HTTP/2.0", 2, 0
		if w := recorded(Policy(mustEngine(t, memory.New(), layers))(things), r); w.Code != want {
			t.Errorf("%s: %d, want %d", path, w.Code, want)
		}
	}
}

// A handler that has been given a part of the path only is none of our business.
func TestTargetBehindStripPrefix(t *testing.T) {
	h := http.StripPrefix("/api/", Policy(mustEngine(t, memory.New(), layers))(things))
	for _, path := range []string{"/api/", "/api/other", "/api/*"} {
		if w := recorded(h, httptest.NewRequest("GET", path, nil)); w.Code != 200 {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
}

func TestNominatedFields(t *testing.T) {
	all := []string{"Connection", "Forwarded", "Te", "Upgrade", "X-Api-Key", "X-Forwarded-For", "X-Other", "X-Real-Ip"}
	for _, test := range []struct {
		connection []string
		header     string
		gone       []string
	}{
		{[]string{"keep-alive"}, "", nil},
		{[]string{"close, x-API-key"}, "", []string{"X-Api-Key"}},
		{[]string{"X-Other", "\tX-Api-Key ,,x-real-ip"}, "", []string{"X-Api-Key", "X-Other", "X-Real-Ip"}},
		{[]string{"Upgrade, TE, Connection, Forwarded, X-Forwarded-For"}, "", nil},
		{[]string{"X-Real-IP"}, "X-Real-IP", nil},
	} {
		var seen []string
		h := Config{ForwardedHeader: test.header}.Policy(mustEngine(t, memory.New(), layers))(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			for name := range r.Header {
				seen = append(seen, name)
			}
		}))
		r := httptest.NewRequest("GET", "/", nil)
		for _, name := range all {
			r.Header.Set(name, "1")
		}
		r.Header["Connection"] = test.connection
		recorded(h, r)
		slices.Sort(seen)
		want := slices.DeleteFunc(slices.Clone(all), func(s string) bool { return slices.Contains(test.gone, s) })
		if !slices.Equal(seen, want) {
			t.Errorf("Connection: %q: the handler sees %v, want %v", test.connection, seen, want)
		}
	}
}

// A client that nominates more fields than any would is refused, and not counted.
func TestTooManyNominatedFields(t *testing.T) {
	h := Policy(mustEngine(t, memory.New(), layers))(things)
	for _, test := range []struct {
		connection []string
		want       int
	}{
		{[]string{strings.Repeat("a,", 497) + "close"}, 200},
		{[]string{strings.Repeat("a,", 498) + "close"}, 400},
		{[]string{strings.Repeat("a", 1000)}, 400},
		{slices.Repeat([]string{"a,b"}, 250), 200},
		{slices.Repeat([]string{"a,b"}, 251), 400},
	} {
		r := httptest.NewRequest("GET", "/", nil)
		r.Header["Connection"] = test.connection
		if w := recorded(h, r); w.Code != test.want || (w.Header().Get("RateLimit") != "") != (test.want == 200) {
			t.Errorf("%d lines, %.20q: %d %s", len(test.connection), test.connection, w.Code, w.Body)
		}
	}
}
