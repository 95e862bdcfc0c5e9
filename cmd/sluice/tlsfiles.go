package main

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
)

// tlsFiles are the certificates of an address, in files that may be renewed.
type tlsFiles struct {
	prefix        string // of the flags: "--admin-"
	cert, key, ca string
	log           *slog.Logger // nil: nothing is served yet

	keys *tlsKeys // what the files say; nil until they have been read
}

// flags adds the flags of an address, which what names.
func (t *tlsFiles) flags(f *pflag.FlagSet, prefix, what, ca string) {
	t.prefix = "--" + prefix
	f.StringVar(&t.cert, prefix+"tls-cert", "", "`file` with the certificate of "+what)
	f.StringVar(&t.key, prefix+"tls-key", "", "`file` with its key")
	f.StringVar(&t.ca, prefix+"tls-client-ca", "", ca)
}

func (t *tlsFiles) check() error {
	switch {
	case (t.cert == "") != (t.key == ""):
		return fmt.Errorf("%[1]stls-cert and %[1]stls-key: give both", t.prefix)
	case t.ca != "" && t.cert == "":
		return fmt.Errorf("%[1]stls-client-ca: clients show certificates only to an https address: give %[1]stls-cert and %[1]stls-key, too", t.prefix)
	}
	_, err := t.config(tls.NoClientCert)
	return err
}

// config returns how an address speaks TLS, and the protocols within, or nil. Its files are
// followed, and read once for all addresses. auth is what clients have to show where there is a
// CA.
func (t *tlsFiles) config(auth tls.ClientAuthType, protocols ...string) (*tls.Config, error) {
	if t.cert == "" {
		return nil, nil
	}
	if t.keys == nil {
		text, err := t.read()
		if err != nil {
			return nil, err
		}
		first, err := t.parse(text)
		if err != nil {
			return nil, err
		}
		t.keys = &tlsKeys{files: t}
		t.keys.current.Store(first)
	}
	type made struct {
		of     *keyPair
		config *tls.Config
	}
	var last atomic.Pointer[made]
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		// The keys of tickets are those of this config, whatever is returned.
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			pair, m := t.keys.get(), last.Load()
			if m == nil || m.of != pair {
				m = &made{pair, pair.config(auth, protocols)}
				last.Store(m)
			}
			return m.config, nil
		},
	}, nil
}

// tlsText is what the files hold: certificate, key, CA.
type tlsText [3]string

func (t *tlsFiles) read() (text tlsText, err error) {
	for i, file := range []struct{ flag, path string }{{"tls-cert", t.cert}, {"tls-key", t.key}, {"tls-client-ca", t.ca}} {
		if file.path == "" {
			continue
		}
		data, err := os.ReadFile(file.path)
		if err != nil {
			return text, unreadable(t.prefix+file.flag, err)
		}
		text[i] = string(data)
	}
	return text, nil
}

// keyPair is what clients are shown, and what theirs are held against.
type keyPair struct {
	text    tlsText
	pair    tls.Certificate
	clients *x509.CertPool // nil: clients need none
}

func (t *tlsFiles) parse(text tlsText) (*keyPair, error) {
	pair, err := tls.X509KeyPair([]byte(text[0]), []byte(text[1]))
	if err != nil {
		return nil, fmt.Errorf("%[1]stls-cert, %[1]stls-key: %[2]w", t.prefix, err)
	}
	k := &keyPair{text: text, pair: pair}
	if t.ca == "" {
		return k, nil
	}
	k.clients = x509.NewCertPool()
	if !k.clients.AppendCertsFromPEM([]byte(text[2])) {
		return nil, errors.New(t.prefix + "tls-client-ca: " + t.ca + " has no certificate in PEM")
	}
	return k, nil
}

// timely says that the certificate does not hold now.
func (k *keyPair) timely(now time.Time) error {
	switch leaf := k.pair.Leaf; {
	case now.After(leaf.NotAfter):
		return errors.New("the certificate has expired")
	case now.Before(leaf.NotBefore):
		return fmt.Errorf("the certificate holds from %s on", leaf.NotBefore.Format(time.RFC3339))
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

// tlsKeys follows the files: whoever connects looks at them, at most once a second. So it does
// not matter how they are replaced: written anew, renamed, or behind a link that is.
type tlsKeys struct {
	files   *tlsFiles
	current atomic.Pointer[keyPair]
	next    atomic.Int64 // when they are to be looked at, in nanoseconds since 1970
	looking atomic.Bool  // who has set it owns what follows

	suspect string // why they could not be taken, when they were last looked at
	told    bool   // it has been logged
}

// lookForRenewal is how long what was read is taken for what is there.
const lookForRenewal = time.Second

func (k *tlsKeys) get() *keyPair {
	if time.Now().UnixNano() >= k.next.Load() && k.looking.CompareAndSwap(false, true) {
		k.look(time.Now())
		k.next.Store(time.Now().Add(lookForRenewal).UnixNano())
		k.looking.Store(false)
	}
	return k.current.Load()
}

func (k *tlsKeys) look(now time.Time) {
	old := k.current.Load()
	text, err := k.files.read()
	if err == nil && text == old.text {
		k.suspect, k.told = "", false
		return
	}
	var found *keyPair
	if err == nil {
		found, err = k.files.parse(text)
	}
	if err == nil && old.timely(now) == nil {
		if err = found.timely(now); err != nil {
			err = fmt.Errorf("%stls-cert: %w", k.files.prefix, err)
		}
	}
	if err != nil {
		k.refuse(err)
		return
	}
	k.current.Store(found)
	k.suspect, k.told = "", false
	k.files.log.Info("certificate renewed", "file", k.files.cert, "until", found.pair.Leaf.NotAfter)
}

// refuse keeps what is in force. Files that are replaced one after another do not fit each other
// for a moment: only what is wrong twice is told, and once.
func (k *tlsKeys) refuse(err error) {
	if again := k.suspect == err.Error(); again && !k.told {
		k.files.log.Error("new certificate refused, the old one stays", "error", err)
		k.told = true
	} else if !again {
		k.suspect, k.told = err.Error(), false
	}
}
