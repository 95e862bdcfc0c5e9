package main

import (
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/sluicehq/sluice/cmd/internal/door/authrequest"
	"github.com/sluicehq/sluice/policy"
)

// askers are the proxies that may ask at the address of --check.
type askers []authrequest.Asker

func (a *askers) Type() string { return "kinds" }

func (a *askers) String() string {
	var names []string
	for _, one := range *a {
		names = append(names, one.String())
	}
	return strings.Join(names, ",")
}

func (a *askers) Set(s string) error {
	var all askers
	seen := map[string]bool{}
	for name := range strings.SplitSeq(s, ",") {
		one, err := authrequest.ParseAsker(strings.TrimSpace(name))
		if err != nil {
			return err
		}
		if seen[one.Name()] {
			return errors.New(one.Name() + " is there twice: remove one")
		}
		seen[one.Name()] = true
		all = append(all, one)
	}
	*a = all
	return nil
}

func (d *doors) authFlags(f *pflag.FlagSet) {
	f.Var(&d.auth, "auth", "kinds of proxies that --check answers auth requests of, below /auth/: nginx, nginx-accel, caddy, traefik, envoy;\n"+
		"with +body where the proxy sends bodies, and +id where it sets X-Request-Id, as in nginx+id,traefik+body")
}

func (d *doors) checkAuth() error {
	if len(d.auth) > 0 && d.checkAt == "" {
		return errors.New("--auth: the proxies need an address to ask at: give --check, for example --check 127.0.0.1:8081")
	}
	return nil
}

// lacking says which rules one of the askers brings nothing to count by.
func (d *doors) lacking(p *policy.Policy) (all policy.Errors) {
	for _, a := range d.auth {
		if brings, mend := a.BringsBody(); !brings {
			all = append(all, p.WithoutBody("--auth "+a.Name(), mend)...)
		}
	}
	if d.grpcAt != "" {
		all = append(all, p.WithoutBodyOrPath("Envoy, which asks --grpc,", "count by what a descriptor brings, as in key: [attr:remote_address], or serve the rule at a door of its own")...)
	}
	return all
}

// unheard warns of rules that wait for responses, which no asker tells of.
func (d *doors) unheard(p *policy.Policy) (all []policy.Problem) {
	if d.any() {
		for _, name := range p.InFlight() {
			all = append(all, policy.Problem{
				Rule: name, Message: "whoever asks at --resp and --spoe, as Envoy at --grpc, or for no place at --check and --grpc, does not tell when requests end",
				Hint: "there, the rule only looks whether a place is free, and requests take none",
			})
		}
	}
	if len(d.auth) == 0 {
		return all
	}
	for _, name := range p.ByOutcome() {
		all = append(all, policy.Problem{
			Rule: name, Message: "the rule goes by responses, and proxies that ask do not tell of them",
			Hint: "every request that --auth is asked about counts, and costs what is estimated",
		})
	}
	return all
}

// withAuth answers the auth requests, and leaves the rest to next.
func (s *serveSettings) withAuth(engine *policy.Engine, next http.Handler) http.Handler {
	if len(s.doors.auth) == 0 {
		return next
	}
	return authrequest.Handler(authrequest.Config{
		Engine: engine, Askers: s.doors.auth, DegradedField: s.degradedField,
		BodyTimeout: time.Duration(s.headerTimeout), Logger: s.doors.log, Authorize: s.doors.authorizer("--check"),
	}, next)
}
