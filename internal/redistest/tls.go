package redistest

import (
	"strconv"
	"testing"

	"github.com/sluicehq/sluice/internal/testkit"
)

// Certs are PEM files: an authority, and a certificate of it for 127.0.0.1 with its key,
// good for servers and clients.
type Certs struct{ CA, Cert, Key string }

// NewCerts makes certificates that are valid for an hour.
func NewCerts(t testing.TB) Certs {
	t.Helper()
	a := testkit.NewAuthority(t)
	cert, key := a.Make("redistest")
	return Certs{a.CA, cert, key}
}

// Settings returns settings for [Start] of a server with TLS: see [Server.TLSAddr]. It
// asks for client certificates.
func (c Certs) Settings(t testing.TB) []string {
	t.Helper()
	return []string{
		"--tls-port", strconv.Itoa(testkit.Port(t)), "--tls-ca-cert-file", c.CA,
		"--tls-cert-file", c.Cert, "--tls-key-file", c.Key,
	}
}
