package httplimit

import (
	"net/http"
	"strconv"

	"github.com/sluicehq/sluice"
)

// problem is a kind of refusal.
type problem struct {
	status int
	code   string // the member error, ready for JSON
	start  string // of application/problem+json, up to the detail
}

var (
	quotaExceeded   = newProblem(http.StatusTooManyRequests, problemTypes+"quota-exceeded", "rate_limit_exceeded")
	reducedCapacity = newProblem(http.StatusServiceUnavailable, problemTypes+"temporary-reduced-capacity", "temporary_reduced_capacity")
	missingKey      = newProblem(http.StatusBadRequest, "about:blank", "missing_key")
)

const problemTypes = "https://iana.org/assignments/http-problem-types#"

func newProblem(status int, kind, code string) *problem {
	return &problem{status: status, code: `"error":"` + code + `"`, start: `{"type":"` + kind +
		`","title":"` + http.StatusText(status) + `","status":` + strconv.Itoa(status) + `,"detail":`}
}

func (c *call) problem() *problem {
	switch {
	case c.decision.Missing != "":
		return missingKey
	case c.decision.Unavailable:
		return reducedCapacity
	}
	return quotaExceeded
}

// retryAfter returns the seconds after which to ask again, or 0 if that is no use.
func (c *call) retryAfter() int64 {
	d := &c.decision
	switch {
	case d.Missing != "":
		return 0
	case d.RetryAfter == sluice.Never && !d.Unavailable:
		return 0
	case d.RetryAfter == sluice.Never:
		return 1
	}
	return seconds(d.RetryAfter.Microseconds())
}

// sayRefused sets the fields that every refusal has.
func (c *call) sayRefused(f *fields) {
	c.media = negotiate(c.r.Header["Accept"])
	f.set("Content-Type", offers[c.media])
	f.set("Cache-Control", "no-store")
	if retry := c.retryAfter(); retry > 0 {
		f.set("Retry-After", strconv.FormatInt(retry, 10))
	}
}

// refuse answers the request. The fields are set.
func (c *call) refuse(w http.ResponseWriter) {
	p := c.problem()
	w.WriteHeader(p.status)
	if c.r.Method == http.MethodHead {
		return
	}
	c.text = c.appendDetail(c.text[:0])
	c.body = c.appendBody(c.body[:0], p)
	// An error here is the client's, who has left.
	_, _ = w.Write(c.body)
}

// appendBody appends the body in the media type that was agreed on. The sentence for
// people is in c.text.
func (c *call) appendBody(dst []byte, p *problem) []byte {
	switch c.media {
	case plainText:
		return append(append(dst, c.text...), '\n')
	case plainJSON:
		dst = append(append(append(dst, '{'), p.code...), `,"message":`...)
		dst = appendQuoted(dst, c.text)
	default: // RFC 9457
		dst = appendQuoted(append(dst, p.start...), c.text)
		if p == quotaExceeded {
			dst = c.appendViolated(append(dst, `,"violated-policies":[`...))
			dst = append(dst, ']')
		}
		dst = append(append(dst, ','), p.code...)
	}
	return append(c.appendRetry(dst), "}\n"...)
}

func (c *call) appendRetry(dst []byte) []byte {
	if retry := c.retryAfter(); retry > 0 {
		dst = strconv.AppendInt(append(dst, `,"retry_after":`...), retry, 10)
	}
	return dst
}

func (c *call) appendViolated(dst []byte) []byte {
	first := true
	for i := range c.decision.Results {
		r := &c.decision.Results[i]
		if r.Allowed || r.Shadow {
			continue
		}
		if !first {
			dst = append(dst, ',')
		}
		first = false
		dst = appendQuoted(dst, printable(r.Rule))
	}
	return dst
}

// appendDetail appends a sentence for people: printable ASCII.
func (c *call) appendDetail(dst []byte) []byte {
	d := &c.decision
	switch one := leading(d); {
	case d.Missing != "":
		return append(append(append(dst, "The request lacks "...), printable(d.Missing)...), '.')
	case d.Unavailable || one < 0:
		dst = append(dst, "The request cannot be taken at the moment."...)
	default:
		r := &d.Results[one]
		dst = append(append(append(dst, "Limit "...), printable(r.Rule)...), ": "...)
		quota, span := wholeSeconds(r.Plan.Limit)
		dst = strconv.AppendInt(dst, quota, 10)
		dst = strconv.AppendInt(append(dst, " per "...), span, 10)
		dst = append(dst, "s."...)
		if d.RetryAfter == sluice.Never {
			dst = append(dst, " The request asks for "...)
			dst = strconv.AppendInt(dst, r.Cost, 10)
			return append(dst, ", more than it ever allows at once."...)
		}
	}
	dst = strconv.AppendInt(append(dst, " Retry in "...), c.retryAfter(), 10)
	return append(dst, " s."...)
}
