package doors

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/sluicehq/sluice/cmd/internal/door"
	"github.com/sluicehq/sluice/cmd/internal/door/authrequest"
	"github.com/sluicehq/sluice/internal/seed"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
)

// reading is the part of a request that rules can read, as the policy or the backend gets it.
type reading struct {
	Method, Target, Host, Client string
	Header                       map[string][]string
}

// compared are the header fields that rules can read.
var compared = []string{"Authorization", "Cookie", "X-Api-Key", "Content-Type", "Origin", "User-Agent", "Accept"}

func headersOf(h http.Header) map[string][]string {
	all := map[string][]string{}
	for _, name := range compared {
		if len(h[name]) > 0 {
			all[name] = h[name]
		}
	}
	return all
}

// readers are a limiter and a backend that record the requests that they read. There is only one request at a time.
type readers struct {
	limiter, backend string

	mu     sync.Mutex
	policy []reading
	behind []reading
}

// read starts the limiter and the backend. The proxy sends the client's address to the backend in the field client.
func read(t *testing.T, asker, client string) *readers {
	t.Helper()
	a, err := authrequest.ParseAsker(asker)
	if err != nil {
		t.Fatal(err)
	}
	compiled, err := policy.Compile(policy.Document{Rules: []policy.Rule{{Name: "wide", Limit: "1000000/second"}}})
	if err != nil {
		t.Fatal(err)
	}
	r, engine := &readers{}, policy.NewEngine(memory.New(), compiled)
	engine.Observe(func(_ context.Context, o *policy.Observation) {
		q := o.Request
		target := q.Path
		if q.RawQuery != "" {
			target += "?" + q.RawQuery
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.policy = append(r.policy, reading{cmp.Or(q.Method, "GET"), target, q.Host, q.Peer.String(), headersOf(q.Header)})
	})
	limiter := httptest.NewServer(authrequest.Handler(authrequest.Config{
		Config: door.Config{Engine: engine, Logger: slog.New(slog.NewTextHandler(t.Output(), nil))}, Askers: []authrequest.Asker{a},
	}, http.NotFoundHandler()))
	t.Cleanup(limiter.Close)
	behind := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) {
		_, _ = io.Copy(io.Discard, q.Body)
		r.mu.Lock()
		defer r.mu.Unlock()
		r.behind = append(r.behind, reading{q.Method, q.RequestURI, q.Host, q.Header.Get(client), headersOf(q.Header)})
	}))
	t.Cleanup(behind.Close)
	r.limiter, r.backend = limiter.Listener.Addr().String(), behind.Listener.Addr().String()
	return r
}

// taken returns the requests that were read since the last call.
func (r *readers) taken() (byPolicy, behind []reading) {
	r.mu.Lock()
	defer r.mu.Unlock()
	byPolicy, behind = r.policy, r.behind
	r.policy, r.behind = nil, nil
	return byPolicy, behind
}

// same sends prepared and random requests through a proxy, and compares the requests that the policy has decided about
// with those that the backend has got. The proxy may reject a request by itself.
func (r *readers) same(t *testing.T, addr string, n int) {
	t.Helper()
	random := rand.New(rand.NewPCG(seed.Of(t), 0))
	passed := 0
	requests := byHand()
	for range n {
		requests = append(requests, atRandom(random))
	}
	for _, text := range requests {
		status, _ := raw(t, addr, text)
		byPolicy, behind := r.taken()
		switch {
		case len(behind) == 0: // rejected, by the proxy or the limiter
		case len(byPolicy) != 1 || len(behind) != 1:
			t.Errorf("%q: %s: the policy has decided %d times, and %d got through", text, status, len(byPolicy), len(behind))
		case plain(behind[0].Target) != byPolicy[0].Target:
			t.Errorf("%q: the policy has decided about %q, and the backend got %q", text, byPolicy[0].Target, behind[0].Target)
		default:
			passed++
			byPolicy[0].Target = behind[0].Target
			if !reflect.DeepEqual(byPolicy, behind) {
				t.Errorf("%q: the policy has decided about\n%+v\nand the backend got\n%+v", text, byPolicy, behind)
			}
		}
	}
	t.Logf("%d of %d reached the backend", passed, len(requests))
	if passed < len(requests)/2 {
		t.Errorf("of %d requests, only %d reached the backend: too few to compare", len(requests), passed)
	}
}

