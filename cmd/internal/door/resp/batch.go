package resp

import "github.com/sluicehq/sluice/policy"

// maxBatch is how many decisions are asked for at once.
const maxBatch = 256

// batch is what a client has asked in one go: all of it is one call of the engine, and so of the
// store.
type batch struct {
	questions []question
	requests  []*policy.Request
	subjects  []*policy.Subject // of CL.THROTTLE
	decisions []policy.Decision
}

// question is how the answer is to be told.
type question struct {
	limit *limit // of CL.THROTTLE, else nil
	looks bool   // CL.THROTTLE with a quantity of 0
}

// ask returns the request of another question and a free subject for it. Its answer is sent before any other reply.
// Its batch may be decided as soon as the next one comes.
func (c *conn) ask(q question) (r *policy.Request, free *policy.Subject) {
	if c.asked != nil && len(c.asked.questions) == maxBatch {
		c.decide()
	}
	if c.asked == nil {
		c.asked = c.server.batches.Get().(*batch)
	}
	b := c.asked
	b.questions = append(b.questions, q)
	n := len(b.questions)
	if n > len(b.requests) {
		b.requests = append(b.requests, new(policy.Request))
		b.subjects = append(b.subjects, new(policy.Subject))
		b.decisions = append(b.decisions, policy.Decision{})
	}
	return b.requests[n-1], b.subjects[n-1]
}

// decide gets the answers to what was asked, and tells them.
func (c *conn) decide() {
	b := c.asked
	if b == nil {
		return
	}
	c.asked = nil
	n := len(b.questions)
	for _, r := range b.requests[:n] {
		r.Door = "resp"
	}
	c.server.Engine.DecideEach(c.server.Context(), b.requests[:n], b.decisions[:n])
	for i, q := range b.questions {
		if q.limit != nil {
			c.tellThrottled(q, &b.decisions[i])
		} else {
			c.tellChecked(&b.decisions[i])
		}
		*b.requests[i] = policy.Request{}
	}
	b.questions = b.questions[:0]
	c.server.batches.Put(b)
}

// refuse tells an error, behind the answers to what was asked before.
func (c *conn) refuse(text string) {
	c.decide()
	c.fail(text)
}
