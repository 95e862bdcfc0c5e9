package resp

import (
	"fmt"
	"math"
	"strconv"
	"time"
	"unsafe"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/cmd/internal/door"
	"github.com/sluicehq/sluice/policy"
)

// throttleName is the rule name of limits of CL.THROTTLE.
const throttleName = "CL.THROTTLE"

// throttleArgs are the numeric arguments after the key.
var throttleArgs = [...]struct {
	name        string
	least, most int64
}{
	{"max_burst", 0, math.MaxInt64 - 1},
	{"count", 1, math.MaxInt64},
	{"period", 1, int64(math.MaxInt64 / time.Second)}, // the longest Duration
	{"quantity", 0, math.MaxInt64},
}

// throttle executes CL.THROTTLE.
func (c *conn) throttle(args [][]byte) {
	n := [len(throttleArgs)]int64{3: 1}
	for i, arg := range args[2:] {
		a := &throttleArgs[i]
		v, err := strconv.ParseInt(string(arg), 10, 64)
		if err != nil || v < a.least || v > a.most {
			c.refuse(fmt.Sprintf("ERR CL.THROTTLE: %s is %s: it must be a whole number from %d to %d", a.name, quoted(arg), a.least, a.most))
			return
		}
		n[i] = v
	}
	l, err := c.server.limits.Get(rate{burst: n[0], count: n[1], period: n[2]}, c.server.newLimit)
	if err != nil {
		c.refuse("ERR CL.THROTTLE: " + err.Error())
		return
	}
	key, quantity := args[1], n[3]
	r, subject := c.ask(question{limit: l, looks: quantity == 0})
	// AdhocInto copies the key, so the buffer may be reused.
	l.brought.AdhocInto(subject, unsafe.String(unsafe.SliceData(key), len(key)))
	if r.Subject, r.Cost = subject, quantity; quantity == 0 {
		r.Mode = policy.Peek
	}
}

// replyThrottled appends the reply to CL.THROTTLE.
func (c *conn) replyThrottled(q question, d *policy.Decision) {
	limited, retry := int64(0), int64(-1)
	if !d.Allowed && !q.looks {
		limited = 1
		if d.RetryAfter != sluice.Never {
			retry = door.Seconds(d.RetryAfter)
		}
	}
	var remaining int64
	var reset time.Duration
	if len(d.Results) > 0 {
		r := &d.Results[0]
		remaining, reset = r.Remaining, r.ResetAfter
	}
	c.array(5)
	for _, n := range [...]int64{limited, q.limit.capacity, remaining, retry, door.Seconds(reset)} {
		c.integer(n)
	}
}

// quoted returns a client's text for an error: quoted, and cut if it is long.
func quoted(text []byte) string {
	const most = 64
	if len(text) > most {
		return strconv.QuoteToASCII(string(text[:most])) + "..."
	}
	return strconv.QuoteToASCII(string(text))
}
