// Package adminapi is the HTTP API by which operators look at a running Sluice and change it:
// rules, tiers, overrides and who is in which tier, what is left for a subject, and what would
// become of a request. What it answers is in the OpenAPI document at /v1/openapi.json.
//
// It knows an engine, and by interfaces of its own where the policy comes from and the database
// that changes it.
package adminapi

import (
	"context"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/sluicehq/sluice/policy"
)

// Config is what the API answers from. Engine, Current and Logger are needed.
type Config struct {
	Engine *policy.Engine
	// Current returns the policy in force as it is written.
	Current func() *Current
	// Database keeps what is changed. Nil: there is none, and rules, tiers, subjects and
	// overrides can only be read.
	Database Database
	// Tokens returns those that may call. An error means that nobody knows them now: then
	// nobody gets in by one.
	Tokens func() ([]Token, error)
	// Local lets callers from this machine do everything as long as there are no tokens. It is
	// for an address that only this machine reaches.
	Local  bool
	Logger *slog.Logger
}

const (
	// maxBody is the size of the largest body of a request in bytes.
	maxBody = 1 << 20
	// callTimeout is how long an answer may take to be made. How long it may take to be read is
	// for the listener to say.
	callTimeout = 15 * time.Second
)

// bodyTimeout is how long a body may take to arrive. Tests have less patience.
var bodyTimeout = 10 * time.Second

// api is a Config that answers.
type api struct {
	Config
	lists    listCache
	failures failureLog
}

// call is a request whose caller is known.
type call struct {
	*http.Request
	w     http.ResponseWriter
	actor string
	role  Role
}

// route is an operation. What it returns becomes the body of a 200; a *reply says more.
type route struct {
	method, path string
	role         Role
	handle       func(*api, *call) (any, error)
}

// routes returns all operations. The OpenAPI document has the same.
func routes() []route {
	all := slices.Clone(others)
	for i := range resources {
		all = append(all, resources[i].routes()...)
	}
	return all
}

// others are the operations of no resource.
var others = []route{
	{"GET", "/v1/openapi.json", Viewer, (*api).openAPI},
	{"GET", "/v1/policy", Viewer, (*api).policy},
	{"GET", "/v1/audit", Viewer, (*api).audit},
	{"POST", "/v1/check", Viewer, (*api).check},

	{"POST", "/v1/subjects/reset", Operator, (*api).reset},
	{"POST", "/v1/subjects/refund", Operator, (*api).refund},
	{"POST", "/v1/subjects/block", Operator, (*api).block},
	{"POST", "/v1/subjects/unblock", Operator, (*api).unblock},
}

// Handler answers everything at or below /v1/. Whoever mounts it checks the Host.
func Handler(c Config) http.Handler {
	a := &api{Config: c}
	mux := http.NewServeMux()
	for _, r := range routes() {
		mux.Handle(r.method+" "+r.path, a.operation(r.role, r.handle))
	}
	mux.Handle("/v1/", a.operation(Viewer, noSuch))
	return sameOrigin(mux)
}

// operation makes a handler of an operation that needs a role.
func (a *api) operation(needs Role, handle func(*api, *call) (any, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// A writer that has no deadlines, as in a test, needs none.
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTimeout))
		ctx, cancel := context.WithTimeout(r.Context(), bodyTimeout+callTimeout)
		defer cancel()
		c := &call{Request: r.WithContext(ctx), w: w}
		if err := a.admit(c, needs); err != nil {
			a.fail(c, err)
			return
		}
		if r.ContentLength > maxBody {
			w.Header().Set("Connection", "close")
			a.fail(c, tooLarge())
			return
		}
		c.Body = http.MaxBytesReader(w, r.Body, maxBody)
		out, err := handle(a, c)
		if err != nil {
			a.fail(c, err)
			return
		}
		a.answer(c, out)
	})
}

// noSuch answers what no operation does.
func noSuch(_ *api, c *call) (any, error) {
	var allowed []string
	for _, r := range routes() {
		if r.matches(c.URL.EscapedPath()) {
			allowed = append(allowed, r.method)
		}
	}
	if len(allowed) == 0 {
		return nil, problemf(http.StatusNotFound, "there is no such path: see /v1/openapi.json")
	}
	return nil, notAllowed(c.Method, allowed)
}

// matches reports whether the path is that of the operation.
func (r *route) matches(path string) bool {
	base, one := strings.CutSuffix(r.path, "/{id}")
	if !one {
		return path == base
	}
	id, below := strings.CutPrefix(path, base+"/")
	return below && id != "" && !strings.Contains(id, "/")
}
