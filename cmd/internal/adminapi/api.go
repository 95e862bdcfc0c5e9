// Package adminapi is the HTTP API for inspecting and changing a running Sluice: its
// rules, tiers, overrides and subjects, their remaining quota, and what it would decide about
// a request. The OpenAPI document is at /v1/openapi.json.
//
// It decodes a request, calls package control and encodes the result. Package access identifies callers.
package adminapi

import (
	"context"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sluicehq/sluice/cmd/internal/access"
	"github.com/sluicehq/sluice/cmd/internal/control"
	"github.com/sluicehq/sluice/cmd/internal/source"
)

// Config has the settings of an API. Only Done is optional.
type Config struct {
	Control *control.Control
	Access  *access.Access
	// Done is closed to end the streams. If it is nil, they end with their connections.
	Done   <-chan struct{}
	Logger *slog.Logger
}

const (
	// maxBody is the maximum size of a request body in bytes.
	maxBody = 1 << 20
	// callTimeout bounds the time of an operation, in addition to bodyTimeout. The listener bounds the time in which
	// the client reads the answer.
	callTimeout = 15 * time.Second
)

// bodyTimeout bounds the time in which a body arrives. Tests shorten it.
var bodyTimeout = 10 * time.Second

// API answers everything below /v1/. The code that mounts it must check the Host.
type API struct {
	Config
	handler  http.Handler
	streams  atomic.Int64
	failures failureLog
}

// call is a request of an identified caller.
type call struct {
	*http.Request
	w     http.ResponseWriter
	who   control.Caller
	query query
}

// New returns an API.
func New(c Config) *API {
	a := &API{Config: c}
	mux := http.NewServeMux()
	for _, r := range routes() {
		mux.Handle(r.method+" "+r.path, a.admitted(r))
	}
	mux.Handle("/v1/", a.admitted(route{role: source.Viewer, handle: noSuch}))
	a.handler = sameOrigin(mux)
	return a
}

func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) { a.handler.ServeHTTP(w, r) }

// admitted returns the handler of a route. A route without a path accepts any query.
func (a *API) admitted(route route) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// The error is ignored, because the writers of tests have no deadlines.
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTimeout))
		ctx, cancel := r.Context(), context.CancelFunc(func() {})
		if r.URL.Path != stream {
			ctx, cancel = context.WithTimeout(ctx, bodyTimeout+callTimeout)
		}
		defer cancel()
		c := &call{Request: r.WithContext(ctx), w: w}
		if err := a.admit(c, route.role); err != nil {
			a.fail(c, err)
			return
		}
		if r.ContentLength > maxBody {
			w.Header().Set("Connection", "close")
			a.fail(c, tooLarge())
			return
		}
		c.Body = http.MaxBytesReader(w, r.Body, maxBody)
		out, err := a.perform(c, route)
		if err != nil {
			a.fail(c, err)
			return
		}
		a.answer(c, out)
	})
}

func (a *API) perform(c *call, route route) (out any, err error) {
	if route.path != "" {
		if c.query, err = readQuery(c.URL.RawQuery, route.parameters); err != nil {
			return nil, err
		}
	}
	return route.handle(a, c)
}

// admit identifies the caller. Callers without the role are refused before their body is read; package control also
// checks roles.
func (a *API) admit(c *call, needs source.Role) (err error) {
	if c.who, err = a.Access.Identify(c.Request); err != nil {
		a.failures.log(a.Logger, c.Request, err)
		return err
	}
	c.who.Via = "admin API"
	return c.who.Needs(needs)
}

// sameOrigin refuses requests, including reads, that a browser sends for a page of another origin.
func sameOrigin(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		site := r.Header.Get("Sec-Fetch-Site")
		foreign := site != "" && site != "same-origin" && site != "none"
		if origin := r.Header.Get("Origin"); origin != "" {
			u, err := url.Parse(origin)
			foreign = foreign || err != nil || !strings.EqualFold(u.Host, r.Host)
		}
		if foreign {
			write(w, http.StatusForbidden, "application/problem+json", control.Problemf(http.StatusForbidden, "pages of other origins cannot use this API"))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// failureLog logs unknown callers, at most one a second, so that they cannot fill a disk.
type failureLog struct{ last atomic.Int64 }

func (f *failureLog) log(log *slog.Logger, r *http.Request, err error) {
	now := time.Now().Unix()
	if last := f.last.Load(); last < now && f.last.CompareAndSwap(last, now) {
		log.Warn("admin API denied access", "from", r.RemoteAddr, "reason", err.Error())
	}
}
