package authrequest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
)

// limiter is a server with askers, and what it has decided about and logged.
type limiter struct {
	t   *testing.T
	url string

	mu    sync.Mutex
	asked []policy.Request
	log   bytes.Buffer
}

func (l *limiter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.log.Write(p)
}

func (l *limiter) logged() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.log.String()
}

func askers(t testing.TB, names ...string) (all []Asker) {
	t.Helper()
	for _, name := range names {
		a, err := ParseAsker(name)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, a)
	}
	return all
}

func engine(t testing.TB, doc policy.Document) *policy.Engine {
	t.Helper()
	p, err := policy.Compile(doc)
	if err != nil {
		t.Fatal(err)
	}
	return policy.NewEngine(memory.New(), p)
}

func start(t *testing.T, doc policy.Document, c Config, names ...string) *limiter {
	t.Helper()
	l := &limiter{t: t}
	c.Engine, c.Askers, c.Logger = engine(t, doc), askers(t, names...), slog.New(slog.NewTextHandler(l, nil))
	c.Engine.Observe(func(_ context.Context, o *policy.Observation) {
		l.mu.Lock()
		defer l.mu.Unlock()
		r := *o.Request
		r.Header = r.Header.Clone()
		l.asked = append(l.asked, r)
	})
	s := httptest.NewServer(Handler(c, http.NotFoundHandler()))
	t.Cleanup(s.Close)
	l.url = s.URL
	return l
}

// ask asks as a proxy does: header has names and values, and the path is sent as it is.
func (l *limiter) ask(method, path, body string, header ...string) (*http.Response, string) {
	l.t.Helper()
	r, err := http.NewRequestWithContext(l.t.Context(), method, l.url, strings.NewReader(body))
	if err != nil {
		l.t.Fatal(err)
	}
	r.URL.Opaque = path
	for i := 0; i < len(header); i += 2 {
		if header[i] == "Host" {
			r.Host = header[i+1]
		}
		r.Header.Add(header[i], header[i+1])
	}
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		l.t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		l.t.Fatal(err)
	}
	return resp, string(data)
}

func (l *limiter) status(want int, method, path, body string, header ...string) *http.Response {
	l.t.Helper()
	resp, text := l.ask(method, path, body, header...)
	if resp.StatusCode != want {
		l.t.Errorf("%s %s %q: status %d, want %d: %s", method, path, header, resp.StatusCode, want, text)
	}
	return resp
}

var (
	wide = policy.Document{Rules: []policy.Rule{{Name: "wide", Limit: "100000/day"}}}
	once = policy.Document{Rules: []policy.Rule{{Name: "one", Key: []string{"client_ip"}, Limit: "1/day"}}}

	ofNginx   = []string{"X-Original-Method", "POST", "X-Original-URI", "/a?b=c", "X-Original-Host", "api.test", "X-Real-IP", "192.0.2.1"}
	ofCaddy   = []string{"X-Forwarded-Method", "POST", "X-Forwarded-Uri", "/a?b=c", "X-Forwarded-Host", "api.test", "X-Forwarded-For", "198.51.100.1, 192.0.2.1"}
	questions = map[string][]string{"nginx": ofNginx, "nginx-accel": append([]string{"X-Accel-Location", "@backend"}, ofNginx...), "caddy": ofCaddy, "traefik": ofCaddy}
)

func TestAsked(t *testing.T) {
	l := start(t, wide, Config{}, "nginx", "nginx-accel", "caddy", "traefik", "envoy")
	for name, header := range questions {
		resp := l.status(http.StatusOK, "GET", "/auth/"+name, "", append(header, "Cookie", "c=d")...)
		if location := resp.Header.Get("X-Accel-Redirect"); location != map[string]string{"nginx-accel": "@backend"}[name] {
			t.Errorf("%s: X-Accel-Redirect %q", name, location)
		}
	}
	l.status(http.StatusOK, "POST", "/auth/envoy/a?b=c", "", "Host", "api.test", "X-Sluice-Client", "192.0.2.1", "Cookie", "c=d")
	if len(l.asked) != 5 {
		t.Fatalf("%d decisions", len(l.asked))
	}
	for _, r := range l.asked {
		if r.Method != "POST" || r.Path != "/a" || r.RawQuery != "b=c" || r.Host != "api.test" || r.Peer.String() != "192.0.2.1" || r.Header.Get("Cookie") != "c=d" {
			t.Errorf("decided about %+v", r)
		}
	}
}

