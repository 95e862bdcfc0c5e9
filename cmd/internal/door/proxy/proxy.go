// Package proxy passes requests on to an upstream, and protects the upstream and the clients from each other's
// slowness. It does not limit requests: package server puts httplimit in front of it.
//
// Clean runs before the decision, so that the decision and the upstream see the same request. Everything that
// cannot be passed on unchanged is rejected or dropped. A 101 is passed on only if its Sec-WebSocket-Accept answers
// the client's key. Otherwise, clients could open a tunnel through a server that lets them choose the status.
package proxy

import (
	"context"
	"crypto/x509"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluicehq/sluice/internal/exchange"
	"github.com/sluicehq/sluice/internal/printable"
	"github.com/sluicehq/sluice/telemetry"
)

// Upstream configures the upstreams of requests.
type Upstream struct {
	// URL has the scheme http, https, or h2c for HTTP/2 without TLS. Its path is put before the path of each
	// request. It may be nil if Hosts is not empty.
	URL *url.URL
	// Hosts maps the hosts of requests to other URLs. A host is a name in lower case or an address, without a port.
	Hosts map[string]*url.URL
	// CA has the certificate authorities for https upstreams; nil means those of the system.
	CA *x509.CertPool
	// Timeout bounds the wait for the head of a response. Zero means no bound. Only Silence bounds the rest of the
	// response.
	Timeout time.Duration
	// Silence bounds the time without data in the body of a response or, for a WebSocket, in both directions. Zero
	// means no bound.
	Silence time.Duration
	// MaxStreams bounds the open WebSockets, event streams and gRPC streams. MaxConnections bounds the connections
	// to each upstream. Zero means no bound.
	MaxStreams, MaxConnections int
	// MaxBody is the maximum size of a request body in bytes. Zero means no bound.
	MaxBody int64
	// Trusted returns the proxies whose X-Forwarded fields are trusted.
	Trusted func() []netip.Prefix
	// Keep names fields that [Clean] would drop but the upstream needs: see [CheckKeep].
	Keep []string
	// Reads reports whether rules read the field with a canonical name.
	Reads func(name string) bool
	// Stats returns the counters for requests to an upstream. If Stats is nil, the counts are discarded.
	Stats func(target *url.URL) *telemetry.UpstreamStats
	// Dial opens connections to the upstream. If it is nil, a [net.Dialer] opens them.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Log is for failures of the upstream.
	Log *slog.Logger
}

// Handler passes requests to u. A request for a host without an upstream gets a 421.
//
// X-Forwarded-For, -Host and -Proto describe the client to the upstream. X-Forwarded-For has the client's address and,
// if a proxy sent the request, that of the last proxy. Handler passes on the other two from a trusted peer that sends
// exactly one value, and replaces them otherwise. The Host for an http or h2c upstream is the client's Host; for an
// https upstream, it is the upstream's own name.
//
// The target of the request is passed on unchanged, after the path of the upstream's URL. Handler answers "OPTIONS *"
// itself, because that request has no path.
//
// The answer is a 502 if the upstream cannot be reached, and a 504 if it does not answer in time.
func Handler(u Upstream) http.Handler {
	all := &streams{silence: u.Silence, most: u.MaxStreams}
	var rest http.Handler
	if u.URL != nil {
		rest = newGateway(u, all)
	}
	if len(u.Hosts) == 0 {
		return rest
	}
	hosts := make(map[string]http.Handler)
	for host, target := range u.Hosts {
		u.URL = target
		hosts[host] = newGateway(u, all)
	}
	return byHost(hosts, rest)
}

func newGateway(u Upstream, all *streams) *gateway {
	g := &gateway{Upstream: u, target: *u.URL, streams: all}
	if g.target.Scheme == "h2c" {
		g.target.Scheme = "http"
	}
	g.reverse = &httputil.ReverseProxy{
		Rewrite:      g.rewrite,
		Transport:    roundTripper(&u),
		BufferPool:   &buffers,
		ErrorHandler: g.fail,
		ErrorLog:     slog.NewLogLogger(u.Log.Handler(), slog.LevelWarn),
		ModifyResponse: func(resp *http.Response) error {
			g.health.up(u.Log)
			if err := g.streams.bound(resp); err != nil {
				return err
			}
			if call := callOf(resp); call != nil {
				call.answered = true
			}
			closeAfter(resp.Header, resp.Request)
			return nil
		},
	}
	return g
}

type gateway struct {
	Upstream
	target  url.URL // the URL, with the scheme http in place of h2c
	reverse *httputil.ReverseProxy
	health  health
	streams *streams
}

func (g *gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if p := g.refusal(r); p != nil {
		p.write(w)
		return
	}
	if r.URL.Path == "*" {
		return // net/http sends 200 without a body
	}
	if g.MaxBody > 0 && r.Body != nil && r.Body != http.NoBody {
		r.Body = http.MaxBytesReader(w, r.Body, g.MaxBody)
	}
	x := exchange.Join(w, r, nil, nil)
	if !x.Peer.IsValid() {
		g.identify(x, r)
	}
	x.Passed = true
	setForwarded(x, r)
	if r.ProtoMajor == 1 && (r.ContentLength < 0 || r.ContentLength > 0 && g.URL.Scheme != "http") {
		r = fullDuplex(w, r)
	}
	g.reverse.ServeHTTP(x, r)
}

