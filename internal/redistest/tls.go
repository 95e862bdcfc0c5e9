package redistest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/sluicehq/sluice/internal/testkit"
)

// Certs are PEM files: an authority, and a certificate of it for 127.0.0.1 with its key,
// good for servers and clients.
type Certs struct{ CA, Cert, Key string }

// NewCerts makes certificates that are valid for an hour.
func NewCerts(t testing.TB) Certs {
	t.Helper()
	dir := t.TempDir()
	c := Certs{filepath.Join(dir, "ca.pem"), filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")}
	authority := template(1)
	authority.IsCA, authority.BasicConstraintsValid, authority.KeyUsage = true, true, x509.KeyUsageCertSign
	caKey := newKey(t)
	leaf := template(2)
	leaf.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	leaf.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	key := newKey(t)
	writePEM(t, c.CA, "CERTIFICATE", sign(t, authority, authority, caKey, caKey))
	writePEM(t, c.Cert, "CERTIFICATE", sign(t, leaf, authority, key, caKey))
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	writePEM(t, c.Key, "EC PRIVATE KEY", der)
	return c
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

func template(serial int64) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber: big.NewInt(serial),
		Subject:      pkix.Name{CommonName: "redistest " + strconv.FormatInt(serial, 10)},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(time.Hour),
	}
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func sign(t testing.TB, cert, parent *x509.Certificate, key, parentKey *ecdsa.PrivateKey) []byte {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, cert, parent, &key.PublicKey, parentKey)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

func writePEM(t testing.TB, path, kind string, der []byte) {
	t.Helper()
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
}