// Envoy's question is the request itself, behind a prefix: nothing of its path is cleaned.
func TestEnvoyTarget(t *testing.T) {
	l := start(t, wide, Config{}, "envoy")
	for target, want := range map[string]string{
		"/": "/", "//a/../b": "//a/../b", "/a%2fb": "/a%2fb", "/auth/nginx": "/auth/nginx", "/a%2f|b": "/a%2f%7Cb",
	} {
		l.status(http.StatusOK, "GET", "/auth/envoy"+target, "", "X-Sluice-Client", "2001:db8::1")
		if got := l.asked[len(l.asked)-1]; got.Path != want || got.Peer.String() != "2001:db8::1" {
			t.Errorf("%s: decided about %s of %v", target, got.Path, got.Peer)
		}
	}
	decided := len(l.asked)
	for _, target := range []string{"", "?a=b", "*", "/a#b"} { // of which only * is a target, of OPTIONS
		l.status(http.StatusBadRequest, "GET", "/auth/envoy"+target, "", "X-Sluice-Client", "192.0.2.1")
	}
	if len(l.asked) != decided {
		t.Errorf("decided about %+v", l.asked[decided:])
	}
}

// What a proxy has to tell and does not is never made up: the request is refused as this kind of
// proxy understands it, and the log says what is missing, once.
func TestMissing(t *testing.T) {
	refused := map[string]int{"nginx": 403, "nginx-accel": 503, "caddy": 503, "traefik": 503}
	for name, header := range questions {
		for i := 0; i < len(header); i += 2 {
			for _, fault := range []string{"missing", "empty", "twice"} {
				l := start(t, wide, Config{}, name)
				some := append(append([]string{}, header[:i]...), header[i+2:]...)
				switch fault {
				case "empty":
					some = append(some, header[i], "")
				case "twice":
					if header[i] == "X-Accel-Location" {
						continue // of which the first counts
					}
					some = append(some, header[i], header[i+1], header[i], header[i+1])
				}
				for range 3 {
					if resp := l.status(refused[name], "GET", "/auth/"+name, "", some...); name == "nginx" &&
						(resp.Header.Get("X-RateLimit-Decision") != "deny" || resp.Header.Get("X-RateLimit-Status") != "503") {
						t.Errorf("without %s nginx is told %v", header[i], resp.Header)
					}
				}
				if log := l.logged(); strings.Count(log, "\n") != 1 || !strings.Contains(log, http.CanonicalHeaderKey(header[i])) {
					t.Errorf("%s, %s %s: the log has %q", name, header[i], fault, log)
				}
				if len(l.asked) > 0 {
					t.Errorf("%s, %s %s: decided about %+v", name, header[i], fault, l.asked)
				}
			}
		}
	}
	l := start(t, wide, Config{}, "envoy")
	l.status(http.StatusTooManyRequests, "GET", "/auth/envoy/a", "") // what is 5xx would let it pass
}

// A kind of proxy is not believed in the words of another, and one that is off not at all.
func TestOtherKind(t *testing.T) {
	l := start(t, wide, Config{}, "nginx", "caddy")
	l.status(http.StatusForbidden, "GET", "/auth/nginx", "", ofCaddy...)
	l.status(http.StatusServiceUnavailable, "GET", "/auth/caddy", "", ofNginx...)
	both := append(append([]string{}, ofNginx...), "X-Forwarded-Method", "DELETE", "X-Forwarded-Uri", "/z", "X-Forwarded-Host", "z.test", "X-Forwarded-For", "192.0.2.9")
	l.status(http.StatusOK, "GET", "/auth/nginx", "", both...)
	if got := l.asked[0]; got.Method != "POST" || got.Path != "/a" || got.Host != "api.test" || got.Peer.String() != "192.0.2.1" {
		t.Errorf("decided about %+v", got)
	}
	for _, path := range []string{"/auth/traefik", "/auth/", "/auth/x", "/auth/nginxx", "/other"} {
		l.status(http.StatusNotFound, "GET", path, "", both...)
	}
}

func TestAccelLocation(t *testing.T) {
	l := start(t, wide, Config{}, "nginx-accel")
	for _, location := range []string{"/internal", "@", "@a/b", "@a?b", "backend", "@a b", "@" + strings.Repeat("a", 61)} {
		l.status(http.StatusServiceUnavailable, "GET", "/auth/nginx-accel/x", "", append([]string{"X-Accel-Location", location}, ofNginx...)...)
	}
}

