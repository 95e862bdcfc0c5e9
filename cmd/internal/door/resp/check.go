package resp

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/answer"
	"github.com/sluicehq/sluice/cmd/internal/door"
	"github.com/sluicehq/sluice/policy"
)

// about has the arguments of a SLUICE command.
type about struct {
	rule string
	key  map[string]string
	cost int64
	id   string
}

// subjectArgs parses "rule [part value ...] [COST n] [ID id]". Names and values alternate, so a value cannot be
// taken for a name.
func subjectArgs(args [][]byte) (a about, err error) {
	a = about{rule: string(args[1]), key: make(map[string]string), cost: 1}
	if len(args)%2 != 0 {
		return a, errors.New("each key part, COST and ID must be followed by a value: one is missing")
	}
	for at := 2; at < len(args); at += 2 {
		name, value := args[at], args[at+1]
		switch {
		case is(name, "COST"):
			n, err := strconv.ParseInt(string(value), 10, 64)
			if err != nil || n < 1 {
				return a, fmt.Errorf("COST is %s: it must be a whole number of at least 1", quoted(value))
			}
			a.cost = n
		case is(name, "ID"):
			a.id = string(value)
		default:
			if _, twice := a.key[string(name)]; twice {
				return a, fmt.Errorf("%s occurs twice", quoted(name))
			}
			a.key[string(name)] = string(value)
		}
	}
	return a, nil
}

// subject returns the subject of a command.
func (c *conn) subject(args [][]byte) (a about, s *policy.Subject, err error) {
	if a, err = subjectArgs(args); err == nil {
		s, err = c.server.Engine.Subject(a.rule, a.key)
	}
	return a, s, err
}

// check runs SLUICE.CHECK and SLUICE.PEEK.
func (c *conn) check(args [][]byte, mode policy.Mode) {
	a, subject, err := c.subject(args)
	if err != nil {
		c.refuse(failure(err))
		return
	}
	r, _ := c.ask(question{})
	r.Subject, r.Cost, r.Mode, r.ID = subject, a.cost, mode, a.id
}

// resetSubject runs SLUICE.RESET.
func (c *conn) resetSubject(args [][]byte) {
	a, subject, err := c.subject(args)
	if err == nil && (a.cost != 1 || a.id != "") {
		err = errors.New("SLUICE.RESET resets the whole limit: omit COST and ID")
	}
	if err == nil {
		err = subject.Reset(c.server.Context())
	}
	if err != nil {
		c.fail(failure(err))
		return
	}
	c.ok()
}

// failure returns the error reply for err.
func failure(err error) string { return "ERR " + door.Reason(err) }

// replyChecked appends the reply to SLUICE.CHECK and SLUICE.PEEK.
func (c *conn) replyChecked(d *policy.Decision) {
	var rule string
	var limit, remaining int64
	var r sluice.Decision
	results := d.Results
	if d.Blocked != "" {
		rule, results = d.Blocked, nil // a result of a block has no plan
	}
	if i := answer.MostRestrictive(results, d.Now); i >= 0 {
		most := &results[i]
		rule, r = nameOf(most), most.Decision
		limit, remaining = most.Plan.Limit.Value(most.Plan.Capacity), most.Plan.Limit.Value(r.Remaining)
	}
	c.pairs(9)
	c.pair("allowed", truth(d.Allowed))
	c.textPair("reason", reason(d))
	c.textPair("rule", rule)
	c.pair("limit", limit)
	c.pair("remaining", remaining)
	c.pair("retry_after", retryAfter(d.Allowed, d.RetryAfter))
	c.pair("reset_after", door.Seconds(r.ResetAfter))
	c.pair("delay_ms", int64((d.Delay+time.Millisecond-1)/time.Millisecond))
	c.bulk("limits")
	c.replyLimits(results)
}

func (c *conn) replyLimits(results []policy.Result) {
	c.array(len(results))
	for i := range results {
		r := &results[i]
		c.array(6)
		c.bulk(nameOf(r))
		c.integer(truth(r.Allowed))
		c.integer(r.Plan.Limit.Value(r.Plan.Capacity))
		c.integer(r.Plan.Limit.Value(r.Remaining))
		c.integer(retryAfter(r.Allowed, r.RetryAfter))
		c.integer(door.Seconds(r.ResetAfter))
	}
}

func nameOf(r *policy.Result) string { return cmp.Or(r.Name, r.Rule) }

// reason returns the reason for a denial, "marked" if the request is allowed with a mark, or "".
func reason(d *policy.Decision) string {
	switch {
	case d.Allowed && d.Over() != nil:
		return "marked"
	case d.Allowed:
		return ""
	case d.Blocked != "":
		return "blocked"
	case d.Unavailable:
		return "unavailable"
	case d.Missing != "": // the policy has changed since the subject was resolved
		return "malformed"
	}
	return "limit"
}

func retryAfter(allowed bool, wait time.Duration) int64 {
	switch {
	case allowed:
		return 0
	case wait == sluice.Never:
		return -1
	}
	return max(1, door.Seconds(wait))
}

func truth(yes bool) int64 {
	if yes {
		return 1
	}
	return 0
}
