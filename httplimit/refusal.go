package httplimit

import (
	"net/http"

	"github.com/sluicehq/sluice/answer"
	"github.com/sluicehq/sluice/internal/exchange"
	"github.com/sluicehq/sluice/policy"
)

// Refusal writes the answer to a denied request. The limit fields, Retry-After and Cache-Control are already set, and
// may be changed; the function sets Content-Type. It need not write a body. It need not call WriteHeader either, except
// to change the status, which is 429, 503, 403, 413 or 400 (see the package's documentation). If the rule has "answer:
// llm" and the answer has the form of Anthropic's API, the status is 529 in place of 503.
//
// The setting "answers" of a policy has no effect on answers of a Refusal.
//
// The memory of d is reused afterwards: to keep it, use [policy.Decision.Clone].
//
// The middleware itself answers requests that are too malformed to be interpreted, with 400.
type Refusal func(w http.ResponseWriter, r *http.Request, d policy.Decision)

// refuseBy calls f to answer a request. The limit fields are already set.
func refuseBy(f Refusal, w http.ResponseWriter, r *http.Request, status int, d *policy.Decision) {
	delete(w.Header(), "Content-Type")
	x := exchange.Join(w, r, nil, nil)
	x.Default = status
	f(x, r, *d)
	x.Begin()
}

// Answerer answers clients as the middleware would, for handlers that call an engine or a limiter themselves. It is
// safe for concurrent use: make one for all requests.
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

// Answer sets the response fields for d, the result of [policy.Engine.Decide] or [answer.Take]. It reports whether the
// request may pass. If not, Answer has written the response. Answer does not wait for the Delay of a queue: call
// [answer.Settle] first, which waits for the turn.
func (a *Answerer) Answer(w http.ResponseWriter, r *http.Request, d policy.Decision) (pass bool) {
	var reply answer.Answer
	a.outage.Note(&d)
	a.encoder.Encode(&reply, w.Header(), &d, answer.Client{Header: r.Header})
	switch {
	case reply.Status == http.StatusOK:
		return true
	case a.refuse != nil:
		refuseBy(a.refuse, w, r, reply.Status, &d)
	default:
		send(w, r, &reply, reply.HTTPStatus())
	}
	return false
}
