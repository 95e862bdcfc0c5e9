package main

import (
	"cmp"
	"crypto/x509"
	"errors"
	"net/http"
	"net/url"
	"os"
	"time"

	"github.com/sluicehq/sluice/cmd/internal/door/proxy"
	"github.com/sluicehq/sluice/cmd/internal/sample"
	"github.com/sluicehq/sluice/httplimit"
	"github.com/sluicehq/sluice/policy"
)

// openUpstreams returns the way of a request: cleaned, decided about, passed on. It opens the
// sample API, if that is where requests go.
func (s *serveSettings) openUpstreams(ls *listeners, engine *policy.Engine, connections int) (http.Handler, error) {
	authorities, err := s.authorities()
	if err != nil {
		ls.close()
		return nil, err
	}
	u := proxy.Upstream{
		CA:      authorities,
		Hosts:   make(map[string]*url.URL),
		Timeout: time.Duration(s.upstreamTimeout),
		MaxBody: int64(s.maxBody),
		Silence: time.Duration(s.silence),
		Trusted: engine.TrustedProxies,
		Keep:    s.keepHeaders,
		Reads:   func(name string) bool { return engine.Policy().Reads(name) },
		Log:     ls.log,

		MaxStreams:     cmp.Or(int(s.maxStreams), (connections+1)/2),
		MaxConnections: connections,
	}
	var ours *url.URL
	if s.upstream.isSample() {
		if ours, err = openSample(ls); err != nil {
			return nil, err
		}
	}
	u.URL = s.upstream.rest.or(ours)
	for host, target := range s.upstream.hosts {
		u.Hosts[host] = target.or(ours)
	}
	limit := httplimit.Config{
		Logger: ls.log, DegradedField: s.degradedField, BodyTimeout: time.Duration(s.headerTimeout), QuotaPath: string(s.quotaPath),
		TLSFingerprint: s.fingerprint(), Door: "gateway",
	}.Policy(engine)
	return s.tracing.gateway(proxy.Clean(u, limit(httplimit.Keep(proxy.Handler(u))))), nil
}

// or returns the URL, which is that of ours for the sample API.
func (u upstream) or(ours *url.URL) *url.URL {
	if u.isSample() {
		return ours
	}
	return u.url
}

func openSample(ls *listeners) (*url.URL, error) {
	l, err := ls.open("sample", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	l.http(&http.Server{Handler: sample.Handler(), ReadHeaderTimeout: time.Minute})
	return &url.URL{Scheme: "http", Host: l.socket.Addr().String()}, nil
}

// authorities returns those of --upstream-ca, or nil for the system's.
func (s *serveSettings) authorities() (*x509.CertPool, error) {
	if s.upstreamCA == "" {
		return nil, nil
	}
	data, err := os.ReadFile(s.upstreamCA)
	if err != nil {
		return nil, unreadable(s.origin("upstream-ca"), err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(data) {
		return nil, errors.New(s.origin("upstream-ca") + ": " + s.upstreamCA + " has no certificate in PEM")
	}
	return pool, nil
}
