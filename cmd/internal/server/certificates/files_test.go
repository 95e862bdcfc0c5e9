package certificates

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"math/big"
	"os"
	"testing"
	"time"
)

// certify writes a certificate that is valid for an hour from the given time, and its key, into the files.
func certify(t *testing.T, files *Files, serial int64, from time.Time) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(serial), NotBefore: from, NotAfter: from.Add(time.Hour)}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for path, block := range map[string]*pem.Block{files.cert: {Type: "CERTIFICATE", Bytes: cert}, files.key: {Type: "PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// A new certificate that is not valid yet, or has expired, does not replace a valid one.
func TestUntimelyCertificate(t *testing.T) {
	dir, start := t.TempDir(), time.Now().Truncate(time.Second)
	files := &Files{cert: dir + "/cert.pem", key: dir + "/key.pem"}
	certify(t, files, 1, start.Add(-30*time.Minute)) // valid until 30 minutes after the start
	c, err := files.Follow(slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	at := func(after time.Duration, want int64) {
		t.Helper()
		c.reread(start.Add(after))
		if got := c.current.Load().pair.Leaf.SerialNumber.Int64(); got != want {
			t.Errorf("after %v: certificate %d is in force, want %d", after, got, want)
		}
	}
	certify(t, files, 2, start.Add(10*time.Minute)) // valid until 70 minutes after the start
	at(9*time.Minute, 1)
	at(10*time.Minute, 2)
	certify(t, files, 3, start.Add(-time.Hour)) // expired
	at(11*time.Minute, 2)
	at(71*time.Minute, 3) // both have expired, so the new one is used
}
