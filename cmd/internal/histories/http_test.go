package histories

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/cmd/internal/door"
	"github.com/sluicehq/sluice/cmd/internal/door/authrequest"
	"github.com/sluicehq/sluice/cmd/internal/door/proxy"
	"github.com/sluicehq/sluice/httplimit"
	"github.com/sluicehq/sluice/internal/testkit"
)

// stepField is the header field with the name of a request for the backend. idField is the field with a request's ID.
const (
	stepField = "X-Step"
	idField   = "X-Request-Id"
)

// backend is the handler behind a limit.
type backend struct {
	mu   sync.Mutex
	last int
	sent map[string]*ongoing
}

// expect registers a request and returns its name.
func (b *backend) expect(o *ongoing) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.last++
	name := strconv.Itoa(b.last)
	if b.sent == nil {
		b.sent = make(map[string]*ongoing)
	}
	b.sent[name] = o
	return name
}

func (b *backend) find(name string) *ongoing {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.sent[name]
}

func (b *backend) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	o := b.find(r.Header.Get(stepField))
	if body, err := io.ReadAll(r.Body); err != nil || string(body) != o.body {
		w.WriteHeader(http.StatusTeapot)
		return
	}
	status, size := http.StatusOK, 0
	if o.response != nil {
		if o.holds {
			<-o.release
		}
		for name, values := range o.response.header {
			w.Header()[name] = values
		}
		status, size = o.response.status, o.response.bytes
	}
	w.WriteHeader(status)
	_, _ = io.WriteString(w, strings.Repeat("x", size))
	if o.holds && o.response == nil {
		_ = http.NewResponseController(w).Flush()
		<-o.release
	}
}

// viaHandler sends requests to an HTTP handler, which passes them to the backend.
func viaHandler(p *player, handler http.Handler, behind *backend, change func(*http.Request)) func(*ongoing) {
	return func(o *ongoing) {
		switch {
		case o.mode != "":
			p.cannot("requests are only charged")
		case o.id != "" && p.layer.name == "gateway":
			p.cannot("it takes no IDs")
		}
		var body io.Reader // nil: no body
		if o.body != "" {
			body = strings.NewReader(o.body)
		}
		r := httptest.NewRequestWithContext(p.Context(), o.method, o.path, body)
		r.RemoteAddr = net.JoinHostPort(o.client, "4711")
		r.Header = o.fields()
		r.Header.Set(stepField, behind.expect(o))
		if o.id != "" {
			r.Header.Set(idField, o.id)
		}
		change(r)
		w := &answerWriter{header: make(http.Header), heads: func(status int, h http.Header) {
			if o.response != nil && status == o.response.status && h.Get("Retry-After") == "" {
				status = http.StatusOK // the response of the backend
			}
			o.got = p.readFields(status, h)
		}}
		handler.ServeHTTP(w, r)
		w.WriteHeader(http.StatusOK)
	}
}

// answerWriter calls heads with the head of a response.
type answerWriter struct {
	header http.Header
	heads  func(status int, h http.Header)
	wrote  bool
}

func (w *answerWriter) Header() http.Header { return w.header }

func (w *answerWriter) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return len(p), nil
}

func (w *answerWriter) WriteHeader(status int) {
	if !w.wrote {
		w.wrote = true
		w.heads(status, w.header)
	}
}

func (w *answerWriter) Flush() { w.WriteHeader(http.StatusOK) }

var (
	remains = regexp.MustCompile(`"([^"]+)";r=(\d+)`)
	quotas  = regexp.MustCompile(`"([^"]+)";q=(\d+)`)
)

// readFields reads the header fields that all HTTP integrations set.
func (p *player) readFields(status int, h http.Header) (v verdict) {
	v = verdict{status: status}
	fields := strings.Join(h["Ratelimit"], ", ")
	for _, m := range remains.FindAllStringSubmatch(fields, -1) {
		v.left = append(v.left, left{name: m[1], units: p.number(m[2])})
	}
	if policies := quotas.FindAllString(strings.Join(h["Ratelimit-Policy"], ", "), -1); len(policies) != len(v.left) {
		p.Errorf("%s: RateLimit is %q and RateLimit-Policy %q", p.at, fields, h["Ratelimit-Policy"])
	}
	tightest := false
	for _, l := range v.left {
		tightest = tightest || h.Get("X-Ratelimit-Remaining") == strconv.FormatInt(l.units, 10)
	}
	if !tightest && len(v.left) > 0 {
		p.Errorf("%s: RateLimit is %q and X-RateLimit-Remaining %q", p.at, fields, h.Get("X-Ratelimit-Remaining"))
	}
	if status != http.StatusOK {
		v.retry = sluice.Never
		if text := h.Get("Retry-After"); text != "" {
			v.retry = seconds(p.number(text))
		}
	}
	return v
}

func (p *player) number(text string) int64 {
	p.Helper()
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		p.Errorf("%s: %v", p.at, err)
	}
	return n
}

// openMiddleware asks [httplimit].
func openMiddleware(p *player) func(*ongoing) {
	behind := new(backend)
	c := httplimit.Config{Logger: silent(), RequestID: func(r *http.Request) string { return r.Header.Get(idField) }}
	return viaHandler(p, c.Policy(p.engine)(behind), behind, func(*http.Request) {})
}

// openGateway asks the gateway, which reaches its backend through pipes.
func openGateway(p *player) func(*ongoing) {
	behind, network := new(backend), testkit.NewPipes()
	server := &http.Server{Handler: behind}
	go func() { _ = server.Serve(network) }()
	p.Cleanup(func() { _ = server.Close() })
	u := proxy.Upstream{
		URL: &url.URL{Scheme: "http", Host: "backend.test"}, Dial: network.Dial, Log: silent(),
		Trusted: func() []netip.Prefix { return nil },
		Reads:   func(name string) bool { return p.engine.Policy().Reads(name) },
	}
	limit := httplimit.Config{Logger: silent(), Door: "gateway"}.Policy(p.engine)
	return viaHandler(p, proxy.Clean(u, limit(httplimit.Keep(proxy.Handler(u)))), behind, func(*http.Request) {})
}

// openAuthRequest asks as Traefik does. Its answers have the statuses of the decisions.
func openAuthRequest(p *player) func(*ongoing) {
	asker, err := authrequest.ParseAsker("traefik+body")
	if err != nil {
		p.Fatal(err)
	}
	handler := authrequest.Handler(authrequest.Config{
		Config: door.Config{Engine: p.engine, Logger: silent()}, Askers: []authrequest.Asker{asker},
	}, http.NotFoundHandler())
	return viaHandler(p, handler, new(backend), func(r *http.Request) {
		for name, value := range map[string]string{
			"X-Forwarded-Method": r.Method, "X-Forwarded-Uri": r.URL.RequestURI(), "X-Forwarded-Host": r.Host,
			"X-Forwarded-Proto": "http", "X-Forwarded-For": netip.MustParseAddrPort(r.RemoteAddr).Addr().String(),
		} {
			r.Header.Set(name, value)
		}
		r.Method, r.RequestURI, r.URL = "GET", "/auth/traefik", &url.URL{Path: "/auth/traefik"}
		r.RemoteAddr = "127.0.0.1:4711"
	})
}
