// Package proxy passes requests on to an upstream, and protects both sides from each other's slowness. It has no
// limits itself: package server puts httplimit in front of it.
//
// Clean runs before the decision, so that the upstream gets the bytes that were decided about. Everything that
// cannot be passed on unchanged is rejected or dropped. A 101 is passed on only with the Sec-WebSocket-Accept that
// answers the client's key: otherwise a server that lets clients choose the status would open a tunnel.
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
	// URL is http, https, or h2c for HTTP/2 without TLS. Its path is put before that of each
	// request. It may be nil if there are Hosts.
	URL *url.URL
	// Hosts has other URLs for requests for some hosts: names in lower case, or addresses, without a port.
	Hosts map[string]*url.URL
	// CA are the certificate authorities for https upstreams. If it is nil, the system's authorities are used.
	CA *x509.CertPool
	// Timeout bounds the wait for the head of a response. Zero means no bound. The rest of the response is bounded
	// only by Silence.
	Timeout time.Duration
	// Silence bounds the time without data of the body of a response, and the time without data in either direction
	// of a WebSocket. Zero means no bound.
	Silence time.Duration
	// MaxStreams is the most WebSockets, event streams and gRPC streams that are open at a time, and MaxConnections
	// the most connections to each upstream. Zero means no bound.
	MaxStreams, MaxConnections int
	// MaxBody is the largest request body in bytes. Zero is no bound.
	MaxBody int64
	// Trusted returns the proxies with trusted X-Forwarded headers.
	Trusted func() []netip.Prefix
	// Keep names fields that the upstream needs although [Clean] would drop them.
	Keep []string
	// Reads reports whether rules read the field with that canonical name.
	Reads func(name string) bool
	// Stats returns the counters of the requests to an upstream. If nil, the counts are discarded.
	Stats func(target *url.URL) *telemetry.UpstreamStats
	// Dial opens connections to the upstream. Nil is the Dial of a [net.Dialer].
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Log gets the failures of the upstream.
	Log *slog.Logger
}

// Handler passes requests to u. A request for a host without an upstream gets a 421.
//
// The upstream gets the client in X-Forwarded-For, -Host and -Proto. The values of a trusted peer are passed on,
// and the values of other peers are replaced. An http or h2c upstream gets the client's Host, and an https upstream
// its own name.
//
// The target is passed on as it was decided about. "OPTIONS *" is answered here, because it has no path of the
// upstream.
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
	target  url.URL // the URL in the form of a Transport
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
		return // net/http then sends 200 without a body
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

// fullDuplex lets an HTTP/1 upload continue while the answer is written. Otherwise the server discards the rest of
// the body when an answer starts. That does harm: if the body has no length, the upstream would take the part that
// has arrived for the whole body. A Transport over HTTP/2 would break off the answer, because it could not read the
// body to its end.
func fullDuplex(w http.ResponseWriter, r *http.Request) *http.Request {
	_ = http.NewResponseController(w).EnableFullDuplex()
	u := &upload{ReadCloser: r.Body, left: r.ContentLength}
	r = r.WithContext(context.WithValue(r.Context(), uploadKey{}, u))
	r.Body = u
	return r
}

type uploadKey struct{}

// upload is the body of a request of [fullDuplex].
type upload struct {
	io.ReadCloser
	left  int64       // bytes that have not been read; negative if the body has no length
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

// closeAfter ends the connection with the answer if the upload of r has not ended by now. After an interrupted Read
// of a body, the server may not read the rest of the body, and would mistake it for the next request.
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
		return &problem{http.StatusBadRequest, `The path must not have ".." segments.`}
	case g.URL.Scheme == "h2c" && r.Header["Upgrade"] != nil:
		return &problem{http.StatusNotImplemented, "The upstream speaks HTTP/2, over which no WebSocket is passed on."}
	case g.MaxBody > 0 && r.ContentLength > g.MaxBody:
		return tooLarge(g.MaxBody)
	case !printable.ASCII(r.Host):
		return &problem{http.StatusBadRequest, "The host has bytes that are not printable ASCII."}
	}
	return nil
}

func (g *gateway) rewrite(r *httputil.ProxyRequest) {
	r.Out.URL.RawQuery = r.In.URL.RawQuery // the query as it was read, not a corrected one
	r.SetURL(&g.target)
	if g.target.Scheme == "http" {
		r.Out.Host = r.In.Host
	}
	// The same map, not a copy, because it is filled when the body has been read.
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
// because over HTTP/1 Close can wait for the client. Over HTTP/2, Close does not wait, and ends a running Read. An
// HTTP/2 Transport needs this: while the client may still send, the Transport ends a call only after that Read has
// returned.
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

// setForwarded replaces forwardedFields. From a chain of addresses, it passes on only the client and the last
// proxy, because the client may have invented all addresses before its own.
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

// scheme returns the scheme of the connection. The :scheme of HTTP/2 is not used, because the client chooses it.
func scheme(r *http.Request) string {
	if r.TLS != nil {
		return "https"
	}
	return "http"
}

// trustedValue returns the single value of a trusted peer, or else the known one.
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
