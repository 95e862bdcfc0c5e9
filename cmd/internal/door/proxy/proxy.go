// Package proxy passes requests on to an upstream, and protects both sides from each other's slowness. It
// limits nothing: package server, above it, puts httplimit before it.
//
// Clean runs before the decision, so that the upstream gets the bytes that the decision was about. What cannot be
// passed on as it was read is rejected or dropped. A 101 is passed on only with the Sec-WebSocket-Accept that
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

// Upstream is where requests go.
type Upstream struct {
	// URL is http, https, or h2c for HTTP/2 without TLS. Its path is put before that of each
	// request. It may be nil if there are Hosts.
	URL *url.URL
	// Hosts are where the requests for some hosts go instead: names in lower case, or
	// addresses, without a port.
	Hosts map[string]*url.URL
	// CA are the authorities that https upstreams are held against. If it is nil, those of
	// the system are.
	CA *x509.CertPool
	// Timeout bounds the wait for the head of a response. Zero is no bound. The rest has no bound but Silence.
	Timeout time.Duration
	// Silence bounds the time in which nothing comes of the body of a response, and in
	// which nothing goes either way of a WebSocket. Zero is no bound.
	Silence time.Duration
	// MaxStreams is how many WebSockets, event streams and gRPC streams are open at a time,
	// and MaxConnections how many connections to each upstream. Zero is no bound.
	MaxStreams, MaxConnections int
	// MaxBody is the largest request body in bytes. Zero is no bound.
	MaxBody int64
	// Trusted returns the proxies with trusted X-Forwarded headers.
	Trusted func() []netip.Prefix
	// Keep names fields that [Clean] would drop, and that the upstream needs.
	Keep []string
	// Reads reports whether rules look at the field of that canonical name.
	Reads func(name string) bool
	// Stats returns the counters of the requests to an upstream. If nil, the counts are discarded.
	Stats func(target *url.URL) *telemetry.UpstreamStats
	// Dial opens connections to the upstream. Nil is the Dial of a [net.Dialer].
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Log takes the failures of the upstream.
	Log *slog.Logger
}

// Handler passes requests to u. A request for a host without an upstream gets a 421.
//
// The upstream learns the client from X-Forwarded-For, -Host and -Proto. Those of a trusted peer are passed on, and
// those of other peers replaced. An http or h2c upstream gets the client's Host, an https one its own name.
//
// The target is passed on as it was decided about. "OPTIONS *" is answered here, because it has no path of the
// upstream.
//
// An upstream that cannot be reached is a 502, one that does not answer in time a 504.
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
	target  url.URL // the URL, as a Transport names it
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
		return // net/http sends 200 and no body
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
	if r.ProtoMajor == 1 && r.ContentLength < 0 {
		r = fullDuplex(w, r)
	}
	g.reverse.ServeHTTP(x, r)
}

// fullDuplex lets an HTTP/1 upload without a length go on while the answer is written. Otherwise the
// server discards the rest of the body when an answer begins, and the upstream takes what it has for
// all of it.
func fullDuplex(w http.ResponseWriter, r *http.Request) *http.Request {
	_ = http.NewResponseController(w).EnableFullDuplex()
	u := &upload{ReadCloser: r.Body}
	r = r.WithContext(context.WithValue(r.Context(), uploadKey{}, u))
	r.Body = u
	return r
}

type uploadKey struct{}

// upload is the body of a request of [fullDuplex].
type upload struct {
	io.ReadCloser
	ended atomic.Bool // it was read to its end
}

func (u *upload) Read(p []byte) (int, error) {
	n, err := u.ReadCloser.Read(p)
	if err == io.EOF {
		u.ended.Store(true)
	}
	return n, err
}

// closeAfter ends the connection with the answer if the upload of r has not ended by now. After an interrupted Read
// of a body, the server may not read its rest, and would mistake it for the next request.
func closeAfter(answer http.Header, r *http.Request) {
	if r.ContentLength >= 0 {
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
	r.Out.URL.RawQuery = r.In.URL.RawQuery // as it was read, and not mended
	r.SetURL(&g.target)
	if g.target.Scheme == "http" {
		r.Out.Host = r.In.Host
	}
	// The same map, not a copy: it is filled when the body has been read.
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
// because over HTTP/1 that can wait for the client. Over HTTP/2 closing does not wait, and ends a Read under way:
// until it returns, a Transport of HTTP/2 does not end a call that the client may still send to.
type streamBody struct {
	io.ReadCloser
	client io.Closer
}

func (b *streamBody) Close() error {
	_ = b.client.Close()
	return b.ReadCloser.Close()
}

// forwardedFields name the client to the upstream.
var forwardedFields = [...]string{"X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"}

// setForwarded sets them in place of what came in. Of a chain of addresses only the client and the last
// proxy are passed on: what stood before the client is its own invention.
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

// scheme is that of the connection. The :scheme of HTTP/2 is the client's word for it.
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

// bufferPool lends the buffers that bodies are copied through.
type bufferPool struct{ pool sync.Pool }

func (b *bufferPool) Get() []byte  { return b.pool.Get().(*[32 << 10]byte)[:] }
func (b *bufferPool) Put(p []byte) { b.pool.Put((*[32 << 10]byte)(p)) }
