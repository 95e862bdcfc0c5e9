package server

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/pflag"

	"github.com/sluicehq/sluice/cmd/internal/command"
	"github.com/sluicehq/sluice/cmd/internal/door/proxy"
	"github.com/sluicehq/sluice/cmd/internal/sample"
	"github.com/sluicehq/sluice/cmd/internal/server/certificates"
	"github.com/sluicehq/sluice/cmd/internal/server/listeners"
	"github.com/sluicehq/sluice/httplimit"
	"github.com/sluicehq/sluice/telemetry"
)

// gatewaySettings configure the gateway and its upstreams.
type gatewaySettings struct {
	address     command.Address
	tls         certificates.Files
	upstreams   upstreams
	upstreamCA  string // a file
	timeout     command.Duration
	idleTimeout command.Duration
	maxBody     command.Size
	keepHeaders []string
	quotaPath   command.PlainPath
}

func (s *gatewaySettings) addFlags(f *pflag.FlagSet) {
	s.address = ":8080"
	s.timeout, s.idleTimeout = command.Duration(time.Minute), command.Duration(5*time.Minute)
	f.Var(&s.address, "proxy", "address that the gateway listens on")
	s.tls.AddFlags(f, "", "the gateway; enables TLS, with HTTP/1.1 and HTTP/2",
		"`file` with CA certificates for verifying clients; makes client certificates mandatory")
	f.Var(&s.upstreams, "upstream", "where to forward requests: an http or https URL, h2c://… for HTTP/2 without TLS, or \"sample\" for the\n"+
		"built-in API; may be repeated as HOST=URL for hosts with their own upstream")
	f.StringVar(&s.upstreamCA, "upstream-ca", "", "`file` with the CA certificates to trust for https upstreams (default the system's)")
	f.Var(&s.timeout, "upstream-timeout", "maximum wait for the head of a response; 0 means no limit")
	f.Var(&s.idleTimeout, "idle-timeout", "maximum silence of the upstream within a response, or of both sides of a WebSocket or gRPC call; 0 means no limit")
	f.Var(&s.maxBody, "max-body", "maximum size of a request body; 0, the default, means no limit")
	f.StringSliceVar(&s.keepHeaders, "keep-headers", nil, "`names` of header fields to forward although they can change the path, the method or the host,\n"+
		"such as X-HTTP-Method-Override; otherwise they are dropped")
	f.Var(&s.quotaPath, "quota-path", "path where clients can read their remaining quota, such as /v1/quota (default none)")
}

func (s *gatewaySettings) check() error {
	for _, name := range s.keepHeaders {
		if err := proxy.CheckKeep(name); err != nil {
			return fmt.Errorf("--keep-headers: %w", err)
		}
	}
	return nil
}

// openGateway opens the address of --proxy, and the sample API if an upstream is "sample".
func (s *server) openGateway(connections *proxy.Connections) error {
	handler, err := s.gatewayHandler(connections.Most)
	if err != nil {
		return err
	}
	g, c := &s.settings.gateway, &s.settings.connections
	l, err := s.listeners.Open("--proxy", string(g.address))
	if err != nil {
		return err
	}
	l.Socket = connections.Listener(l.Socket, time.Duration(c.stallTimeout))
	web := proxy.Server(handler, proxy.Client{
		HeaderTimeout: time.Duration(c.headerTimeout),
		StallTimeout:  time.Duration(c.stallTimeout),
		Silence:       time.Duration(g.idleTimeout),
		MaxHeader:     int(c.maxHeader),
		Log:           s.log,
	})
	certs, err := g.tls.Follow(s.log)
	if err != nil {
		return err
	}
	if config := certs.Config(tls.RequireAndVerifyClientCert, "h2", "http/1.1"); config != nil {
		recordFingerprints(web, config)
		l.Socket = tls.NewListener(l.Socket, config)
	}
	l.Serve(listeners.HTTP(web, l.Socket))
	return nil
}

// gatewayHandler returns the handler of the gateway, which cleans a request, decides about it, and passes it on to
// the upstream.
func (s *server) gatewayHandler(maxConnections int) (http.Handler, error) {
	g, c := &s.settings.gateway, &s.settings.connections
	var authorities *x509.CertPool // nil: those of the system
	var err error
	if g.upstreamCA != "" {
		if authorities, err = command.CertPool(s.origin("upstream-ca"), g.upstreamCA); err != nil {
			return nil, err
		}
	}
	var sampleURL *url.URL
	if g.upstreams.isSample() {
		if sampleURL, err = s.openSample(); err != nil {
			return nil, err
		}
	}
	u := proxy.Upstream{
		URL:     g.upstreams.others.or(sampleURL),
		Hosts:   make(map[string]*url.URL),
		CA:      authorities,
		Timeout: time.Duration(g.timeout),
		MaxBody: int64(g.maxBody),
		Silence: time.Duration(g.idleTimeout),
		Trusted: s.engine.TrustedProxies,
		Keep:    g.keepHeaders,
		Reads:   func(name string) bool { return s.engine.Policy().Reads(name) },
		Log:     s.log,
		Stats: func(target *url.URL) *telemetry.UpstreamStats {
			if target == sampleURL {
				return s.upstreams.byName[sampleUpstream]
			}
			return s.upstreams.byName[target.String()]
		},

		MaxStreams:     cmp.Or(int(c.maxStreams), (maxConnections+1)/2),
		MaxConnections: maxConnections,
	}
	for host, target := range g.upstreams.hosts {
		u.Hosts[host] = target.or(sampleURL)
	}
	config := httplimit.Config{
		Logger: s.log, DegradedField: s.settings.store.degradedField, BodyTimeout: time.Duration(c.headerTimeout),
		QuotaPath: string(g.quotaPath), Door: "gateway",
	}
	if g.tls.Any() {
		config.TLSFingerprint = fingerprint
	}
	limit := config.Policy(s.engine)
	return s.tracer.Gateway(proxy.Clean(u, limit(httplimit.Keep(proxy.Handler(u))))), nil
}

// openSample serves the sample API until the gateway has drained.
func (s *server) openSample() (*url.URL, error) {
	l, err := s.listeners.Open("sample", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	l.ServeLast(sampleServer{listeners.HTTP(&http.Server{Handler: sample.Handler(), ReadHeaderTimeout: time.Minute}, l.Socket)})
	return &url.URL{Scheme: "http", Host: l.Socket.Addr().String()}, nil
}

// sampleServer is the server of the sample API. It does not drain, because the gateway is its only client.
type sampleServer struct{ listeners.Server }

func (sampleServer) Shutdown(context.Context) error { return nil }