func TestClientOfNginx(t *testing.T) {
	l := start(t, wide, Config{}, "nginx")
	for _, test := range []struct{ said, want string }{{"192.0.2.1", "192.0.2.1"}, {"2001:db8::1", "2001:db8::1"}, {"unix:", "127.0.0.1"}, {"a.test", ""}, {"192.0.2.1, 192.0.2.2", ""}} {
		header := append(append([]string{}, ofNginx[:6]...), "X-Real-IP", test.said)
		if test.want == "" {
			l.status(http.StatusForbidden, "GET", "/auth/nginx", "", header...)
			continue
		}
		l.status(http.StatusOK, "GET", "/auth/nginx", "", header...)
		if got := l.asked[len(l.asked)-1].Peer.String(); got != test.want {
			t.Errorf("%q: the client is %s", test.said, got)
		}
	}
}

func TestToken(t *testing.T) {
	l := start(t, wide, Config{Authorize: isSecret}, "caddy")
	l.status(http.StatusServiceUnavailable, "GET", "/auth/caddy", "", ofCaddy...)
	l.status(http.StatusServiceUnavailable, "GET", "/auth/caddy", "", append([]string{"X-Sluice-Token", "guess"}, ofCaddy...)...)
	l.status(http.StatusOK, "GET", "/auth/caddy", "", append([]string{"X-Sluice-Token", "secret", "Authorization", "Bearer client"}, ofCaddy...)...)
	if h := l.asked[0].Header; h.Get("X-Sluice-Token") != "" || h.Get("Authorization") != "Bearer client" {
		t.Errorf("rules see %v", h)
	}
}

// An ID saves the repetition of the same request, and no other, and none where +id is not given.
func TestID(t *testing.T) {
	l := start(t, once, Config{}, "nginx+id", "caddy")
	ask := func(want int, uri, id string) {
		t.Helper()
		l.status(want, "GET", "/auth/nginx", "", "X-Original-Method", "POST", "X-Original-URI", uri, "X-Original-Host", "api.test", "X-Real-IP", "192.0.2.1", "X-Request-Id", id)
	}
	ask(200, "/a", "1")
	ask(200, "/a", "1")
	ask(403, "/b", "1")
	ask(403, "/a", "2")
	ask(403, "/a", strings.Repeat("1", 201))
	l.status(http.StatusOK, "GET", "/auth/caddy", "", "X-Forwarded-Method", "GET", "X-Forwarded-Uri", "/", "X-Forwarded-Host", "a", "X-Forwarded-For", "192.0.2.2", "X-Request-Id", "3")
	l.status(http.StatusTooManyRequests, "GET", "/auth/caddy", "", "X-Forwarded-Method", "GET", "X-Forwarded-Uri", "/", "X-Forwarded-Host", "a", "X-Forwarded-For", "192.0.2.2", "X-Request-Id", "3")
}

func TestBody(t *testing.T) {
	byName := policy.Document{Rules: []policy.Rule{{Name: "login", Key: []string{"body:username"}, Limit: "1/day"}}}
	l := start(t, byName, Config{}, "envoy+body")
	header := []string{"X-Sluice-Client", "192.0.2.1", "Content-Type", "application/x-www-form-urlencoded"}
	l.status(http.StatusOK, "POST", "/auth/envoy/login", "username=alice", header...)
	l.status(http.StatusTooManyRequests, "POST", "/auth/envoy/login", "username=ALICE", header...)
	l.status(http.StatusOK, "POST", "/auth/envoy/login", "username=bob", header...)
	l.status(http.StatusBadRequest, "POST", "/auth/envoy/login", "username=carol", append(header, "X-Envoy-Auth-Partial-Body", "true")...)
}

// A HEAD that is asked about by GET has an answer without a body, and is no answer that breaks off.
func TestHead(t *testing.T) {
	doc := once
	doc.Answers = map[string]policy.Answer{"429": {Body: policy.Body{Type: "text/plain", Text: "slow down"}}}
	l := start(t, doc, Config{}, "caddy")
	head := append([]string{}, ofCaddy...)
	head[1] = "HEAD"
	l.status(http.StatusOK, "GET", "/auth/caddy", "", head...)
	if _, body := l.ask("GET", "/auth/caddy", "", head...); body != "" {
		t.Errorf("a body: %q", body)
	}
	if _, body := l.ask("GET", "/auth/caddy", "", ofCaddy...); body != "slow down" {
		t.Errorf("to POST: %q", body)
	}
}

