package main

import (
	"cmp"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"time"

	"github.com/spf13/pflag"

	"github.com/sluicehq/sluice/cmd/internal/door/proxy"
	"github.com/sluicehq/sluice/policy"
)

// doors are where others ask for decisions: proxies, and programs in any language. Each has an
// address of its own, and is not there without one.
type doors struct {
	checkAt, grpcAt, respAt, spoeAt address

	tls            tlsFiles
	tokens         string
	maxConnections number
	auth           askers

	log   *slog.Logger
	known *doorTokens
}

func (d *doors) flags(f *pflag.FlagSet) {
	f.Var(&d.checkAt, "check", "address of the JSON API by which programs, and proxies' auth requests, ask for decisions")
	f.Var(&d.grpcAt, "grpc", "address of Envoy's rate limit service, and of the JSON API's questions over gRPC")
	f.Var(&d.respAt, "resp", "address that speaks the protocol of Redis: CL.THROTTLE and SLUICE.CHECK")
	f.Var(&d.spoeAt, "spoe", "address of an agent for HAProxy's SPOE")
	d.tls.flags(f, "door-", "--check, --grpc, --resp and --spoe, which then speak TLS",
		"`file` with the authorities that sign the certificates of callers there, which are then required")
	d.authFlags(f)
	f.StringVar(&d.tokens, "door-tokens", "", "`file` with the tokens of callers allowed at --check, --grpc and --resp, a line \"NAME HASH [UNTIL]\" for each,\nwhere HASH is its SHA-256 in hexadecimal")
	f.Var(&d.maxConnections, "door-max-connections", "most connections to each of --check, --grpc, --resp and --spoe (default 4096)")
}

// any reports whether there is one.
func (d *doors) any() bool { return d.checkAt+d.grpcAt+d.respAt+d.spoeAt != "" }

func (d *doors) check() error {
	if d.asksWho() && !d.any() {
		return errors.New("--door-tokens: there is no door to which they let anybody in: give --check, --grpc or --resp")
	}
	if d.asksWho() {
		if _, err := (&tokenFile{path: d.tokens, plain: true}).readAll(); err != nil {
			return unreadable("--door-tokens", err)
		}
	}
	return errors.Join(d.checkAuth(), d.tls.check())
}

// asksWho reports whether whoever asks needs a token.
func (d *doors) asksWho() bool { return d.tokens != "" }

// authorizer returns what a door of that flag asks about tokens; nil if it asks for none.
func (d *doors) authorizer(flag string) func(from, token string) error {
	if !d.asksWho() {
		return nil
	}
	return func(from, token string) error { return d.known.admit(from, flag, token) }
}

// warn logs that a door is open to everybody, or that tokens can be read on their way.
func (d *doors) warn(flag string, addr net.Addr) {
	if onlyHere(addr) {
		return
	}
	tokens := d.asksWho() && flag != "--spoe" // whose protocol has none
	switch {
	case !tokens && d.tls.ca == "":
		d.log.Warn("whoever reaches this address can ask, and spend the limits of others: bind it to 127.0.0.1 or to a network of your own, or ask who they are with --door-tokens or --door-tls-client-ca",
			"door", flag, "address", addr.String())
	case tokens && d.tls.cert == "":
		d.log.Warn("tokens cross the network in the clear: give --door-tls-cert and --door-tls-key", "door", flag, "address", addr.String())
	}
}

// openDoors opens the doors that have an address.
func (s *serveSettings) openDoors(ls *listeners, engine *policy.Engine) error {
	s.doors.log = ls.log
	s.doors.known = newDoorTokens(s.doors.tokens, ls.log)
	for _, d := range []struct {
		flag string
		at   address
		open func(*serveSettings, *listener, *policy.Engine) error
		tls  []string // the protocols within
	}{
		{"--check", s.doors.checkAt, (*serveSettings).openCheck, []string{"h2", "http/1.1"}},
		{"--grpc", s.doors.grpcAt, (*serveSettings).openGRPC, []string{"h2"}},
		{"--resp", s.doors.respAt, (*serveSettings).openRESP, nil},
		{"--spoe", s.doors.spoeAt, (*serveSettings).openSPOE, nil},
	} {
		if d.at == "" {
			continue
		}
		l, err := ls.open(d.flag, d.at)
		if err != nil {
			return err
		}
		s.doors.warn(d.flag, l.socket.Addr())
		config, err := s.doors.tls.config(tls.RequireAndVerifyClientCert, d.tls...)
		if err == nil {
			l.socket = s.bounded(ls, l, config)
			err = d.open(s, l, engine)
		}
		if err != nil {
			ls.close()
			return err
		}
	}
	return nil
}

// bounded bounds the connections to a door, and has them speak TLS where that is configured.
func (s *serveSettings) bounded(ls *listeners, l *listener, config *tls.Config) net.Listener {
	most := &proxy.Connections{Most: cmp.Or(int(s.doors.maxConnections), 4096), Log: ls.log}
	socket := most.Listener(l.socket, time.Duration(s.stallTimeout))
	if config != nil {
		socket = tls.NewListener(socket, config)
	}
	return socket
}
