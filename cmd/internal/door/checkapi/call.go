package checkapi

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"

	"github.com/sluicehq/sluice/answer"
	"github.com/sluicehq/sluice/cmd/internal/door"
	"github.com/sluicehq/sluice/policy"
)

// call has the memory for handling one HTTP request. It is reused.
type call struct {
	api       *api
	w         http.ResponseWriter
	r         *http.Request
	operation *operation
	large     bool // the call occupies a slot of api.large until it is answered

	decoder   decoder
	in, out   []byte
	checks    []*check
	used      int // the number of checks in use
	asked     []*policy.Request
	decisions []policy.Decision
	answer    answer.Answer
	header    http.Header // the fields of an answer
	names     []string    // the names of these fields
}

func newCall(a *api) *call {
	c := &call{api: a, header: http.Header{}}
	c.decoder = decoder{all: checkMembers, room: c.next}
	return c
}

// Bounds for the memory of a call that is kept for reuse.
const (
	keptChecks = 16
	keptBytes  = 16 << 10
)

func (c *call) release() {
	if c.large {
		<-c.api.large
	}
	for _, one := range c.checks[:c.used] {
		one.reset()
	}
	clear(c.asked)
	c.decoder.begin("", nil)
	c.w, c.r, c.operation, c.large, c.used, c.asked = nil, nil, nil, false, 0, c.asked[:0]
	if len(c.checks) > keptChecks || cap(c.in) > keptBytes || cap(c.out) > keptBytes || len(c.header) > keptFields {
		return // the memory of large calls is not kept, because they are rare
	}
	for i := range c.decisions {
		c.decisions[i].Err = nil
	}
	c.api.calls.Put(c)
}

// next returns an empty check.
func (c *call) next() *check {
	if c.used == len(c.checks) {
		c.checks = append(c.checks, newCheck())
	}
	c.used++
	return c.checks[c.used-1]
}

func (c *call) serve() *problem {
	status, p := c.query()
	if p != nil {
		return p
	}
	text, p := c.read()
	if p != nil {
		return p
	}
	d := &c.decoder
	d.begin(text, c.operation)
	if !d.decode() {
		return d.problem
	}
	if status && d.batch {
		return badParameter("status", "a batch has several statuses: each answer contains its own")
	}
	checks := c.checks[:c.used]
	if c.operation.places != nil {
		return c.places(checks[0].place)
	}
	if d.batch {
		checks = checks[1:] // checks[0] is the object with "checks"
	}
	if p := c.resolve(checks, d.batch); p != nil {
		return p
	}
	if p := c.reserve(len(checks) > smallBatch); p != nil {
		return p
	}
	if c.operation.settle {
		return c.settle(checks[0])
	}
	c.decide(checks)
	c.reply(checks, d.batch, status)
	return nil
}

// query parses the query. The result status reports whether the response gets the status of the answer.
func (c *call) query() (status bool, p *problem) {
	switch c.r.URL.RawQuery {
	case "":
		return false, nil
	case "status=1":
		return true, nil
	}
	return false, badParameter("status", "the only parameter is status=1")
}

// resolve finds the subjects of checks that name a rule, and the faults of described requests. It is called before
// anything is charged.
func (c *call) resolve(checks []*check, batch bool) (p *problem) {
	for i, one := range checks {
		if one.request.Mode = one.mode; one.described {
			one.fault = one.request.Aim(one.target)
			continue
		}
		subject, err := c.api.Engine.Subject(one.rule, one.key)
		if err != nil {
			p := badMember("", "%s", door.Reason(err))
			if batch {
				p.within(strconv.Itoa(i))
				p.within("checks")
			}
			return p
		}
		one.request.Subject = subject
	}
	return nil
}

// decide decides about all checks, in one call of the store if possible: see [policy.Engine.DecideEach].
func (c *call) decide(checks []*check) {
	for _, one := range checks {
		if one.fault == "" {
			one.request.Door = "check"
			c.asked = append(c.asked, &one.request)
		}
	}
	if n := len(c.asked) - len(c.decisions); n > 0 {
		c.decisions = append(c.decisions, make([]policy.Decision, n)...)
	}
	c.api.Engine.DecideEach(c.r.Context(), c.asked, c.decisions[:len(c.asked)])
}

// settle settles one check. The response reports whether anything was settled.
func (c *call) settle(one *check) *problem {
	if one.fault != "" {
		return badMember("/request", "%s", one.fault) // an invalid request was never charged
	}
	err := c.api.Engine.SettleRequest(c.r.Context(), &one.request, one.outcome)
	switch {
	case errors.Is(err, policy.ErrNotCharged):
		return badMember("", "%s", door.Reason(err))
	case err != nil && !errors.Is(err, policy.ErrNothingToSettle):
		return unavailable("the shared store is unavailable: try again")
	}
	return c.report("settled", err == nil)
}

// places holds or releases a place, which is a token from an earlier answer: see operation.places.
func (c *call) places(place string) *problem {
	done, err := c.operation.places(c.api.Engine, c.r.Context(), place)
	switch {
	case errors.Is(err, policy.ErrNoPlace):
		return badMember("/place", "write the place from the answer to the check")
	case err != nil:
		return unavailable("the shared store is unavailable: try again")
	}
	return c.report(c.operation.member, done)
}

// report sends the response of an operation. The only member of the response reports whether the operation was
// done.
func (c *call) report(member string, done bool) *problem {
	c.out = fmt.Appendf(c.out[:0], `{"%s":%t}`, member, done)
	c.send(http.StatusOK)
	return nil
}

// Header fields of every response that is not a problem.
var (
	jsonFields    = []string{jsonType}
	noStoreFields = []string{"no-store"}
)

// reply sends the answers. The response to a single check also has the header fields in passed.
func (c *call) reply(checks []*check, batch, status bool) {
	h, code := c.w.Header(), http.StatusOK
	c.out = c.out[:0]
	if batch {
		c.appendAll(checks)
	} else {
		c.appendAnswer(checks[0], c.decisions)
		for _, name := range passed {
			if v := c.header[name]; v != nil {
				h[name] = v
			}
		}
		if status {
			code = c.answer.Status
		}
	}
	c.send(code)
}

// send sends the response in c.out.
func (c *call) send(code int) {
	c.out = append(c.out, '\n')
	h := c.w.Header()
	h["Content-Type"], h["Cache-Control"] = jsonFields, noStoreFields
	if len(c.out) > autoLength {
		h["Content-Length"] = []string{strconv.Itoa(len(c.out))}
	}
	if code != http.StatusOK {
		c.w.WriteHeader(code)
	}
	_, _ = c.w.Write(c.out) // fails only if the client has left
}

// autoLength is the maximum length of a body for which net/http sets Content-Length.
const autoLength = 2 << 10

// passed has the fields that the response to a single check copies from the answer. The answer's other fields
// concern the body of a denial, or web pages that read the denial.
var passed = slices.Concat(answer.StateFields[:], []string{"Retry-After"})