// Rules that go by the response count every request, and cost what is estimated.
func TestOutcome(t *testing.T) {
	for _, r := range []policy.Rule{
		{Name: "failed", Limit: "2/day", Count: policy.Count{Status: []policy.Status{"401"}}},
		{Name: "bytes", Limit: "6/day", Cost: policy.Cost{ResponseBytes: 10, Estimate: 3}},
		{Name: "told", Limit: "6/day", Cost: policy.Cost{ResponseHeader: "X-Cost", Estimate: 3, Max: 9}},
	} {
		l := start(t, policy.Document{Rules: []policy.Rule{r}}, Config{}, "caddy")
		l.status(http.StatusOK, "GET", "/auth/caddy", "", ofCaddy...)
		l.status(http.StatusOK, "GET", "/auth/caddy", "", ofCaddy...)
		l.status(http.StatusTooManyRequests, "GET", "/auth/caddy", "", ofCaddy...)
	}
}

func TestParseAsker(t *testing.T) {
	for _, name := range []string{"nginx", "nginx+id", "nginx-accel+body+id", "caddy+id", "traefik+body", "envoy+body+id"} {
		if a, err := ParseAsker(name); err != nil || a.String() != name {
			t.Errorf("%s: %v, %v", name, a, err)
		}
	}
	for name, want := range map[string]string{
		"apache":      `there is no proxy kind "apache": there are nginx, nginx-accel, caddy, traefik, envoy`,
		"":            `there is no proxy kind ""`,
		"nginx+body":  "ask as nginx-accel does",
		"caddy+body":  "forward_auth asks without the body",
		"traefik+id":  "a client could choose it",
		"nginx+x":     `there is no "+x"`,
		"nginx+id+":   `there is no "+"`,
		"NGINX":       "there is no proxy kind",
		"nginx+id,++": "there is no",
	} {
		if a, err := ParseAsker(name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, %v, want %s", name, a.kind, err, want)
		}
	}
}

// Whatever is asked, the answer is one that the proxy takes for what it is.
func FuzzAsk(f *testing.F) {
	f.Add("nginx", "GET", "/a?b", "api.test", "192.0.2.1", "1")
	f.Add("caddy", "HEAD", "//a/%2e%2e/\xff", "[::1]:80", "192.0.2.1, unix:", "")
	f.Add("envoy", "", "*", "a:b:c", "%zone", strings.Repeat("a", 300))
	f.Add("nginx-accel", "CONNECT", "http://a/b#c", "", "::1%eth0", "@b")
	all := askers(f, "nginx+id", "nginx-accel+body", "caddy+id", "traefik+body", "envoy+body+id")
	h := Handler(Config{Engine: engine(f, once), Askers: all, Logger: slog.New(slog.DiscardHandler)}, http.NotFoundHandler())
	f.Fuzz(func(t *testing.T, kind, method, uri, host, client, id string) {
		r := httptest.NewRequest("POST", "/", strings.NewReader("a=b"))
		r.RequestURI = Root + kind
		if kind == "envoy" {
			r.RequestURI, r.Host = r.RequestURI+uri, host
		}
		r.Header = http.Header{
			"X-Original-Method": {method}, "X-Original-Uri": {uri}, "X-Original-Host": {host}, "X-Real-Ip": {client}, "X-Request-Id": {id},
			"X-Forwarded-Method": {method}, "X-Forwarded-Uri": {uri}, "X-Forwarded-Host": {host}, "X-Forwarded-For": {client},
			"X-Sluice-Client": {client}, "X-Accel-Location": {"@" + id},
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		denied := w.Header().Get("X-RateLimit-Decision") == "deny"
		switch {
		case w.Code == http.StatusNotFound && !strings.HasPrefix(kind, "nginx") && kind != "caddy":
		case kind == "nginx" && (w.Code == 200 && !denied || w.Code == 403 && denied):
		case kind == "nginx-accel" && w.Code == 200 && strings.HasPrefix(w.Header().Get("X-Accel-Redirect"), "@"):
		case !strings.HasPrefix(kind, "nginx") && w.Code == 200:
		case kind != "nginx" && (w.Code == 429 || w.Code == 400):
		case (kind == "nginx-accel" || kind == "caddy" || kind == "traefik") && w.Code == 503:
		case strings.ContainsAny(kind, "/?*") || w.Code == http.StatusNotFound: // the kind is what is before it
		default:
			t.Errorf("status %d, %v", w.Code, w.Header())
		}
	})
}

func isSecret(_, token string) error {
	if token != "secret" {
		return errors.New("another token")
	}
	return nil
}
