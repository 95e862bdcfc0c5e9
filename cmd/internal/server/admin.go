package server

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/spf13/pflag"

	"github.com/sluicehq/sluice/cmd/internal/access"
	"github.com/sluicehq/sluice/cmd/internal/admin"
	"github.com/sluicehq/sluice/cmd/internal/adminapi"
	"github.com/sluicehq/sluice/cmd/internal/command"
	"github.com/sluicehq/sluice/cmd/internal/console"
	"github.com/sluicehq/sluice/cmd/internal/control"
	"github.com/sluicehq/sluice/cmd/internal/door/proxy"
	"github.com/sluicehq/sluice/cmd/internal/server/certificates"
	"github.com/sluicehq/sluice/cmd/internal/server/listeners"
	"github.com/sluicehq/sluice/cmd/internal/server/tokens"
	"github.com/sluicehq/sluice/cmd/internal/source"
)

// adminSettings configure the admin address and its callers.
type adminSettings struct {
	address     command.Address
	hosts       []string
	tokens      string // the name of the file of tokens
	tls         certificates.Files
	strictReady bool
}

func (s *adminSettings) addFlags(f *pflag.FlagSet) {
	s.address = "127.0.0.1:9090"
	f.Var(&s.address, "admin", "address of /healthz, /readyz, /metrics and the admin API under /v1/")
	f.StringSliceVar(&s.hosts, "admin-hosts", nil, "host `names` that the admin address accepts, besides localhost and IP addresses")
	f.StringVar(&s.tokens, "admin-tokens", "", "`file` with tokens for the admin API, a line \"NAME ROLE HASH [UNTIL]\" for each,\n"+
		"where HASH is the token's SHA-256 in hexadecimal; even with an empty file, callers must authenticate")
	s.tls.AddFlags(f, "admin-", "the admin address; enables TLS",
		"`file` with CA certificates for verifying clients of the admin API; a client's role is the organizational\n"+
			"unit (OU) of its certificate: sluice-viewer, sluice-operator or sluice-admin")
	f.BoolVar(&s.strictReady, "strict-ready", false, "report ready only while the store is available")
}

func (s *adminSettings) check() error {
	if err := s.tls.Check(); err != nil {
		return err
	}
	_, err := (&tokens.File{Path: s.tokens}).Read()
	return command.Unreadable("--admin-tokens", err)
}

// authenticates reports whether the settings require callers to authenticate even if the database has no tokens.
func (s *adminSettings) authenticates() bool { return s.tokens != "" || s.tls.VerifiesClients() }

// isLoopback reports whether an address can be reached only from this machine.
func isLoopback(a net.Addr) bool {
	tcp, ok := a.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}

// guard returns an error if other machines can reach the address and callers need not authenticate. It assumes that
// a database that cannot be read has tokens.
func (s *adminSettings) guard(log *slog.Logger, addr net.Addr, tokens func() ([]source.TokenRow, error)) error {
	if isLoopback(addr) {
		return nil
	}
	if known, err := tokens(); !s.authenticates() && err == nil && len(known) == 0 {
		return fmt.Errorf("--admin: the admin API would be open to other machines without authentication on %v: "+
			"use a port of 127.0.0.1, --admin-tls-client-ca or --admin-tokens (the file may be empty), or create a token with \"sluice token create\"", addr)
	}
	if !s.tls.Any() {
		log.Warn("tokens for the admin API cross the network unencrypted: give --admin-tls-cert and --admin-tls-key", "admin", addr.String())
	}
	return nil
}

// adminTimeout bounds a request to the admin address, except a stream.
const adminTimeout = 30 * time.Second

// openAdmin opens the address of --admin, which serves the probes, the metrics, the admin API and the console. The
// metrics include the parameter connections, which counts the connections of the gateway's clients.
func (s *server) openAdmin(connections *proxy.Connections) error {
	set := &s.settings.admin
	l, err := s.listeners.Open("--admin", string(set.address))
	if err != nil {
		return err
	}
	callers := s.adminCallers(l.Socket.Addr())
	if err := set.guard(s.log, l.Socket.Addr(), callers.Tokens); err != nil {
		return err
	}
	certs, err := set.tls.Follow(s.log)
	if err != nil {
		return err
	}
	streams, endStreams := context.WithCancel(context.Background())
	few := &proxy.Connections{Most: adminConnections, Log: s.log}
	l.Socket = few.Listener(l.Socket, time.Duration(s.settings.connections.stallTimeout))
	// Probes and scrapers do not need a certificate.
	if config := certs.Config(tls.VerifyClientCertIfGiven); config != nil {
		l.Socket = tls.NewListener(l.Socket, config)
	}
	web := &http.Server{
		Handler:           admin.Hosts(append(set.hosts, string(set.address)), s.adminHandler(callers, streams.Done(), connections)),
		ReadHeaderTimeout: time.Duration(s.settings.connections.headerTimeout),
		ReadTimeout:       time.Duration(s.settings.connections.headerTimeout) + adminTimeout, // streams remove the deadline
		IdleTimeout:       time.Minute,
		// Streams use at most half of the connections. Idle connections of browsers must not use up the other half,
		// which probes need.
		ConnState: func(c net.Conn, state http.ConnState) {
			if state == http.StateIdle && few.Open() > adminConnections/2 {
				c.Close()
			}
		},
		ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
	web.RegisterOnShutdown(endStreams)
	l.ServeLast(listeners.HTTP(web, l.Socket)) // it stays open during the drain, so that streams can show the drain
	return nil
}

// adminCallers returns the access checks for callers of the admin address.
func (s *server) adminCallers(addr net.Addr) *access.Access {
	file := &tokens.File{Path: s.settings.admin.tokens}
	return &access.Access{
		Tokens: func() ([]source.TokenRow, error) { return s.rules.Tokens(file) },
		Local:  isLoopback(addr) && !s.settings.admin.authenticates(),
		Guess:  tokens.NewGuesses(s.log).At("--admin"),
	}
}

// adminHandler returns the handler of the admin address. Its streams end when the channel done is closed.
func (s *server) adminHandler(callers *access.Access, done <-chan struct{}, connections *proxy.Connections) http.Handler {
	if s.settings.admin.strictReady {
		s.health.Require(s.store.Answers)
	}
	mux := http.NewServeMux()
	for _, path := range []string{"/healthz", "/readyz"} {
		mux.Handle(path, admin.Handler(&s.health))
	}
	mux.Handle("GET /metrics", s.metrics.Handler(connections))
	over := control.Config{
		Engine: s.engine, Stack: s.rules.Stack(), Database: s.rules.Database(), Recent: s.recent, Logger: s.log, DegradedField: s.settings.store.degradedField,
	}
	if s.fleet != nil {
		over.Telemetry = s.fleet
	}
	api := adminapi.New(adminapi.Config{Control: control.New(over), Access: callers, Done: done, Logger: s.log})
	mux.Handle("/v1/", api)
	mux.Handle("/", console.Handler(console.Config{
		Control: api.Control, Access: callers, Done: done, Version: s.version, Try: firstRequest(s.listeners.Addr, s.settings), Logger: s.log,
	}))
	return mux
}
