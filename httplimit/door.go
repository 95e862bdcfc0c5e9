package httplimit

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluicehq/sluice/policy"
)

// door stands before handlers: it asks its source, and says what the source has said.
type door struct {
	Config
	source   source
	cors     func() *policy.CORS // nil: there is none
	calls    sync.Pool           // of *call
	legends  legends
	degraded atomic.Bool // what was logged last
}

// source decides.
type source interface {
	// decide fills in c.decision for c.r.
	decide(c *call)
	// giveBack undoes a decision that has let the request pass.
	giveBack(ctx context.Context, c *call)
}

// call is the scratch memory of one request, until the handler behind the door runs.
type call struct {
	w        http.ResponseWriter
	r        *http.Request
	patience time.Duration // with the body
	decision policy.Decision

	request policy.Request   // for a whole policy
	results [1]policy.Result // for a single limiter
	key     string           // likewise
	media   int              // of a refusal, as an index of offers
	retry   string           // of a refusal: Retry-After, if it has that
	fault   string           // what is wrong with a request about which nothing is decided
	text    []byte           // what is being written
	values  values
}

func newCall() *call {
	c := new(call)
	c.request.Body = c.peek
	return c
}

func (d *door) release(c *call) {
	// What is left holds on to nothing of the request.
	c.w, c.r = nil, nil
	c.key, c.retry, c.fault, c.decision = "", "", "", policy.Decision{}
	c.request = policy.Request{Body: c.request.Body, Room: c.request.Room}
	d.calls.Put(c)
}

// admit reports whether the request may pass, after its turn has come. If not it has
// been answered.
func (d *door) admit(w http.ResponseWriter, r *http.Request) bool {
	c := d.calls.Get().(*call)
	defer d.release(c)
	c.w, c.r, c.patience = w, r, d.BodyTimeout
	if c.fault = misaimed(r); c.fault == "" {
		c.fault = d.dropNominated(r.Header)
	}
	if c.fault == "" {
		d.source.decide(c)
		d.settle(c)
	}
	c.say(w.Header(), d)
	if !c.decision.Allowed {
		c.refuse(w, d)
	}
	return c.decision.Allowed
}

// settle turns a decision into what is done: a request that has been let pass may have
// to wait, and its client may be gone.
func (d *door) settle(c *call) {
	ctx, decision := c.r.Context(), &c.decision
	switch {
	case decision.Degraded && ctx.Err() != nil:
		// The store may not have answered because the client left. The handler does
		// not run: leaving early would be a way not to be counted.
		*decision = policy.Decision{Degraded: true, Unavailable: true, RetryAfter: time.Second}
	case decision.Allowed && decision.Delay > 0:
		if !c.await(ctx, decision.Delay) {
			d.source.giveBack(context.WithoutCancel(ctx), c)
			expire(decision)
		}
	}
	if len(decision.Results) > 0 {
		d.report(c)
	}
}

// maxWaiting is how much of a body is read while its request waits.
const maxWaiting = 64 << 10

// await waits, and reports whether it has: not if the client leaves, or if the context
// ends, or would end, before. A server notices that a client has left only when the body
// has been read, so that is done first.
func (c *call) await(ctx context.Context, delay time.Duration) bool {
	turn := time.Now().Add(delay)
	if deadline, bounded := ctx.Deadline(); bounded && deadline.Before(turn) {
		return false
	}
	if _, err := c.peek(maxWaiting); err != nil {
		return false
	}
	t := time.NewTimer(time.Until(turn))
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// expire makes a refusal of a decision whose turn did not come in time. What it says of
// the limits holds no more: time has passed, and the place in the queue was given back.
func expire(d *policy.Decision) {
	d.Allowed, d.RetryAfter, d.Now = false, d.Delay, 0
	for i := range d.Results {
		if r := &d.Results[i]; r.Delay > 0 {
			r.Allowed, r.RetryAfter = false, r.Delay
		}
	}
}

// report logs when the store stops answering, and when it answers again. A store that
// decides without the shared one has no error, and logs that itself.
func (d *door) report(c *call) {
	now := c.decision.Err != nil
	if d.degraded.Load() == now || !d.degraded.CompareAndSwap(!now, now) {
		return
	}
	logger := d.Logger
	if logger == nil {
		logger = slog.Default()
	}
	if now {
		logger.Warn("rate limits are decided without the store", "error", c.decision.Err)
	} else {
		logger.Info("rate limits are decided by the store again")
	}
}
