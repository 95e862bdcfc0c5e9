package server

import (
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/sluicehq/sluice/cmd/internal/door/authrequest"
)

// askers is a flag with the kinds of proxies that may send auth requests to --check.
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
			return errors.New(one.Name() + " occurs twice: remove one")
		}
		seen[one.Name()] = true
		all = append(all, one)
	}
	*a = all
	return nil
}

// withAuth returns a handler that answers auth requests, and passes other requests to next.
func (s *server) withAuth(next http.Handler, authorize authorizer) http.Handler {
	if len(s.settings.integrations.auth) == 0 {
		return next
	}
	return authrequest.Handler(authrequest.Config{
		Config: s.doorConfig(authorize), Askers: s.settings.integrations.auth, BodyTimeout: time.Duration(s.settings.connections.headerTimeout),
	}, next)
}