// fullDuplex lets an HTTP/1 upload continue while the answer is written. Otherwise, the server would discard the
// rest of the body when an answer starts. For a body without a length, the upstream would then take the part that
// has arrived for the whole body. An HTTP/2 Transport would break off the answer, because it could not read the
// whole body.
func fullDuplex(w http.ResponseWriter, r *http.Request) *http.Request {
	_ = http.NewResponseController(w).EnableFullDuplex()
	u := &upload{ReadCloser: r.Body, left: r.ContentLength}
	r = r.WithContext(context.WithValue(r.Context(), uploadKey{}, u))
	r.Body = u
	return r
}

type uploadKey struct{}

// upload is the request body that [fullDuplex] sets.
type upload struct {
	io.ReadCloser
	left  int64       // the number of bytes that have not been read; negative if the body has no length
	ended atomic.Bool // the body was read to its end
}

func (u *upload) Read(p []byte) (int, error) {
	n, err := u.ReadCloser.Read(p)
	u.left -= int64(n)
	if err == io.EOF || u.left == 0 {
		u.ended.Store(true)
	}
	return n, err
}

// closeAfter closes the connection after the answer if the upload of r has not ended. After an interrupted Read,
// the server does not always read the rest of the body. It would then take that rest for the next request.
func closeAfter(answer http.Header, r *http.Request) {
	if r.ContentLength == 0 {
		return
	}
	if u, ok := r.Context().Value(uploadKey{}).(*upload); ok && !u.ended.Load() {
		answer.Set("Connection", "close")
	}
}

// refusal returns the answer to a request that cannot be passed on.
func (g *gateway) refusal(r *http.Request) *problem {
	switch {
	case strings.Trim(g.URL.Path, "/") != "" && climbs(r.URL.EscapedPath()):
		return &problem{http.StatusBadRequest, `The path must not contain ".." segments.`}
	case g.URL.Scheme == "h2c" && r.Header["Upgrade"] != nil:
		return &problem{http.StatusNotImplemented, "WebSockets cannot be passed on to this upstream, because it speaks HTTP/2."}
	case g.MaxBody > 0 && r.ContentLength > g.MaxBody:
		return tooLarge(g.MaxBody)
	case !printable.ASCII(r.Host):
		return &problem{http.StatusBadRequest, "The host must consist of printable ASCII characters."}
	}
	return nil
}

func (g *gateway) rewrite(r *httputil.ProxyRequest) {
	r.Out.URL.RawQuery = r.In.URL.RawQuery // the original query, which ReverseProxy may have changed
	r.SetURL(&g.target)
	if g.target.Scheme == "http" {
		r.Out.Host = r.In.Host
	}
	// Use the same map rather than a copy, because the server fills the map when the body has been read.
	r.Out.Trailer = r.In.Trailer
	if r.Out.Body != nil && r.In.ProtoMajor == 2 {
		r.Out.Body = &streamBody{r.Out.Body, r.In.Body}
	}
	for _, name := range forwardedFields {
		if v := r.In.Header[name]; v != nil {
			r.Out.Header[name] = v
		}
	}
}

// streamBody is the body of a request over HTTP/2. ReverseProxy keeps a Transport from closing the client's body,
// because Close can wait for the client over HTTP/1. Over HTTP/2, Close does not wait, and it ends a running Read.
// An HTTP/2 Transport needs this, because it ends a call only after the Read has returned.
type streamBody struct {
	io.ReadCloser
	client io.Closer
}

func (b *streamBody) Close() error {
	_ = b.client.Close()
	return b.ReadCloser.Close()
}

// forwardedFields describe the client to the upstream.
var forwardedFields = [...]string{"X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"}

// setForwarded replaces forwardedFields. From a chain of addresses, it passes on only those of the client and the
// last proxy, because the client may have invented the addresses before its own.
func setForwarded(x *exchange.Exchange, r *http.Request) {
	values := &x.Forwarded
	if x.Peer.IsValid() {
		values[0] = x.Peer.String()
		if x.Client != x.Peer {
			values[0] = x.Client.String() + ", " + values[0]
		}
	}
	values[1] = trustedValue(r.Header, forwardedFields[1], x.Trusted, r.Host)
	values[2] = trustedValue(r.Header, forwardedFields[2], x.Trusted, scheme(r))
	for i, name := range forwardedFields {
		r.Header[name] = values[i : i+1 : i+1]
	}
	if !x.Peer.IsValid() {
		delete(r.Header, forwardedFields[0])
	}
}

// scheme returns the scheme of the connection. It ignores the :scheme of HTTP/2, because the client chooses that.
func scheme(r *http.Request) string {
	if r.TLS != nil {
		return "https"
	}
	return "http"
}

// trustedValue returns the value of a field if a trusted peer sent exactly one, or else the known value.
func trustedValue(in http.Header, name string, trusted bool, known string) string {
	if v := in[name]; trusted && len(v) == 1 {
		return v[0]
	}
	return known
}

var buffers = bufferPool{sync.Pool{New: func() any { return new([32 << 10]byte) }}}

// bufferPool has the buffers through which bodies are copied.
type bufferPool struct{ pool sync.Pool }

func (b *bufferPool) Get() []byte  { return b.pool.Get().(*[32 << 10]byte)[:] }
func (b *bufferPool) Put(p []byte) { b.pool.Put((*[32 << 10]byte)(p)) }
