package adminapi

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/sluicehq/sluice/cmd/internal/control"
	"github.com/sluicehq/sluice/cmd/internal/source"
)

// operation answers a call. Its result becomes the body of a 200, unless it is a *reply or the operation has already
// written the answer.
type operation func(*API, *call) (any, error)

// route is an operation: its path, the role that the caller needs, and the parameters of its query, separated by
// spaces. A parameter that ends in a dot stands for all parameters with that prefix.
type route struct {
	method, path string
	role         source.Role
	parameters   string
	handle       operation
}

// stream is the path of the only operation that does not end by itself.
const stream = "/v1/events"

// routes returns all operations. The OpenAPI document describes the same operations.
func routes() []route {
	all := slices.Clone(others)
	for _, kind := range control.Kinds {
		all = append(all, (&resource{kind}).routes()...)
	}
	return all
}

// others are the operations that do not belong to a resource, such as rules or overrides.
var others = []route{
	{"GET", "/v1/openapi.json", source.Viewer, "", (*API).openAPI},
	{"GET", "/v1/policy", source.Viewer, "", read((*control.Control).InForce)},
	{"GET", "/v1/policy/shadow", source.Viewer, "", read((*control.Control).Shadow)},
	{"PUT", "/v1/policy/shadow", source.Admin, "dry_run", (*API).putShadow},
	{"POST", "/v1/policy/diff", source.Operator, "live", (*API).diff},
	{"POST", "/v1/policy/changes", source.Admin, "dry_run", (*API).changeRules},
	{"GET", "/v1/policy/previous", source.Admin, "", (*API).previous},
	{"POST", "/v1/policy/previous", source.Admin, "dry_run", (*API).restore},
	{"GET", "/v1/audit", source.Viewer, "limit cursor", (*API).audit},
	{"POST", "/v1/check", source.Viewer, "", ask((*control.Control).Check)},
	{"GET", "/v1/explain", source.Viewer, "method url from header.", (*API).explainQuery},
	{"POST", "/v1/explain", source.Viewer, "", ask((*control.Control).Explain)},
	{"GET", "/v1/alerts", source.Viewer, "", read((*control.Control).Alerts)},
	{"GET", "/v1/refusals", source.Viewer, "id", (*API).refusals},
	{"GET", "/v1/stats", source.Viewer, "", read((*control.Control).Stats)},
	{"GET", "/v1/rules/{id}/stats", source.Viewer, "", (*API).ruleStats},
	{"GET", "/v1/top", source.Viewer, "rule by window limit", (*API).top},
	{"GET", stream, source.Viewer, "", (*API).events},

	{"POST", "/v1/subjects/reset", source.Operator, "dry_run", act((*control.Control).Reset)},
	{"POST", "/v1/subjects/refund", source.Operator, "dry_run", act((*control.Control).Refund)},
	{"POST", "/v1/subjects/block", source.Operator, "dry_run", act((*control.Control).Block)},
	{"POST", "/v1/subjects/unblock", source.Operator, "dry_run", act((*control.Control).Unblock)},
	{"POST", "/v1/alerts/silence", source.Operator, "dry_run", act((*control.Control).Silence)},
	{"POST", "/v1/alerts/unsilence", source.Operator, "dry_run", act((*control.Control).Unsilence)},
}

// read returns an operation without arguments.
func read[Out any](do func(*control.Control, control.Caller) (Out, error)) operation {
	return func(a *API, c *call) (any, error) { return do(a.Control, c.who) }
}

// ask returns an operation that takes the body as its argument.
func ask[In, Out any](do func(*control.Control, context.Context, control.Caller, In) (Out, error)) operation {
	return func(a *API, c *call) (any, error) {
		in, err := decode[In](c)
		if err != nil {
			return nil, err
		}
		return do(a.Control, c.Context(), c.who, in)
	}
}

// act returns an operation that changes something. Its arguments are the body and dry_run.
func act[In, Out any](do func(*control.Control, context.Context, control.Caller, In, bool) (Out, error)) operation {
	return func(a *API, c *call) (any, error) {
		in, err := decode[In](c)
		if err != nil {
			return nil, err
		}
		return do(a.Control, c.Context(), c.who, in, c.query.dry)
	}
}

// noSuch answers requests that match no route.
func noSuch(_ *API, c *call) (any, error) {
	var allowed []string
	for _, r := range routes() {
		if r.matches(c.URL.EscapedPath()) {
			allowed = append(allowed, r.method)
		}
	}
	if len(allowed) == 0 {
		return nil, control.Problemf(http.StatusNotFound, "unknown path: see /v1/openapi.json")
	}
	c.w.Header().Set("Allow", strings.Join(slices.Compact(slices.Sorted(slices.Values(allowed))), ", "))
	return nil, control.Problemf(http.StatusMethodNotAllowed, "%s is not one of the methods of this path: use %s", c.Method, strings.Join(allowed, " or "))
}

// matches reports whether the path belongs to the operation.
func (r *route) matches(path string) bool {
	want, have := strings.Split(r.path, "/"), strings.Split(path, "/")
	return slices.EqualFunc(want, have, func(want, have string) bool { return want == have || want == "{id}" && have != "" })
}
