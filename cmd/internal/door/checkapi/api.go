// Package checkapi is the HTTP API for decisions. With it, programs in any language query whether a request is
// allowed and how much is left, and give units back. The API's OpenAPI document is at /v1/openapi.json.
//
// The API does not delay answers: for a request in a queue, it returns the delay. The answer to an invalid check is
// a problem (RFC 9457) that points at the mistake, and no check of the batch is charged. If a check is valid but
// describes an invalid request, for example one with an impossible path, the API denies the request, as the gateway
// does.
package checkapi

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"sync"

	"github.com/sluicehq/sluice/cmd/internal/door"
	"github.com/sluicehq/sluice/policy"
)

// api is the handler of the API.
type api struct {
	*door.Base
	calls sync.Pool     // of *call
	large chan struct{} // limits the number of large calls at a time
}

// operation is an operation of the API.
type operation struct {
	mode   policy.Mode
	takes  memberSet // the members that a check in this operation may have
	settle bool
	// places applies the operation to a place. A place is a token from an earlier answer. It identifies the request's
	// permits and its turns in queues.
	places func(*policy.Engine, context.Context, string) (bool, error)
	member string // the name of the answer's member with the result of places
}

var operations = map[string]*operation{
	"/v1/check":  {mode: policy.Charge, takes: aboutAll | 1<<inPeek | 1<<inPlace},
	"/v1/peek":   {mode: policy.Peek, takes: aboutAll},
	"/v1/refund": {mode: policy.GiveBack, takes: aboutAll},
	"/v1/settle": {takes: aboutOne | 1<<inOutcome | 1<<inAt, settle: true},
	"/v1/hold":   {takes: 1 << inPlace, places: (*policy.Engine).HoldPlace, member: "held"},
	"/v1/release": {takes: 1 << inPlace, member: "released", places: func(e *policy.Engine, ctx context.Context, place string) (bool, error) {
		err := e.ReleasePlace(ctx, place)
		return err == nil, err
	}},
}

const documentPath = "/v1/openapi.json"

// Handler answers everything at or below /v1/.
func Handler(c door.Config) http.Handler {
	a := &api{Base: door.New(c), large: make(chan struct{}, maxLarge)}
	a.calls.New = func() any { return newCall(a) }
	return a
}

func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if p := a.serve(w, r); p != nil {
		p.write(w)
	}
}

func (a *api) serve(w http.ResponseWriter, r *http.Request) *problem {
	if p := a.admit(r); p != nil {
		return p
	}
	o := operations[r.URL.Path]
	switch {
	case o == nil && r.URL.Path == documentPath:
		return document(w, r)
	case o == nil:
		return problemf(http.StatusNotFound, "unknown path: see %s", documentPath)
	case r.Method != http.MethodPost:
		return notAllowed(r.Method, http.MethodPost)
	}
	c := a.calls.Get().(*call)
	defer c.release()
	c.w, c.r, c.operation = w, r, o
	return c.serve()
}

// admit returns a problem for callers without permission.
func (a *api) admit(r *http.Request) *problem {
	h := r.Header
	if h["Origin"] != nil || h["Sec-Fetch-Site"] != nil {
		return problemf(http.StatusForbidden, "this request comes from a web page, but this API is for servers: "+
			"its callers can use up the limits of all clients")
	}
	if a.Authorize == nil {
		return nil
	}
	err := a.Authorize(r.RemoteAddr, door.Bearer(h["Authorization"]))
	if err == nil {
		return nil
	}
	var many interface{ RetrySeconds() int }
	if errors.As(err, &many) {
		return problemf(http.StatusTooManyRequests, "%v", err).set("Retry-After", strconv.Itoa(many.RetrySeconds()))
	}
	return problemf(http.StatusUnauthorized, "authentication required: send one of the tokens of --door-tokens as \"Authorization: Bearer …\"").
		set("WWW-Authenticate", `Bearer realm="sluice"`)
}
