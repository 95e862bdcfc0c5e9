// Package authrequest answers proxies that query a decision service before they forward a client's request, such as
// nginx (auth_request) and Traefik (ForwardAuth). It restores the client's request from the proxy's header fields,
// and decides about that request with httplimit, as the gateway does.
//
// Clients can send any field that their proxy does not overwrite. So each kind of proxy has a path of its own. For
// requests to this path, the client's address and the method, target and host of its request come only from what
// this kind of proxy sets.
package authrequest

import (
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/sluicehq/sluice/cmd/internal/door"
	"github.com/sluicehq/sluice/httplimit"
	"github.com/sluicehq/sluice/internal/exchange"
	"github.com/sluicehq/sluice/internal/seldom"
	"github.com/sluicehq/sluice/policy"
)

// Root is the prefix of the paths of all kinds of proxy.
const Root = "/auth/"

// Config configures a Handler.
type Config struct {
	door.Config // the token is in X-Sluice-Token
	Askers      []Asker
	BodyTimeout time.Duration // see [httplimit.Config]
}

// Handler answers the requests of proxies, which have paths below [Root], and passes all other requests to next. It
// does not clean the path: if it redirected to the clean path, as [http.ServeMux] does, the proxy would take the
// redirect for the decision.
func Handler(c Config, next http.Handler) http.Handler {
	doors := make(map[string]*decider)
	for _, a := range c.Askers {
		doors[a.kind.name] = newDecider(c, a)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rest, asks := strings.CutPrefix(r.RequestURI, Root)
		if !asks {
			next.ServeHTTP(w, r)
			return
		}
		end := strings.IndexAny(rest+"/", "/?*")
		if d := doors[rest[:end]]; d != nil {
			d.serve(w, r, rest[end:])
			return
		}
		http.Error(w, "unknown proxy kind: --auth lists the enabled ones", http.StatusNotFound)
	})
}

// decider answers one kind of proxy.
type decider struct {
	Asker
	authorize func(from, token string) error
	limit     http.Handler
	log       *slog.Logger
	faults    seldom.Gate
}

func newDecider(c Config, a Asker) *decider {
	limit := httplimit.Config{DegradedField: c.DegradedField, BodyTimeout: c.BodyTimeout, Logger: c.Logger, Door: "auth", AuthOnly: true}
	if a.id {
		limit.RequestID = func(r *http.Request) string { return r.Header.Get(idField) }
	}
	d := &decider{Asker: a, authorize: c.Authorize, log: c.Logger}
	d.limit = limit.Policy(c.Engine)(http.HandlerFunc(pass))
	return d
}

// serve answers a request of a proxy. The parameter target is the path after the name of the proxy's kind.
func (d *decider) serve(w http.ResponseWriter, r *http.Request, target string) {
	a := &answering{kind: d.kind}
	a.exchange = exchange.Join(w, r, &a.own, a)
	asked, err := d.restore(r, target)
	if err != nil {
		d.note(err)
		a.refuse(http.StatusServiceUnavailable, "The proxy does not describe the client's request: see the log of Sluice.\n")
		return
	}
	if d.kind.redirects {
		a.location = take(asked.Header, accelField)
	}
	a.bodiless = asked.Method == http.MethodHead && r.Method != http.MethodHead
	d.limit.ServeHTTP(a.exchange, asked)
}

// pass is the handler for allowed requests. Only the proxy sees the outcome of such a request. So pass reports the
// status 101, as if a handler had taken over the connection: the request counts, and costs its estimate.
func pass(w http.ResponseWriter, r *http.Request) {
	httplimit.Settle(r.Context(), policy.Outcome{Verdict: policy.Counts, Status: http.StatusSwitchingProtocols})
	w.WriteHeader(http.StatusOK)
}
