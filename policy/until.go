package policy

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/sluicehq/sluice/internal/spelling"
)

// untilHint says how to write when something ends.
const untilHint = "write it as in 2027-01-31T12:00:00Z, or 2027-01-31 for the end of that day in UTC"

// ParseUntil reads when an override or a place in a tier ends: a time of RFC 3339, or a date,
// which is the end of that day in UTC. From the moment that it returns on, it does not hold.
func ParseUntil(text string) (time.Time, error) {
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return t, nil
	}
	t, err := time.Parse(time.DateOnly, text)
	if err != nil {
		return time.Time{}, errors.New("policy: until is " + spelling.Quote(text) + ", which is not a time: " + untilHint)
	}
	return t.AddDate(0, 0, 1), nil
}

// Terms says in words until when the override holds, why, and who made it. The text begins with a
// space or a comma, to be put behind another; it is empty if none of that is known.
func (o *Override) Terms() string { return terms(o.Until, o.Reason, o.By) }

// Terms says the same of an entry of the subjects as [Override.Terms] of an override.
func (t *TierSubject) Terms() string { return terms(t.Until, t.Reason, t.By) }

func terms(until, reason, by string) (text string) {
	if until != "" {
		text = " until " + until
		if _, err := time.Parse(time.DateOnly, until); err == nil {
			text = " until the end of " + until + " in UTC"
		}
	}
	if reason != "" {
		text += ", reason " + spelling.Quote(reason)
	}
	if by != "" {
		text += ", by " + spelling.Quote(by)
	}
	return text
}

// until reads when something ends, in microseconds since the Unix epoch; 0 is never.
func (c *compiler) until(text string) int64 {
	if text == "" {
		return 0
	}
	t, err := ParseUntil(text)
	if err != nil {
		c.fail("until", untilHint, "until is %s, which is not a time", spelling.Quote(text))
		return 0
	}
	return cmp.Or(t.UnixMicro(), -1)
}

// maxEnded bounds the warnings about what has ended in one list: tables grow.
const maxEnded = 10

// ended warns of the item that is being looked at if it has ended.
func (c *compiler) ended(found *[]Problem, what string, until int64) {
	if until == 0 || until >= c.now {
		return
	}
	if c.endings++; c.endings <= maxEnded {
		at := time.UnixMicro(until).UTC().Format(time.RFC3339)
		*found = append(*found, Problem{Path: c.path(""), Rule: c.rule, Hint: "remove it", Message: "the " + what + " ended at " + at}.at(c.where))
	}
}

// endedMore says how many warnings ended has left out.
func (c *compiler) endedMore(found *[]Problem) {
	if more := c.endings - maxEnded; more > 0 {
		*found = append(*found, Problem{Path: c.list, Message: fmt.Sprintf("%d more have ended", more), Hint: "remove them"}.at(c.where))
	}
	c.endings = 0
}
