package main

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/pflag"

	"github.com/sluicehq/sluice/cmd/internal/control"
	"github.com/sluicehq/sluice/cmd/internal/source"
	"github.com/sluicehq/sluice/policy"
)

// adminAccess says who may use the admin API.
type adminAccess struct {
	tokens string
	tls    tlsFiles
}

func (a *adminAccess) flags(f *pflag.FlagSet) {
	f.StringVar(&a.tokens, "admin-tokens", "", "`file` with tokens for the admin API, a line \"NAME ROLE HASH [UNTIL]\" for each,\nwhere HASH is its SHA-256 in hexadecimal; an empty file lets nobody in")
	a.tls.flags(f, "admin-", "the admin address, which is https then",
		"`file` with the certificates that sign those of clients of the admin API, in which the\norganizational unit says the role: sluice-viewer, sluice-operator or sluice-admin")
}

func (a *adminAccess) check() error {
	if err := a.tls.check(); err != nil {
		return err
	}
	if a.tokens != "" {
		if _, err := (&tokenFile{path: a.tokens}).readAll(); err != nil {
			return unreadable("--admin-tokens", err)
		}
	}
	return nil
}

// configured reports whether callers are asked who they are, whatever a database says.
func (a *adminAccess) configured() bool { return a.tokens != "" || a.tls.ca != "" }

// tokenFile is a file of tokens, which is read again when it changes.
type tokenFile struct {
	path  string
	plain bool // the tokens have no role

	mu       sync.Mutex
	modified time.Time
	size     int64
	tokens   []control.Token
}

// read returns the tokens. While the file cannot be read, nobody gets in by them.
func (f *tokenFile) read() ([]control.Token, error) {
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
	tokens, err := f.readAll()
	if err == nil {
		f.tokens, f.modified, f.size = tokens, info.ModTime(), info.Size()
	}
	return tokens, err
}

func (f *tokenFile) readAll() (all []control.Token, err error) {
	data, err := os.ReadFile(f.path)
	if err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(bytes.NewReader(data))
	for n := 1; lines.Scan(); n++ {
		text, _, _ := strings.Cut(lines.Text(), "#")
		if strings.TrimSpace(text) == "" {
			continue
		}
		t, err := f.parse(strings.Fields(text))
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", f.path, n, err)
		}
		all = append(all, t)
	}
	return all, lines.Err()
}

// parse reads a line of a file of tokens. Its errors repeat nothing of it: it may be a token that
// somebody has written for its hash.
func (f *tokenFile) parse(fields []string) (t control.Token, err error) {
	what := "write a name, a role, the SHA-256 of the token in hexadecimal, and until when it holds if it ends"
	if f.plain {
		what = "write a name, the SHA-256 of the token in hexadecimal, and until when it holds if it ends"
		fields = slices.Insert(fields, min(1, len(fields)), "")
	}
	if len(fields) != 3 && len(fields) != 4 {
		return t, errors.New(what)
	}
	role, known := source.ParseRole(fields[1])
	if !known && !f.plain {
		return t, errors.New("the role is none: write viewer, operator or admin")
	}
	hash, err := hex.DecodeString(fields[2])
	if err != nil || len(hash) != 32 {
		return t, errors.New("write the SHA-256 of the token in hexadecimal, 64 digits, as printf %s \"$TOKEN\" | sha256sum makes it")
	}
	t = control.Token{Name: fields[0], Role: role, Hash: hex.EncodeToString(hash)}
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
func (a *adminAccess) guard(log *slog.Logger, addr net.Addr, tokens func() ([]control.Token, error)) error {
	if onlyHere(addr) {
		return nil
	}
	if known, err := tokens(); !a.configured() && err == nil && len(known) == 0 {
		return fmt.Errorf("--admin: other machines reach %v, and the admin API would ask nobody who they are: "+
			"give 127.0.0.1 and a port, --admin-tls-client-ca, or --admin-tokens with a file, which may be empty, or make a token with \"sluice token create\"", addr)
	}
	if a.tls.cert == "" {
		log.Warn("tokens for the admin API cross the network in the clear: give --admin-tls-cert and --admin-tls-key", "admin", addr.String())
	}
	return nil
}
