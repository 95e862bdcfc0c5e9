package resp

import "github.com/sluicehq/sluice/policy"

// maxBatch is the most decisions in one call of the engine.
const maxBatch = 256

// batch has the commands that a client has sent at once. They are one call of the engine, and so of the store.
type batch struct {
	questions []question
	requests  []*policy.Request
	subjects  []*policy.Subject // the subjects of CL.THROTTLE
	decisions []policy.Decision
}

// question has the data for the reply to a command.
type question struct {
	limit *limit // the limit of CL.THROTTLE, else nil
	looks bool   // CL.THROTTLE with a quantity of 0
}

// ask adds a question, and returns its request and a free subject for it. Its answer is sent before any later
// reply. The batch may be decided as soon as the next question is added.
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

// decide decides about the batch, and writes the replies.
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

// refuse writes an error, after the replies to earlier commands.
func (c *conn) refuse(text string) {
	c.decide()
	c.fail(text)
}
