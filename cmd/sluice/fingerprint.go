package main

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"

	"github.com/sluicehq/sluice/cmd/internal/ja4"
	"github.com/sluicehq/sluice/policy"
)

// fingerprintKey is where the context of a connection has the fingerprint of its client, which
// the handshake fills in.
type fingerprintKey struct{}

// noteFingerprints makes server know the fingerprints of those who come by way of config.
func noteFingerprints(server *http.Server, config *tls.Config) {
	server.ConnContext = func(ctx context.Context, _ net.Conn) context.Context {
		return context.WithValue(ctx, fingerprintKey{}, new(string))
	}
	next := config.GetConfigForClient
	config.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		if f, ok := hello.Context().Value(fingerprintKey{}).(*string); ok {
			*f = ja4.Of(hello)
		}
		return next(hello)
	}
}

// fingerprint returns what httplimit asks for the JA4 of a request; nil if there is no TLS.
func (s *serveSettings) fingerprint() func(*http.Request) string {
	if s.tls.cert == "" {
		return nil
	}
	return func(r *http.Request) string {
		if f, ok := r.Context().Value(fingerprintKey{}).(*string); ok {
			return *f
		}
		return ""
	}
}

// accept says which rules count by what a door does not see.
func (s *serveSettings) accept(p *policy.Policy) error {
	all := s.doors.lacking(p)
	if s.upstream.any() && s.tls.cert == "" {
		all = append(all, p.WithoutTLS("give --tls-cert and --tls-key")...)
	}
	if len(all) == 0 {
		return nil
	}
	return all
}
