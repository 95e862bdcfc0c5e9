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
	start  string // of application/problem+json, up to the text of the detail
}

var (
	quotaExceeded   = newProblem(http.StatusTooManyRequests, problemTypes+"quota-exceeded", "rate_limit_exceeded")
	reducedCapacity = newProblem(http.StatusServiceUnavailable, problemTypes+"temporary-reduced-capacity", "temporary_reduced_capacity")
	missingKey      = newProblem(http.StatusBadRequest, "about:blank", "missing_key")
	malformed       = newProblem(http.StatusBadRequest, "about:blank", "malformed_request")
)

const problemTypes = "https://iana.org/assignments/http-problem-types#"

func newProblem(status int, kind, code string) *problem {
	return &problem{status: status, code: `"error":"` + code + `"`, start: `{"type":"` + kind +
		`","title":"` + http.StatusText(status) + `","status":` + strconv.Itoa(status) + `,"detail":"`}
}

func (c *call) problem() *problem {
	switch {
	case c.fault != "":
		return malformed
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
	case c.fault != "" || d.Missing != "":
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
		c.text = strconv.AppendInt(c.text[:0], retry, 10)
		c.retry = c.values.keep(c.text)
		f.set("Retry-After", c.retry)
	}
}

// refuse answers the request. The fields are set.
func (c *call) refuse(w http.ResponseWriter, d *door) {
	p := c.problem()
	c.linger()
	w.WriteHeader(p.status)
	if c.r.Method == http.MethodHead {
		return
	}
	c.text = c.appendBody(c.text[:0], p, d.legends.of(c.decision.Results, d.Dialect))
	// An error here is the client's, who has left.
	_, _ = w.Write(c.text)
}

// appendBody appends the body in the media type that was agreed on.
func (c *call) appendBody(dst []byte, p *problem, l *legend) []byte {
	switch c.media {
	case plainText:
		return append(c.appendDetail(dst, l), '\n')
	case plainJSON:
		dst = append(append(append(dst, '{'), p.code...), `,"message":"`...)
		dst = append(c.appendDetail(dst, l), '"')
	default: // RFC 9457
		dst = append(c.appendDetail(append(dst, p.start...), l), '"')
		if p == quotaExceeded {
			dst = c.appendViolated(append(dst, `,"violated-policies":[`...), l)
			dst = append(dst, ']')
		}
		dst = append(append(dst, ','), p.code...)
	}
	if c.retry != "" {
		dst = append(append(dst, `,"retry_after":`...), c.retry...)
	}
	return append(dst, "}\n"...)
}

func (c *call) appendViolated(dst []byte, l *legend) []byte {
	told, violated := 0, 0
	for i := range c.decision.Results {
		r := &c.decision.Results[i]
		if r.Shadow {
			continue
		}
		if !r.Allowed {
			if violated > 0 {
				dst = append(dst, ',')
			}
			violated++
			dst = append(dst, l.entries[told].item...)
		}
		told++
	}
	return dst
}

// appendDetail appends a sentence for people: printable ASCII, in JSON the inside of a string.
func (c *call) appendDetail(dst []byte, l *legend) []byte {
	d := &c.decision
	switch one := leading(d); {
	case c.fault != "":
		s := newSentence(c.fault)
		return append(dst, s.in(c.media)...)
	case d.Missing != "":
		return append(dst, c.lacks()...)
	case d.Unavailable || one < 0:
		dst = append(dst, "The request cannot be taken at the moment."...)
	default:
		dst = append(dst, l.entries[told(d.Results[:one])].sentence.in(c.media)...)
		if d.RetryAfter == sluice.Never {
			dst = append(dst, " The request asks for "...)
			dst = strconv.AppendInt(dst, d.Results[one].Cost, 10)
			return append(dst, ", more than it ever allows at once."...)
		}
	}
	return append(append(append(dst, " Retry in "...), c.retry...), " s."...)
}

func (c *call) lacks() string {
	s := newSentence("The request lacks " + printable(c.decision.Missing) + ".")
	return s.in(c.media)
}

// sentence is printable ASCII as it is, and as the inside of a string of JSON.
type sentence struct{ text, json string }

func newSentence(text string) sentence {
	quoted := appendQuoted(nil, text)
	return sentence{text, string(quoted[1 : len(quoted)-1])}
}

func (s *sentence) in(media int) string {
	if media == plainText {
		return s.text
	}
	return s.json
}
