// Package authrequest answers proxies that ask about each request before they pass it on, such as nginx
// (auth_request) and Traefik (ForwardAuth). It restores the request from the proxy's header fields and
// decides it with httplimit, which is below it, as the gateway does; package server is above.
//
// Clients can send any field that their proxy does not overwrite. So each kind of proxy has its own path,
// where only the fields count that this kind sets.
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

// Root is what the paths of all askers begin with.
const Root = "/auth/"

// Config has the permitted callers, and the form of answers.
type Config struct {
	door.Config // the token is that of X-Sluice-Token
	Askers      []Asker
	BodyTimeout time.Duration // that of [httplimit.Config]
}

// Handler answers the askers below [Root], and leaves all other requests to next. A path is taken
// as it was sent: the way of [http.ServeMux] to redirect to a cleaner one would be an answer to
// the proxy.
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

// decider answers one asker.
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

// serve answers a question. The target is what follows the name of the asker.
func (d *decider) serve(w http.ResponseWriter, r *http.Request, target string) {
	a := &answering{kind: d.kind}
	a.exchange = exchange.Join(w, r, &a.own, a)
	asked, err := d.restore(r, target)
	if err != nil {
		d.note(err)
		a.refuse(http.StatusServiceUnavailable, "The proxy does not say what is asked about: see the log of Sluice.\n")
		return
	}
	if d.kind.redirects {
		a.location = take(asked.Header, accelField)
	}
	a.bodiless = asked.Method == http.MethodHead && r.Method != http.MethodHead
	d.limit.ServeHTTP(a.exchange, asked)
}

// pass is behind the door. What becomes of a request is for the proxy to see, so that everything
// counts, and costs what was estimated, as of a connection that is taken over.
func pass(w http.ResponseWriter, r *http.Request) {
	httplimit.Settle(r.Context(), policy.Outcome{Verdict: policy.Counts, Status: http.StatusSwitchingProtocols})
	w.WriteHeader(http.StatusOK)
}
