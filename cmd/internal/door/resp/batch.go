package resp

import "github.com/sluicehq/sluice/policy"

// maxBatch bounds the decisions in one call of the engine.
const maxBatch = 256

// batch has commands that have arrived together. One call of the engine, and so one call of the store, decides
// about all of them.
type batch struct {
	questions []question
	requests  []*policy.Request
	subjects  []*policy.Subject // the subjects of CL.THROTTLE
	decisions []policy.Decision
}

// question is a command that needs a decision, with the data for its reply.
type question struct {
	limit *limit // the limit of CL.THROTTLE; nil for other commands
	looks bool   // CL.THROTTLE with a quantity of 0
}

// ask adds a question to the batch, and returns its request and a subject, which the caller fills in before it
// calls ask again. Replies are sent in the order of the commands.
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

// decide decides about the batch, and appends the replies.
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
			c.replyThrottled(q, &b.decisions[i])
		} else {
			c.replyChecked(&b.decisions[i])
		}
		*b.requests[i] = policy.Request{}
	}
	b.questions = b.questions[:0]
	c.server.batches.Put(b)
}

// refuse appends an error after the replies to earlier commands.
func (c *conn) refuse(text string) {
	c.decide()
	c.fail(text)
}
