// Package certificates loads the certificates of a gateway's listeners and the authorities for client certificates.
// It reloads them when the files change. Package server imports it.
package certificates

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"github.com/spf13/pflag"

	"github.com/sluicehq/sluice/cmd/internal/command"
)

// Files are the settings for the certificates of an address. The zero value is an address without TLS.
type Files struct {
	prefix        string // the prefix of the flags, such as "--admin-"
	cert, key, ca string
}

// AddFlags adds the flags of an address. Their names start with prefix. The parameters cert and ca are parts of the
// flags' descriptions.
func (f *Files) AddFlags(flags *pflag.FlagSet, prefix, cert, ca string) {
	f.prefix = "--" + prefix
	flags.StringVar(&f.cert, prefix+"tls-cert", "", "`file` with the certificate of "+cert)
	flags.StringVar(&f.key, prefix+"tls-key", "", "`file` with the private key for --"+prefix+"tls-cert")
	flags.StringVar(&f.ca, prefix+"tls-client-ca", "", ca)
}

// Any reports whether the address uses TLS.
func (f *Files) Any() bool { return f.cert != "" }

// VerifiesClients reports whether certificate authorities for clients are set.
func (f *Files) VerifiesClients() bool { return f.ca != "" }

// Check returns an error if flags are missing or files are invalid.
func (f *Files) Check() error {
	switch {
	case (f.cert == "") != (f.key == ""):
		return fmt.Errorf("%[1]stls-cert and %[1]stls-key: give both", f.prefix)
	case f.ca != "" && f.cert == "":
		return fmt.Errorf("%[1]stls-client-ca: client certificates need TLS: give %[1]stls-cert and %[1]stls-key, too", f.prefix)
	case f.cert == "":
		return nil
	}
	_, err := f.load()
	return err
}

// Follow reads the files, and returns Certificates that follow them, or nil if the address does not use TLS.
func (f *Files) Follow(log *slog.Logger) (*Certificates, error) {
	if f.cert == "" {
		return nil, nil
	}
	first, err := f.load()
	if err != nil {
		return nil, err
	}
	c := &Certificates{files: f, log: log}
	c.current.Store(first)
	return c, nil
}

func (f *Files) load() (*keyPair, error) {
	text, err := f.read()
	if err != nil {
		return nil, err
	}
	return f.parse(text)
}

// Config returns a TLS configuration. The parameter protocols is for ALPN. If a CA for clients is set, the
// parameter auth is the policy for their certificates. Config returns nil for nil Certificates.
func (c *Certificates) Config(auth tls.ClientAuthType, protocols ...string) *tls.Config {
	if c == nil {
		return nil
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		// Session tickets are encrypted with keys of the outer configuration, so they stay valid when the inner one
		// changes.
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			return c.get().config(auth, protocols), nil
		},
	}
}

// texts has the contents of the files: certificate, key and CA.
type texts [3]string

func (f *Files) read() (text texts, err error) {
	for i, file := range []struct{ flag, path string }{{"tls-cert", f.cert}, {"tls-key", f.key}, {"tls-client-ca", f.ca}} {
		if file.path == "" {
			continue
		}
		data, err := os.ReadFile(file.path)
		if err != nil {
			return text, command.Unreadable(f.prefix+file.flag, err)
		}
		text[i] = string(data)
	}
	return text, nil
}

// keyPair has the certificate of the address, and the authorities for client certificates.
type keyPair struct {
	text    texts
	pair    tls.Certificate
	clients *x509.CertPool // nil if clients need no certificate
}

func (f *Files) parse(text texts) (*keyPair, error) {
	pair, err := tls.X509KeyPair([]byte(text[0]), []byte(text[1]))
	if err != nil {
		return nil, fmt.Errorf("%[1]stls-cert, %[1]stls-key: %[2]w", f.prefix, err)
	}
	k := &keyPair{text: text, pair: pair}
	if f.ca == "" {
		return k, nil
	}
	k.clients = x509.NewCertPool()
	if !k.clients.AppendCertsFromPEM([]byte(text[2])) {
		return nil, errors.New(f.prefix + "tls-client-ca: " + f.ca + " has no certificate in PEM")
	}
	return k, nil
}

// checkTime returns an error if the certificate is not valid now.
func (k *keyPair) checkTime(now time.Time) error {
	switch leaf := k.pair.Leaf; {
	case now.After(leaf.NotAfter):
		return errors.New("the certificate has expired")
	case now.Before(leaf.NotBefore):
		return fmt.Errorf("the certificate is valid only from %s", leaf.NotBefore.Format(time.RFC3339))
	}
	return nil
}

func (k *keyPair) config(auth tls.ClientAuthType, protocols []string) *tls.Config {
	c := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{k.pair}, NextProtos: protocols}
	if k.clients != nil {
		c.ClientCAs, c.ClientAuth = k.clients, auth
	}
	return c
}

// Certificates has the certificates in files, and reloads changed files. Handshakes check the files at most once a
// second. Files may be rewritten, or replaced by renaming a file or a link.
type Certificates struct {
	files   *Files
	log     *slog.Logger
	current atomic.Pointer[keyPair]
	next    atomic.Int64 // the time of the next reading, in nanoseconds since 1970
	reading atomic.Bool  // guards the fields below

	problem string // the error of the last reading, or ""
	logged  bool   // the problem was logged
}

// rereadEvery is the minimum time between two readings of the files.
const rereadEvery = time.Second

func (c *Certificates) get() *keyPair {
	if time.Now().UnixNano() >= c.next.Load() && c.reading.CompareAndSwap(false, true) {
		c.reread(time.Now())
		c.next.Store(time.Now().Add(rereadEvery).UnixNano())
		c.reading.Store(false)
	}
	return c.current.Load()
}

func (c *Certificates) reread(now time.Time) {
	old := c.current.Load()
	text, err := c.files.read()
	if err == nil && text == old.text {
		c.problem, c.logged = "", false
		return
	}
	var found *keyPair
	if err == nil {
		found, err = c.files.parse(text)
	}
	if err == nil && old.checkTime(now) == nil {
		if err = found.checkTime(now); err != nil {
			err = fmt.Errorf("%stls-cert: %w", c.files.prefix, err)
		}
	}
	if err != nil {
		c.refuse(err)
		return
	}
	c.current.Store(found)
	c.problem, c.logged = "", false
	c.log.Info("certificate renewed", "file", c.files.cert, "until", found.pair.Leaf.NotAfter)
}

// refuse records the error of a reading, after which the old certificate stays in use. While files are replaced one
// after the other, they may not match for a moment. So refuse logs a problem only when two consecutive readings
// have found it, and only once.
func (c *Certificates) refuse(err error) {
	if again := c.problem == err.Error(); again && !c.logged {
		c.log.Error("invalid certificate ignored, the old one stays in use", "error", err)
		c.logged = true
	} else if !again {
		c.problem, c.logged = err.Error(), false
	}
}
