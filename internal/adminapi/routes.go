package adminapi

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/sluicehq/sluice/internal/control"
	"github.com/sluicehq/sluice/internal/source"
)

// operation answers a call. What it returns becomes the body of a 200; a *reply says more.
type operation func(*API, *call) (any, error)

// route is where an operation is, and who may call it.
type route struct {
	method, path string
	role         source.Role
	handle       operation
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
	{"POST", "/v1/check", source.Viewer, ask((*control.Control).Check)},
	{"GET", "/v1/explain", source.Viewer, (*API).explainQuery},
	{"POST", "/v1/explain", source.Viewer, ask((*control.Control).Explain)},
	{"GET", "/v1/alerts", source.Viewer, read((*control.Control).Alerts)},
	{"GET", "/v1/refusals", source.Viewer, (*API).refusals},
	{"GET", "/v1/stats", source.Viewer, read((*control.Control).StatsJSON)},
	{"GET", "/v1/rules/{id}/stats", source.Viewer, (*API).ruleStats},
	{"GET", "/v1/top", source.Viewer, (*API).top},
	{"GET", stream, source.Viewer, (*API).events},

	{"POST", "/v1/subjects/reset", source.Operator, act((*control.Control).Reset)},
	{"POST", "/v1/subjects/refund", source.Operator, act((*control.Control).Refund)},
	{"POST", "/v1/subjects/block", source.Operator, act((*control.Control).Block)},
	{"POST", "/v1/subjects/unblock", source.Operator, act((*control.Control).Unblock)},
	{"POST", "/v1/alerts/silence", source.Operator, act((*control.Control).Silence)},
	{"POST", "/v1/alerts/unsilence", source.Operator, act((*control.Control).Unsilence)},
}

// read makes an operation of what needs nothing but a caller.
func read[Out any](do func(*control.Control, control.Caller) (Out, error)) operation {
	return func(a *API, c *call) (any, error) {
		if _, err := c.query(); err != nil {
			return nil, err
		}
		return do(a.Control, c.who)
	}
}

// ask makes an operation of a question that is in the body.
func ask[In, Out any](do func(*control.Control, context.Context, control.Caller, In) (Out, error)) operation {
	return func(a *API, c *call) (any, error) {
		if _, err := c.query(); err != nil {
			return nil, err
		}
		in, err := decode[In](c)
		if err != nil {
			return nil, err
		}
		return do(a.Control, c.Context(), c.who, in)
	}
}

// act makes an operation of a change that is in the body, and may be dry.
func act[In, Out any](do func(*control.Control, context.Context, control.Caller, In, bool) (Out, error)) operation {
	return func(a *API, c *call) (any, error) {
		dry, err := c.dryRun()
		if err != nil {
			return nil, err
		}
		in, err := decode[In](c)
		if err != nil {
			return nil, err
		}
		return do(a.Control, c.Context(), c.who, in, dry)
	}
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
		return nil, control.Problemf(http.StatusNotFound, "there is no such path: see /v1/openapi.json")
	}
	c.w.Header().Set("Allow", strings.Join(slices.Compact(slices.Sorted(slices.Values(allowed))), ", "))
	return nil, control.Problemf(http.StatusMethodNotAllowed, "%s is not one of the methods of this path: use %s", c.Method, strings.Join(allowed, " or "))
}

// matches reports whether the path is that of the operation.
func (r *route) matches(path string) bool {
	want, have := strings.Split(r.path, "/"), strings.Split(path, "/")
	return slices.EqualFunc(want, have, func(want, have string) bool { return want == have || want == "{id}" && have != "" })
}
