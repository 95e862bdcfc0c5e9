package httplimit

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"sync"

	"github.com/sluicehq/sluice/answer"
	"github.com/sluicehq/sluice/internal/exchange"
	"github.com/sluicehq/sluice/internal/seldom"
	"github.com/sluicehq/sluice/policy"
)

// door is the middleware: it decodes requests, gets decisions from an engine or a limiter, and encodes answers.
type door struct {
	config  Config
	engine  *policy.Engine                      // nil if choose returns the limit
	choose  func(*http.Request) (Choice, error) // the argument of Config.LimitBy
	encoder answer.Encoder
	outage  answer.Outage
	calls   sync.Pool // of *call
	tooLate sync.Once // logTooLate has run

	failures seldom.Gate // for logging errors of choose
}

func (d *door) logger() *slog.Logger { return cmp.Or(d.config.Logger, slog.Default()) }

// logTooLate warns of a framework that writes the result of a handler, such as an error, after the middleware has
// returned, so that rules do not see the real status.
func (d *door) logTooLate() {
	d.logger().Warn("responses are written outside the middleware, which assumes status 200: wrap the whole framework, so that limits see the real status")
}

// decide fills in c.decision for c.r.
func (d *door) decide(c *call) {
	if d.engine == nil {
		d.decideByLimiter(c)
	} else {
		d.decideByPolicy(c)
	}
}

// giveBack undoes a decision that has let the request pass.
func (c *call) giveBack(ctx context.Context) {
	if engine := c.door.engine; engine != nil {
		engine.Refund(ctx, c.decision)
		return
	}
	c.taken.adjust(ctx, &c.decision, 0)
	answer.GiveBack(c.choice.Limiter, c.choice.Key, c.choice.Cost, &c.decision)
}

// call is the scratch memory of one request, until the next handler runs.
type call struct {
	w        http.ResponseWriter
	r        *http.Request
	door     *door
	decision policy.Decision
	answer   answer.Answer

	request policy.Request // argument of the engine
	choice  Choice         // limit without an engine
	taken   taken
	passed  bool    // the handler gets the request
	body    *replay // the body, if rules or a queue have read it
}

func newCall(d *door) *call {
	c := &call{door: d}
	c.request.Body, c.request.Attributes = c.peek, make(map[string]string)
	return c
}

func (d *door) release(c *call) {
	if c.decision.Held() { // the decision's memory is reused
		if !c.passed {
			d.engine.Release(c.r.Context(), c.decision)
		}
		c.decision = policy.Decision{Results: c.decision.Results[:0], Loads: c.decision.Loads[:0]}
	}
	if c.body != nil && !c.passed {
		c.body.release()
	}
	c.body, c.passed = nil, false
	// Drop all references to the request.
	c.w, c.r, c.choice = nil, nil, Choice{}
	if c.taken.limiter != nil {
		c.taken = taken{}
	}
	body, attributes := c.request.Body, c.request.Attributes
	clear(attributes)
	c.request = policy.Request{}
	c.request.Body, c.request.Attributes = body, attributes
	if cap(c.decision.Results) > maxResults {
		c.decision.Results = nil
	}
	if c.decision.Err != nil {
		c.decision.Err = nil
	}
	d.calls.Put(c)
}

// admit decides about a request, and waits for its turn. It returns the request for the handler, or nil if the
// request was denied and has been answered. The settling is nil if nothing is to be settled or released. The replay
// is the body if it was read; the caller releases it when the request ends.
func (d *door) admit(w http.ResponseWriter, r *http.Request) (*http.Request, *settling, *replay) {
	c := d.calls.Get().(*call)
	defer d.release(c)
	c.w, c.r = w, r
	client, marks := answer.Client{Header: r.Header}, false
	if d.engine != nil {
		p := d.engine.Policy()
		client.Fields, client.CORS, client.Answers, marks = p.Fields(), p.CORS(), p.Answers(), p.Marks()
	}
	fault := misaimed(r)
	if fault == "" {
		fault = d.clean(w, r.Header)
	}
	if marks {
		dropMarks(r.Header)
	}
	quota := fault == "" && d.asksQuota(r)
	switch {
	case fault != "":
		d.encoder.Malformed(&c.answer, w.Header(), fault, client)
	case quota:
		client.Answers = nil
		fault = d.encodeQuota(c, client)
	default:
		d.decide(c)
		answer.Settle(r.Context(), &c.decision, c.drain, c.giveBack)
		d.outage.Note(&c.decision)
		if d.config.Refuse != nil {
			client.Answers = nil
		}
		d.encoder.Encode(&c.answer, w.Header(), &c.decision, client)
	}
	switch {
	case quota && c.answer.Status == http.StatusOK:
		send(w, r, &c.answer, http.StatusOK)
	case c.answer.Status == http.StatusOK:
		if d.config.KeepDecision {
			c.r = withDecision(r, &c.decision)
		}
		c.passed = true
		if d.config.AuthOnly {
			mark(w.Header(), &c.decision)
		} else {
			mark(r.Header, &c.decision)
		}
		if c.decision.ReadsResponse() {
			r.Header.Set("Accept-Encoding", "identity") // a compressed response cannot be read
		}
		if c.decision.AsksUsage() {
			askUsage(c.r)
		}
		if c.awaits() || c.decision.Held() {
			return c.r, c.settling(), c.body
		}
		return c.r, nil, c.body
	case d.config.Refuse != nil && fault == "":
		c.linger()
		refuseBy(d.config.Refuse, w, r, c.answer.Status, &c.decision)
	case d.config.AuthOnly: // the proxy decides by the status
		c.linger()
		send(w, r, &c.answer, c.answer.Status)
	default:
		c.linger()
		send(w, r, &c.answer, c.answer.HTTPStatus())
	}
	return nil, nil, nil
}

// clean removes the fields listed in the Connection field, unless the gateway has removed them. It returns the
// fault of Connection as a sentence, or "".
func (d *door) clean(w http.ResponseWriter, h http.Header) (fault string) {
	if x, ok := w.(*exchange.Exchange); ok && x.Cleaned {
		return x.Fault
	}
	return exchange.DropNominated(h, d.config.ForwardedHeader)
}

// send sends the status and the body of an answer. The fields are already set.
func send(w http.ResponseWriter, r *http.Request, a *answer.Answer, status int) {
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(a.Body()) // the only error is that the client has left
	}
}
