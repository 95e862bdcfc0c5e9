package e2e

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluicehq/sluice/internal/testkit"
)

// operator runs commands as somebody who administers a gateway does.
type operator struct {
	t   testing.TB
	env []string
}

func (g *gateway) operator(env ...string) *operator {
	return &operator{g.t, append([]string{"SLUICE_ADMIN_URL=" + g.admin}, env...)}
}

// run runs a command, which is split at spaces, and returns its exit code and what it says.
func (o *operator) run(command string) (code int, stdout, stderr string) {
	o.t.Helper()
	var out, errs bytes.Buffer
	c := exec.CommandContext(o.t.Context(), testkit.Binary(o.t), strings.Fields(command)...)
	c.Env = append(testkit.Environ(), o.env...)
	c.Stdout, c.Stderr = &out, &errs
	err := c.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		o.t.Fatal(err)
	}
	return c.ProcessState.ExitCode(), out.String(), errs.String()
}

// does runs a command that has to work, and say all of texts.
func (o *operator) does(command string, texts ...string) string {
	o.t.Helper()
	code, stdout, stderr := o.run(command)
	if code != 0 {
		o.t.Fatalf("sluice %s: exit code %d: %s", command, code, stderr)
	}
	o.saying(command, stdout, texts)
	return stdout
}

// fails runs a command that must not work, and has to say all of texts.
func (o *operator) fails(command string, texts ...string) {
	o.t.Helper()
	code, stdout, stderr := o.run(command)
	if code != 1 || stdout != "" {
		o.t.Errorf("sluice %s: exit code %d, want 1: %s%s", command, code, stdout, stderr)
	}
	o.saying(command, stderr, texts)
}

func (o *operator) saying(command, said string, texts []string) {
	o.t.Helper()
	for _, text := range texts {
		if !strings.Contains(said, text) {
			o.t.Errorf("sluice %s says\n%s\nand not %q", command, said, text)
		}
	}
}

// authority signs certificates of tests.
type authority struct {
	t    *testing.T
	dir  string
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
	ca   string // its file
}

func newAuthority(t *testing.T) *authority {
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

const perKey = "version: 1\nrules: [{name: per-key, key: [api_key], missing: skip, limit: 3/day}]\n"

// Certificates take the place of tokens: the one that signs them is trusted to name the role.
func TestAdminCertificates(t *testing.T) {
	t.Parallel()
	ours, theirs := newAuthority(t), newAuthority(t)
	cert, key := ours.make("gateway", nil)
	g := begin(t, "--upstream", "sample", "--policy", write(t, "policy.yaml", perKey),
		"--admin-tls-cert", cert, "--admin-tls-key", key, "--admin-tls-client-ca", ours.ca)
	g.admin = strings.Replace(g.admin, "http:", "https:", 1)
	as := func(by *authority, name string, units ...string) *operator {
		cert, key := by.make(name, units)
		return g.operator("SLUICE_TLS_CA="+ours.ca, "SLUICE_TLS_CERT="+cert, "SLUICE_TLS_KEY="+key)
	}
	g.operator("SLUICE_TLS_CA="+ours.ca).fails("subject api_key=k-1", "who are you?")
	g.operator().fails("subject api_key=k-1", "certificate")
	as(ours, "anna", "sluice-operator").does("reset per-key api_key=k-1")
	as(ours, "bert", "sluice-viewer").does("subject api_key=k-1")
	as(ours, "carl", "sluice-viewer").fails("reset per-key api_key=k-1", "certificate carl has the role viewer")
	as(ours, "dora", "operator").fails("subject api_key=k-1", "who are you?")
	as(theirs, "eve", "sluice-admin").fails("subject api_key=k-1")
	if !strings.Contains(g.Log(), `"actor":"certificate anna"`) {
		t.Errorf("the log does not say who it was: %s", g.Log())
	}
}
