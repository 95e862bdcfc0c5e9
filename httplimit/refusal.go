package httplimit

import (
	"net/http"

	"github.com/sluicehq/sluice/answer"
	"github.com/sluicehq/sluice/internal/exchange"
	"github.com/sluicehq/sluice/policy"
)

// Refusal writes the answer to a request that is refused. The limit fields, Retry-After and Cache-Control are set
// already, and may be changed; the function sets Content-Type. The status is 429, or 503 if the request cannot be
// decided about, or 400 if it lacks something. The function need not call WriteHeader, except for another status,
// nor write a body.
//
// The policy's own answers are ignored.
//
// The memory of d is reused afterwards: to keep it, use [policy.Decision.Clone].
//
// Requests that are too malformed to be interpreted are answered with 400 by the middleware itself: see the
// package's documentation.
type Refusal func(w http.ResponseWriter, r *http.Request, d policy.Decision)

// refuseBy has f answer. The fields are set.
func refuseBy(f Refusal, w http.ResponseWriter, r *http.Request, status int, d *policy.Decision) {
	delete(w.Header(), "Content-Type")
	x := exchange.Join(w, r, nil, nil)
	x.Default = status
	f(x, r, *d)
	x.Begin()
}

// Answerer reports decisions to clients as the middleware would, for programs that decide by themselves. It is safe
// for concurrent use: make one for all requests.
type Answerer struct {
	encoder answer.Encoder
	outage  answer.Outage
	refuse  Refusal
}

// Answerer returns an [Answerer] with the settings Dialect, XFields, DegradedField, Refuse and Logger of c.
func (c Config) Answerer() *Answerer {
	return &Answerer{
		encoder: answer.Encoder{Dialect: c.Dialect, XFields: c.XFields, DegradedField: c.DegradedField},
		outage:  answer.Outage{Logger: c.Logger},
		refuse:  c.Refuse,
	}
}

// Answer sets the fields for d, and reports whether the request may pass. If not, it has been answered. The
// decision is that of [policy.Engine.Decide] or [answer.Take]. Waiting for a Delay, as [answer.Settle] does, is up
// to the caller.
func (a *Answerer) Answer(w http.ResponseWriter, r *http.Request, d policy.Decision) (pass bool) {
	var said answer.Answer
	a.outage.Note(&d)
	a.encoder.Encode(&said, w.Header(), &d, answer.Client{Header: r.Header})
	switch {
	case said.Status == http.StatusOK:
		return true
	case a.refuse != nil:
		refuseBy(a.refuse, w, r, said.Status, &d)
	default:
		say(w, r, &said, said.HTTPStatus())
	}
	return false
}
