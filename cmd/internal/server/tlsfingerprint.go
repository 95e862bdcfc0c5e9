package server

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"

	"github.com/sluicehq/sluice/cmd/internal/ja4"
)

// fingerprintKey is the key in a connection's context for the JA4 fingerprint of the client. The handshake sets the
// fingerprint.
type fingerprintKey struct{}

// recordFingerprints changes server and config so that TLS handshakes record the fingerprints of clients.
func recordFingerprints(server *http.Server, config *tls.Config) {
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

// fingerprint returns the JA4 fingerprint of the client that sent a request.
func fingerprint(r *http.Request) string {
	if f, ok := r.Context().Value(fingerprintKey{}).(*string); ok {
		return *f
	}
	return ""
}
