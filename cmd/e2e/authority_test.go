package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"path/filepath"
	"testing"
	"time"
)

// authority signs certificates of tests.
type authority struct {
	t    testing.TB
	dir  string
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
	ca   string // its file
}

func newAuthority(t testing.TB) *authority {
	t.Helper()
	a := &authority{t: t, dir: t.TempDir()}
	a.ca, _ = a.make("ca", nil)
	return a
}

// make makes a certificate, that of the authority if it has none yet, and returns the files.
func (a *authority) make(name string, units []string) (cert, key string) {
	a.t.Helper()
	pair, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name, OrganizationalUnit: units},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, BasicConstraintsValid: true, IsCA: a.cert == nil,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	if a.cert == nil {
		a.cert, a.key = template, pair
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &pair.PublicKey, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	if template == a.cert {
		if a.cert, err = x509.ParseCertificate(der); err != nil {
			a.t.Fatal(err)
		}
	}
	private, err := x509.MarshalPKCS8PrivateKey(pair)
	if err != nil {
		a.t.Fatal(err)
	}
	return a.file(name+".pem", "CERTIFICATE", der), a.file(name+".key", "PRIVATE KEY", private)
}

func (a *authority) file(name, kind string, der []byte) string {
	a.t.Helper()
	path := filepath.Join(a.dir, name)
	overwrite(a.t, path, string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})))
	return path
}

// client returns how a client of the authority's speaks TLS, with a certificate if it is given.
func (a *authority) client(files ...string) *tls.Config {
	a.t.Helper()
	c := &tls.Config{RootCAs: x509.NewCertPool()}
	c.RootCAs.AddCert(a.cert)
	if len(files) == 2 {
		pair, err := tls.LoadX509KeyPair(files[0], files[1])
		if err != nil {
			a.t.Fatal(err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c
}
