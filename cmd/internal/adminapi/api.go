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
	"sync/atomic"
	"time"

	"github.com/sluicehq/sluice/answer"
	"github.com/sluicehq/sluice/cmd/internal/control"
	"github.com/sluicehq/sluice/cmd/internal/source"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/telemetry"
)

// Config is what the API answers from. Engine, Policy and Logger are needed.
type Config struct {
	Engine *policy.Engine
	// Policy is the policy in force and what changes it.
	Policy *control.Policy
	// Tokens returns those that may call. An error means that nobody knows them now: then
	// nobody gets in by one.
	Tokens func() ([]control.Token, error)
	// Local lets callers from this machine do everything as long as there are no tokens. It is
	// for an address that only this machine reaches.
	Local bool
	// View returns what was seen until now, and Find the key of a subject by its ID in a View. Nil:
	// nobody has looked.
	View func() *telemetry.View
	Find func(id string) (key string, found bool)
	// Refusals finds those of a request that any instance keeps. Nil: none are kept.
	Refusals func(ctx context.Context, id string) telemetry.FoundRefusals
	// DegradedField is that of the gateway, whose responses are foretold.
	DegradedField bool
	// Done is closed when streams are to end. Nil: they end with their connections.
	Done   <-chan struct{}
	Logger *slog.Logger
	// Guess calls look, which looks at a token that comes from an address with a port and is neither
	// right nor wrong while the tokens are unknown. After too many wrong ones it returns an error instead, which
	// has a method RetrySeconds. Nil: they are not limited.
	Guess func(from, token string, look func() (right, wrong bool)) error
}

const (
	// maxBody is the size of the largest body of a request in bytes, and maxInside that of one of this
	// process, such as a policy of tens of thousands of rules.
	maxBody, maxInside = 1 << 20, 16 << 20
	// callTimeout is how long an answer may take to be made. How long it may take to be read is
	// for the listener to say.
	callTimeout = 15 * time.Second
)

// bodyTimeout is how long a body may take to arrive. Tests have less patience.
var bodyTimeout = 10 * time.Second

// API is a Config that answers everything at or below /v1/. Whoever mounts it checks the Host.
type API struct {
	Config
	operations *http.ServeMux
	network    http.Handler // the operations, for others than this process
	encoder    answer.Encoder
	said       statsCache
	streams    atomic.Int64
	lists      control.Lists
	failures   failureLog
	silenced   silences
}

// call is a request whose caller is known.
type call struct {
	*http.Request
	w     http.ResponseWriter
	actor string
	role  source.Role
}

// route is an operation. What it returns becomes the body of a 200; a *reply says more.
type route struct {
	method, path string
	role         source.Role
	handle       func(*API, *call) (any, error)
}

// stream is the operation that does not end by itself.
const stream = "/v1/events"

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
	{"GET", "/v1/openapi.json", source.Viewer, (*API).openAPI},
	{"GET", "/v1/policy", source.Viewer, (*API).policy},
	{"GET", "/v1/policy/shadow", source.Viewer, (*API).shadow},
	{"PUT", "/v1/policy/shadow", source.Admin, (*API).putShadow},
	{"POST", "/v1/policy/changes", source.Admin, (*API).changeRules},
	{"GET", "/v1/policy/previous", source.Admin, (*API).previous},
	{"POST", "/v1/policy/previous", source.Admin, (*API).restore},
	{"GET", "/v1/audit", source.Viewer, (*API).audit},
	{"POST", "/v1/check", source.Viewer, (*API).check},
	{"GET", "/v1/explain", source.Viewer, (*API).explainQuery},
	{"POST", "/v1/explain", source.Viewer, (*API).explainBody},
	{"GET", "/v1/alerts", source.Viewer, (*API).alerts},
	{"GET", "/v1/refusals", source.Viewer, (*API).refusals},
	{"GET", "/v1/stats", source.Viewer, (*API).stats},
	{"GET", "/v1/rules/{id}/stats", source.Viewer, (*API).ruleStats},
	{"GET", "/v1/top", source.Viewer, (*API).top},
	{"GET", stream, source.Viewer, (*API).events},

	{"POST", "/v1/subjects/reset", source.Operator, (*API).reset},
	{"POST", "/v1/subjects/refund", source.Operator, (*API).refund},
	{"POST", "/v1/subjects/block", source.Operator, (*API).block},
	{"POST", "/v1/subjects/unblock", source.Operator, (*API).unblock},
	{"POST", "/v1/alerts/silence", source.Operator, (*API).silence},
	{"POST", "/v1/alerts/unsilence", source.Operator, (*API).unsilence},
}

// New returns an API that answers from a configuration.
func New(c Config) *API {
	a := &API{Config: c, operations: http.NewServeMux()}
	a.encoder.DegradedField = c.DegradedField
	for _, r := range routes() {
		a.operations.Handle(r.method+" "+r.path, a.operation(r.role, r.handle))
	}
	a.operations.Handle("/v1/", a.operation(source.Viewer, noSuch))
	a.network = sameOrigin(a.operations)
	return a
}

func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) { a.network.ServeHTTP(w, r) }

// operation makes a handler of an operation that needs a role.
func (a *API) operation(needs source.Role, handle func(*API, *call) (any, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// A writer that has no deadlines, as in a test, needs none.
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTimeout))
		ctx, cancel := r.Context(), context.CancelFunc(func() {})
		if r.URL.Path != stream {
			ctx, cancel = context.WithTimeout(ctx, bodyTimeout+callTimeout)
		}
		defer cancel()
		c := &call{Request: r.WithContext(ctx), w: w}
		if err := a.admit(c, needs); err != nil {
			a.fail(c, err)
			return
		}
		most := int64(maxBody)
		if _, inside := insider(ctx); inside {
			most = maxInside
		}
		if r.ContentLength > most {
			w.Header().Set("Connection", "close")
			a.fail(c, tooLarge())
			return
		}
		c.Body = http.MaxBytesReader(w, r.Body, most)
		out, err := handle(a, c)
		if err != nil {
			a.fail(c, err)
			return
		}
		a.answer(c, out)
	})
}

// noSuch answers what no operation does.
func noSuch(_ *API, c *call) (any, error) {
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
	want, have := strings.Split(r.path, "/"), strings.Split(path, "/")
	return slices.EqualFunc(want, have, func(want, have string) bool { return want == have || want == "{id}" && have != "" })
}
