package spoe

import (
	"context"
	"net/http"
	"time"

	"github.com/sluicehq/sluice/answer"
	"github.com/sluicehq/sluice/policy"
)

// batch has frames that have arrived together. They are decided in one call of the engine.
type batch struct {
	questions []*question
	spare     []*question
	requests  []*policy.Request // the requests that the engine decides about
	asked     []*question
	decisions []policy.Decision
	came      time.Time
	encoding
}

// encoding is the memory for encoding one answer.
type encoding struct {
	answer answer.Answer
	fields http.Header
}

// add decodes a frame. After an error, the frames before it are answered, and the connection is closed.
func (b *batch) add(frame []byte) error {
	switch frame[0] {
	case haproxyDisconnect:
		return &fault{codeNormal, "normal"}
	case notify:
		q := b.question()
		b.questions = append(b.questions, q)
		err := q.decode(frame)
		if err != nil {
			b.questions = b.questions[:len(b.questions)-1]
		}
		return err
	}
	return &fault{codeInvalid, "a frame is neither NOTIFY nor HAPROXY-DISCONNECT"}
}

func (b *batch) question() *question {
	if n := len(b.spare); n > 0 {
		q := b.spare[n-1]
		b.spare = b.spare[:n-1]
		return q
	}
	return newQuestion()
}

// forget empties the batch for reuse.
func (b *batch) forget() {
	for _, q := range b.questions {
		if !q.queued {
			q.forget()
			b.spare = append(b.spare, q)
		}
	}
	clear(b.questions)
	clear(b.requests)
	clear(b.asked)
	b.questions, b.requests, b.asked = b.questions[:0], b.requests[:0], b.asked[:0]
}

// answer decides about the whole batch, and appends the answers to c.out. Requests in a queue are answered later.
func (c *conn) answer(b *batch) {
	b.came = time.Now()
	for _, q := range b.questions {
		if c.refuseUnread(b, q) {
			continue
		}
		q.request.Door = "spoe"
		b.asked, b.requests = append(b.asked, q), append(b.requests, &q.request)
	}
	for len(b.decisions) < len(b.asked) {
		b.decisions = append(b.decisions, policy.Decision{})
	}
	decisions := b.decisions[:len(b.asked)]
	c.agent.Engine.DecideEach(c.ctx, b.requests, decisions)
	for i, q := range b.asked {
		d := &decisions[i]
		switch {
		case q.unseen:
			c.agent.complain("a request is denied because a rule reads the body, which HAProxy does not send: add body=req.body to the arguments of the message, and \"option http-buffer-request\" to the frontend", "path", q.request.Path)
			*d = policy.Decision{Unavailable: true, RetryAfter: time.Second, Results: d.Results[:0]}
		case d.Allowed && d.Delay > 0:
			c.queue(b, q, d)
			continue
		}
		c.out = c.encode(c.out, &b.encoding, q, d, "")
	}
}

// refuseUnread denies a request that has an invalid target or host, or lacks a required argument. It reports whether
// it has denied the request.
func (c *conn) refuseUnread(b *batch, q *question) bool {
	if forgotten := q.seen.missing(); forgotten != "" {
		c.agent.complain("requests are denied because HAProxy does not send values that rules may use: add " + forgotten + " to the arguments of the message")
		c.out = c.encode(c.out, &b.encoding, q, &policy.Decision{Unavailable: true, RetryAfter: time.Second}, "")
		return true
	}
	if fault := q.misaimed(); fault != "" {
		c.out = c.encode(c.out, &b.encoding, q, &policy.Decision{}, fault)
		return true
	}
	return false
}

// queue answers a request of b when its turn in the queue comes. If HAProxy does not wait that long, or too many
// requests are waiting, queue denies the request and gives back the turn.
func (c *conn) queue(b *batch, q *question, d *policy.Decision) {
	ctx, cancel := context.WithDeadline(c.ctx, b.came.Add(q.wait))
	select {
	case c.queued <- struct{}{}:
	default:
		cancel()
		c.settle(ctx, d)
		c.out = c.encode(c.out, &b.encoding, q, d, "")
		return
	}
	q.queued = true // the question no longer belongs to the batch
	own := d.Clone()
	c.waiting.Go(func() {
		defer cancel()
		defer func() { <-c.queued }()
		defer c.agent.Rescue(c.socket)
		c.settle(ctx, &own)
		if c.write(c.encode(nil, new(encoding), q, &own, "")) != nil {
			c.socket.Close()
		}
	})
}

// settle waits for the turn of a request. If ctx ends first, it gives back the turn, and d becomes a denial.
func (c *conn) settle(ctx context.Context, d *policy.Decision) {
	answer.Settle(ctx, d, nil, func(ctx context.Context) { c.agent.Engine.Refund(ctx, *d) })
}

// encode appends the answer to a request: a denial if fault is not "", or else the answer to d.
func (c *conn) encode(dst []byte, e *encoding, q *question, d *policy.Decision, fault string) []byte {
	if e.fields == nil {
		e.fields = make(http.Header)
	}
	clear(e.fields)
	c.agent.Answer(&e.answer, e.fields, d, fault, q.header)
	r := beginReply(dst, q.head, c.size)
	r.setAnswer(&e.answer, d, e.fields)
	return endFrame(r.dst, r.from)
}
