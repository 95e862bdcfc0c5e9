package main

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/spf13/pflag"

	"github.com/sluicehq/sluice/internal/adminapi"
	"github.com/sluicehq/sluice/policy"
)

// adminAccess says who may use the admin API.
type adminAccess struct {
	tokens        string
	cert, key, ca string
}

func (a *adminAccess) flags(f *pflag.FlagSet) {
	f.StringVar(&a.tokens, "admin-tokens", "", "`file` with tokens for the admin API, a line \"NAME ROLE HASH [UNTIL]\" for each,\nwhere HASH is its SHA-256 in hexadecimal; an empty file lets nobody in")
	f.StringVar(&a.cert, "admin-tls-cert", "", "`file` with the certificate of the admin address, which is https then")
	f.StringVar(&a.key, "admin-tls-key", "", "`file` with its key")
	f.StringVar(&a.ca, "admin-tls-client-ca", "", "`file` with the certificates that sign those of clients of the admin API, in which the\norganizational unit says the role: sluice-viewer, sluice-operator or sluice-admin")
}

func (a *adminAccess) check() error {
	switch {
	case (a.cert == "") != (a.key == ""):
		return errors.New("--admin-tls-cert and --admin-tls-key: give both")
	case a.ca != "" && a.cert == "":
		return errors.New("--admin-tls-client-ca: clients show certificates only to an https address: give --admin-tls-cert and --admin-tls-key, too")
	}
	if _, err := a.tls(); err != nil {
		return err
	}
	if a.tokens != "" {
		if _, err := readTokens(a.tokens); err != nil {
			return unreadable("--admin-tokens", err)
		}
	}
	return nil
}

// configured reports whether callers are asked who they are, whatever a database says.
func (a *adminAccess) configured() bool { return a.tokens != "" || a.ca != "" }

// tls returns how the admin address speaks TLS, or nil. Its files are read for each connection, of
// which there are few, so that new certificates need no restart.
func (a *adminAccess) tls() (*tls.Config, error) {
	if a.cert == "" {
		return nil, nil
	}
	if _, err := a.readTLS(); err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion:         tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return a.readTLS() },
	}, nil
}

func (a *adminAccess) readTLS() (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(a.cert, a.key)
	if err != nil {
		return nil, fmt.Errorf("--admin-tls-cert, --admin-tls-key: %w", err)
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}}
	if a.ca == "" {
		return c, nil
	}
	data, err := os.ReadFile(a.ca)
	if err != nil {
		return nil, unreadable("--admin-tls-client-ca", err)
	}
	c.ClientCAs = x509.NewCertPool()
	if !c.ClientCAs.AppendCertsFromPEM(data) {
		return nil, fmt.Errorf("--admin-tls-client-ca: %s has no certificate in PEM", a.ca)
	}
	// Probes and scrapers have none, and need none.
	c.ClientAuth = tls.VerifyClientCertIfGiven
	return c, nil
}

// tokenFile is a file of tokens, which is read again when it changes.
type tokenFile struct {
	path string

	mu       sync.Mutex
	modified time.Time
	size     int64
	tokens   []adminapi.Token
}

// read returns the tokens. While the file cannot be read, nobody gets in by them.
func (f *tokenFile) read() ([]adminapi.Token, error) {
	if f.path == "" {
		return nil, nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	info, err := os.Stat(f.path)
	if err != nil {
		return nil, err
	}
	if info.ModTime().Equal(f.modified) && info.Size() == f.size {
		return f.tokens, nil
	}
	tokens, err := readTokens(f.path)
	if err == nil {
		f.tokens, f.modified, f.size = tokens, info.ModTime(), info.Size()
	}
	return tokens, err
}

func readTokens(path string) (all []adminapi.Token, err error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(bytes.NewReader(data))
	for n := 1; lines.Scan(); n++ {
		text, _, _ := strings.Cut(lines.Text(), "#")
		if strings.TrimSpace(text) == "" {
			continue
		}
		t, err := parseToken(strings.Fields(text))
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", path, n, err)
		}
		all = append(all, t)
	}
	return all, lines.Err()
}

// parseToken reads a line of a file of tokens. Its errors repeat nothing of it: it may be a token
// that somebody has written for its hash.
func parseToken(fields []string) (t adminapi.Token, err error) {
	if len(fields) != 3 && len(fields) != 4 {
		return t, errors.New("write a name, a role, the SHA-256 of the token in hexadecimal, and until when it holds if it ends")
	}
	role, known := adminapi.ParseRole(fields[1])
	if !known {
		return t, errors.New("the role is none: write viewer, operator or admin")
	}
	hash, err := hex.DecodeString(fields[2])
	if err != nil || len(hash) != 32 {
		return t, errors.New("write the SHA-256 of the token in hexadecimal, 64 digits, as printf %s \"$TOKEN\" | sha256sum makes it")
	}
	t = adminapi.Token{Name: fields[0], Role: role, Hash: hex.EncodeToString(hash)}
	if len(fields) == 4 {
		if t.Expires, err = policy.ParseUntil(fields[3]); err != nil {
			return t, errors.New("write until when it holds as in 2027-01-31, which is its end in UTC, or 2027-01-31T12:00:00Z")
		}
	}
	return t, nil
}

// onlyHere reports whether an address is reached from this machine alone.
func onlyHere(a net.Addr) bool {
	tcp, ok := a.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}

// guard refuses an address that others reach where nobody would be asked who they are. Tokens that
// are not known yet are asked for.
func (a *adminAccess) guard(log *slog.Logger, addr net.Addr, tokens func() ([]adminapi.Token, error)) error {
	if onlyHere(addr) {
		return nil
	}
	if known, err := tokens(); !a.configured() && err == nil && len(known) == 0 {
		return fmt.Errorf("--admin: other machines reach %v, and the admin API would ask nobody who they are: "+
			"give 127.0.0.1 and a port, --admin-tls-client-ca, or --admin-tokens with a file, which may be empty, or make a token with \"sluice token create\"", addr)
	}
	if a.cert == "" {
		log.Warn("tokens for the admin API cross the network in the clear: give --admin-tls-cert and --admin-tls-key", "admin", addr.String())
	}
	return nil
}