// plain returns a target as a policy gets it: without an empty query, and with all characters of the path escaped that
// should have been.
func plain(target string) string {
	path, query, _ := strings.Cut(target, "?")
	var b strings.Builder
	for _, c := range []byte(path) {
		if c > '~' || strings.IndexByte(`"<>\^{|}`+"`", c) >= 0 {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	if query != "" {
		b.WriteString("?" + query)
	}
	return b.String()
}

var targets = []string{
	"/", "/login", "//login", "/a//b", "/./login", "/x/../login", "/x/%2e%2e/login", "/a%2fb", "/a%2Fb", "/%6cogin", "/login;x=1", "/LOGIN",
	"/login/", "/login/.", "/a%20b", "/a%25b", "/a%3fb", "/caf%c3%a9", "/caf\xc3\xa9", "/a?b=c", "/a?b=c&b=d", "/a?", "/a?x=%2f&y=%zz",
	"/a?b=c?d", "/a?b=//../c", "/a+b", "/a!$&'()*,:@", "/a%00b", "/a%0ab", "/~user", "/a|b", `/a\b`, "/a\"b", "/a<b>", "/a{b}", "/a^b", "/a`b", "/a#b",
	"http://evil.test/login", "http://evil.test", "*", "/auth/nginx", "/_sluice", "/..", "/../login", "/%2e%2e/login", "/a;b/c", "/%zz", "/a%",
	"/?id=1", "/?x-original-uri=/b", "/" + strings.Repeat("a", 2000),
}

func byHand() (all []string) {
	for _, target := range targets {
		all = append(all, request("GET", target, "api.test", ""))
	}
	for _, method := range []string{"POST", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD", "get", "PURGE", "X"} {
		all = append(all, request(method, "/login", "api.test", ""))
	}
	for _, host := range []string{"API.test", "api.test:80", "api.test.", "127.0.0.1", "[::1]", "a_b.test"} {
		all = append(all, request("GET", "/login", host, ""))
	}
	for _, header := range append(forged, headers...) {
		all = append(all, request("GET", "/login", "api.test", header+"\r\n"))
	}
	return all
}

// forged are fields with which clients may try to forge properties of their requests.
var forged = []string{
	"X-Original-URI: /free", "X-Original-Uri: /free", "X_Original_URI: /free", "X-Original-Method: OPTIONS", "X-Original-Host: other.test",
	"X-Forwarded-Uri: /free", "X-Forwarded-Method: OPTIONS", "X-Forwarded-Host: other.test", "X-Forwarded-For: 192.0.2.9", "X-Real-IP: 192.0.2.9",
	"Forwarded: for=192.0.2.9", "X-Sluice-Client: 192.0.2.9", "X-Accel-Location: @other", "X-Accel-Redirect: /free", "X-Request-Id: 1",
	"X-Envoy-Auth-Partial-Body: true", "X-Original-URL: /free", "X-Rewrite-URL: /free", "X-Sluice-Token: a", "Connection: X-Real-IP, X-Original-URI, X-Forwarded-For",
}

var headers = []string{
	"Cookie: a=b; c=d", "Cookie: a=b\r\nCookie: c=d", "Authorization: Bearer abc", "Authorization: Basic YTpi", "X-API-Key: k-1", "X-API-Key: k-1\r\nX-API-Key: k-2",
	"x-api-key: k-1", "X_API_Key: k-1", "X-API-Key: ", "Origin: https://app.test", "Connection: X-API-Key\r\nX-API-Key: k-1", "Connection: Cookie\r\nCookie: a=b",
	"Content-Type: application/json", "User-Agent: a", "Accept: text/html", "X-API-Key: \xff", "Connection: keep-alive, Authorization\r\nAuthorization: Bearer a",
}

func request(method, target, host, header string) string {
	return fmt.Sprintf("%s %s HTTP/1.1\r\nHost: %s\r\n%sConnection: close\r\n\r\n", method, target, host, header)
}

func atRandom(random *rand.Rand) string {
	pick := func(from []string) string { return from[random.IntN(len(from))] }
	target := "/"
	for range 1 + random.IntN(6) {
		target += pick([]string{"a", "login", "/", "//", ".", "..", "%2f", "%2e", "%25", "%61", ";", "+", "~", "@", ":", "%C3%A9", "\xc3\xa9", "&", "=", "!", "*", `\`, "%5c", "|"})
	}
	if random.IntN(2) == 0 {
		target += "?"
		for range random.IntN(4) {
			target += pick([]string{"a=b", "&", "?", "/", "..", "%2f", "%zz", "+", "=", "id=1", "//", "\xc3\xa9", "[x]", "'", "|"})
		}
	}
	var more strings.Builder
	for range random.IntN(4) {
		fmt.Fprintf(&more, "%s\r\n", pick(append(forged, headers...)))
	}
	return request(pick([]string{"GET", "POST", "DELETE", "HEAD"}), target, pick([]string{"api.test", "API.test", "api.test:8080"}), more.String())
}
