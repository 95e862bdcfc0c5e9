package checkapi

import (
	"cmp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/cmd/internal/door"
	"github.com/sluicehq/sluice/kernel"
	"github.com/sluicehq/sluice/policy"
)

func (c *call) appendAll(checks []*check) {
	c.out = append(c.out, `{"answers":[`...)
	ds := c.decisions
	for i, one := range checks {
		if i > 0 {
			c.out = append(c.out, ',')
		}
		ds = c.appendAnswer(one, ds)
	}
	c.out = append(c.out, "]}"...)
}

// undecided is the decision about a request with a fault.
var undecided policy.Decision

// appendAnswer appends the answer to a check. Unless the request has a fault, the first decision of ds is about
// this check. appendAnswer returns the decisions about later checks. It leaves the answer's fields in c.header, and
// the status in c.answer.
func (c *call) appendAnswer(one *check, ds []policy.Decision) []policy.Decision {
	clear(c.header)
	d := &undecided
	if one.fault == "" {
		d, ds = &ds[0], ds[1:]
	}
	c.api.Answer(&c.answer, c.header, d, one.fault, one.request.Header)
	c.out = strconv.AppendBool(append(c.out, `{"allowed":`...), d.Allowed)
	c.out = appendMember(c.out, `,"status":`, int64(c.answer.Status))
	if retry := c.header["Retry-After"]; retry != nil {
		c.out = append(append(c.out, `,"retry_after":`...), retry[0]...)
	}
	c.out = appendDecision(c.out, d)
	if d.Held() || d.Queued() {
		c.out = appendText(append(c.out, `,"place":`...), c.api.Engine.Place(*d))
	}
	c.appendHeaders()
	if body := c.answer.Body(); body != nil {
		c.out = appendBody(append(c.out, `,"body":`...), body)
	}
	c.out = append(c.out, '}')
	return ds
}

// appendDecision appends the members that come only from the decision.
func appendDecision(dst []byte, d *policy.Decision) []byte {
	dst = appendSeconds(append(dst, `,"delay":`...), d.Delay)
	dst = appendTrue(dst, `,"exempt":true`, d.Exempt)
	dst = appendTrue(dst, `,"degraded":true`, d.Degraded)
	dst = appendTrue(dst, `,"unavailable":true`, d.Unavailable)
	dst = appendTrue(dst, `,"repeated":true`, d.Repeated)
	dst = appendOver(dst, d)
	if d.Missing != "" {
		dst = appendText(append(dst, `,"missing":`...), d.Missing)
	}
	if d.Blocked != "" {
		dst = appendText(append(dst, `,"blocked":`...), d.Blocked)
	}
	if d.Unsettled() && d.Now > 0 {
		dst = append(dst, `,"at":"`...)
		dst = time.UnixMicro(d.Now).UTC().AppendFormat(dst, time.RFC3339Nano)
		dst = append(dst, '"')
	}
	dst = append(dst, `,"results":[`...)
	for i := range d.Results {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendResult(dst, &d.Results[i], d.Now)
	}
	return append(dst, ']')
}

// appendOver appends the names of the rules with "over: mark" that the request exceeds.
func appendOver(dst []byte, d *policy.Decision) []byte {
	over := d.Over()
	if over == nil {
		return dst
	}
	dst = append(dst, `,"over":[`...)
	for i, rule := range over {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendText(dst, rule)
	}
	return append(dst, ']')
}

func appendTrue(dst []byte, member string, yes bool) []byte {
	if yes {
		return append(dst, member...)
	}
	return dst
}

// appendResult appends the result of one limit. It omits unknown numbers. The numbers mean the same as in the
// X-RateLimit fields.
func appendResult(dst []byte, r *policy.Result, now int64) []byte {
	dst = appendText(append(dst, `{"rule":`...), r.Rule)
	dst = appendText(append(dst, `,"name":`...), cmp.Or(r.Name, r.Rule))
	dst = appendText(append(dst, `,"from":`...), r.From)
	dst = strconv.AppendBool(append(dst, `,"allowed":`...), r.Allowed)
	dst = strconv.AppendBool(append(dst, `,"shadow":`...), r.Shadow)
	if r.Plan == nil {
		return append(dst, '}')
	}
	limit := &r.Plan.Limit
	dst = appendMember(dst, `,"cost":`, limit.Value(r.Cost))
	if limit.Money > 0 {
		dst = append(dst, `,"unit":"micro-usd"`...)
	}
	if now != 0 && r.Origin != sluice.ByOnError {
		dst = appendMember(dst, `,"limit":`, r.Plan.ReportedLimit())
		dst = appendMember(dst, `,"remaining":`, limit.Value(r.Remaining))
		if r.Plan.Kernel != kernel.InFlight { // the end of requests in flight is unknown
			dst = appendMember(dst, `,"reset":`, (now+r.ResetAfter.Microseconds()+999_999)/1_000_000)
		}
	}
	if retry, ok := r.RetryAfterSeconds(); ok && !r.Allowed {
		dst = appendMember(dst, `,"retry_after":`, retry)
	}
	return append(dst, '}')
}

func appendMember(dst []byte, name string, n int64) []byte {
	return strconv.AppendInt(append(dst, name...), n, 10)
}

// appendSeconds appends a duration in seconds, rounded up to microseconds.
func appendSeconds(dst []byte, d time.Duration) []byte {
	us := (d + time.Microsecond - 1).Microseconds()
	return strconv.AppendFloat(dst, float64(us)/1e6, 'f', -1, 64)
}

// appendHeaders appends the fields that the caller passes on to the client.
func (c *call) appendHeaders() {
	c.names = door.FieldNames(c.names[:0], c.header)
	c.out = append(c.out, `,"headers":{`...)
	for i, name := range c.names {
		if i > 0 {
			c.out = append(c.out, ',')
		}
		c.out = append(appendText(c.out, name), ':')
		if values := c.header[name]; len(values) == 1 {
			c.out = appendText(c.out, values[0])
		} else {
			c.out = appendText(c.out, strings.Join(values, ", "))
		}
	}
	c.out = append(c.out, '}')
}

// appendBody appends a body as text. A body from a file of the policy is not always UTF-8.
func appendBody(dst, body []byte) []byte {
	if !utf8.Valid(body) {
		return appendText(dst, strings.ToValidUTF8(string(body), "\uFFFD"))
	}
	return appendText(dst, body)
}

// appendText appends UTF-8 text as a JSON string.
func appendText[T string | []byte](dst []byte, s T) []byte {
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	from := 0
	for i := range len(s) {
		c := s[i]
		if c >= ' ' && c != '"' && c != '\\' {
			continue
		}
		dst = append(dst, s[from:i]...)
		from = i + 1
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\n':
			dst = append(dst, `\n`...)
		default:
			dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
	}
	return append(append(dst, s[from:]...), '"')
}
