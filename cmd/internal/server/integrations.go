package server

import (
	"cmp"
	"crypto/tls"
	"errors"
	"net"
	"time"

	"github.com/spf13/pflag"

	"github.com/sluicehq/sluice/cmd/internal/command"
	"github.com/sluicehq/sluice/cmd/internal/door"
	"github.com/sluicehq/sluice/cmd/internal/door/proxy"
	"github.com/sluicehq/sluice/cmd/internal/server/certificates"
	"github.com/sluicehq/sluice/cmd/internal/server/listeners"
	"github.com/sluicehq/sluice/cmd/internal/server/tokens"
	"github.com/sluicehq/sluice/policy"
)

// integrationSettings configure the integrations, which proxies and programs query for decisions.
type integrationSettings struct {
	check, grpc, resp, spoe command.Address // "" if not served

	auth           askers
	envoy          envoySettings
	tls            certificates.Files
	tokens         string // a file
	maxConnections command.Number
}

func (s *integrationSettings) addFlags(f *pflag.FlagSet) {
	f.Var(&s.check, "check", "address of the JSON API for decisions, and of proxies' auth requests")
	f.Var(&s.grpc, "grpc", "address of Envoy's rate limit service, and of the decision API over gRPC")
	f.Var(&s.resp, "resp", "address at which Redis clients can call CL.THROTTLE, SLUICE.CHECK, SLUICE.PEEK and SLUICE.RESET")
	f.Var(&s.spoe, "spoe", "address of the SPOE agent that answers HAProxy")
	f.Var(&s.auth, "auth", "kinds of proxies that send auth requests to the address of --check, under /auth/: nginx, nginx-accel, caddy, traefik, envoy.\n"+
		"Add +body if the proxy sends bodies, and +id if it sets X-Request-Id, as in nginx+id,traefik+body")
	s.envoy.addFlags(f)
	s.tls.AddFlags(f, "door-", "--check, --grpc, --resp and --spoe; enables TLS there",
		"`file` with CA certificates for verifying callers of these integrations; makes client certificates mandatory")
	f.StringVar(&s.tokens, "door-tokens", "", "`file` with the tokens of callers of --check, --grpc and --resp, a line \"NAME HASH [UNTIL]\" for each,\n"+
		"where HASH is the token's SHA-256 in hexadecimal")
	f.Var(&s.maxConnections, "door-max-connections", "maximum connections to each of the integrations (\"doors\") --check, --grpc, --resp and --spoe (default 4096)")
}

func (s *integrationSettings) any() bool { return s.check+s.grpc+s.resp+s.spoe != "" }

func (s *integrationSettings) verify() error {
	if s.tokens != "" && s.check+s.grpc+s.resp == "" {
		return errors.New("--door-tokens: no integration uses the tokens: give --check, --grpc or --resp")
	}
	if _, err := (&tokens.File{Path: s.tokens, NoRoles: true}).Read(); err != nil {
		return command.Unreadable("--door-tokens", err)
	}
	var missing error
	if len(s.auth) > 0 && s.check == "" {
		missing = errors.New("--auth: missing address for auth requests: give --check, for example --check 127.0.0.1:8081")
	}
	return errors.Join(missing, s.tls.Check())
}

// lacking returns an error for each rule that an integration cannot apply, because its requests lack data that the
// rule reads.
func (s *integrationSettings) lacking(p *policy.Policy) (all policy.Errors) {
	for _, a := range s.auth {
		if brings, hint := a.BringsBody(); !brings {
			all = append(all, p.WithoutBody("--auth "+a.Name(), hint)...)
		}
	}
	if s.grpc != "" {
		all = append(all, p.WithoutBodyOrPath("Envoy at --grpc", "count by an entry of the descriptor, as in key: [attr:remote_address], or use another integration for the rule")...)
	}
	return all
}

// warnings returns a problem for each rule that needs the responses to requests, because integrations do not see
// responses.
func (s *integrationSettings) warnings(p *policy.Policy) (all []policy.Problem) {
	if s.any() {
		for _, name := range p.InFlight() {
			all = append(all, policy.Problem{
				Rule: name, Message: "the end of requests is unknown for callers of --resp and --spoe, for Envoy at --grpc, and for callers of --check and --grpc that do not request a permit",
				Hint: "for these callers, the rule only checks for a free permit",
			})
		}
		for _, name := range p.Adaptive() {
			all = append(all, policy.Problem{
				Rule: name, Message: "callers of --check, --grpc, --resp, --spoe and --auth do not report when the response arrives",
				Hint: "the rule has no effect for these callers; it applies in the gateway and in Go programs",
			})
		}
	}
	if len(s.auth) == 0 {
		return all
	}
	for _, name := range p.ByOutcome() {
		all = append(all, policy.Problem{
			Rule: name, Message: "the rule depends on responses, which proxies do not report with auth requests",
			Hint: "every auth request counts, and costs the estimate",
		})
	}
	return all
}

// authorizer checks the token of a caller, which is identified by its address and port. A nil authorizer means that
// callers need no token.
type authorizer func(caller, token string) error

// doorConfig returns the configuration of an integration. The function authorize checks the callers.
func (s *server) doorConfig(authorize authorizer) door.Config {
	return door.Config{Engine: s.engine, Authorize: authorize, DegradedField: s.settings.store.degradedField, Logger: s.log}
}

// openIntegrations opens the integrations that have an address.
func (s *server) openIntegrations() error {
	set := &s.settings.integrations
	callers := tokens.NewIntegrations(set.tokens, s.log)
	certs, err := set.tls.Follow(s.log)
	if err != nil {
		return err
	}
	for _, i := range []struct {
		flag    string
		address command.Address
		open    func(*listeners.Listener, authorizer)
		alpn    []string
	}{
		{"--check", set.check, s.openCheck, []string{"h2", "http/1.1"}},
		{"--grpc", set.grpc, s.openGRPC, []string{"h2"}},
		{"--resp", set.resp, s.openRESP, nil},
		{"--spoe", set.spoe, s.openSPOE, nil},
	} {
		if i.address == "" {
			continue
		}
		l, err := s.listeners.Open(i.flag, string(i.address))
		if err != nil {
			return err
		}
		s.warnOpen(i.flag, l.Socket.Addr())
		most := &proxy.Connections{Most: cmp.Or(int(set.maxConnections), 4096), Log: s.log}
		l.Socket = most.Listener(l.Socket, time.Duration(s.settings.connections.stallTimeout))
		if config := certs.Config(tls.RequireAndVerifyClientCert, i.alpn...); config != nil {
			l.Socket = tls.NewListener(l.Socket, config)
		}
		i.open(l, callers.At(i.flag))
	}
	return nil
}

// warnOpen logs a warning if an address accepts every caller, or if tokens cross the network unencrypted.
func (s *server) warnOpen(flag string, addr net.Addr) {
	if isLoopback(addr) {
		return
	}
	set := &s.settings.integrations
	needsToken := set.tokens != "" && flag != "--spoe" // SPOE has no tokens
	switch {
	case !needsToken && !set.tls.VerifiesClients():
		flags := "--door-tokens or --door-tls-client-ca"
		if flag == "--spoe" {
			flags = "--door-tls-client-ca"
		}
		s.log.Warn("any client that reaches this address can use up the limits of others: bind it to 127.0.0.1 or a private network, or require authentication with "+flags,
			"door", flag, "address", addr.String())
	case needsToken && !set.tls.Any():
		s.log.Warn("tokens cross the network unencrypted: give --door-tls-cert and --door-tls-key", "door", flag, "address", addr.String())
	}
}
