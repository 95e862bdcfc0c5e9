package answer

import (
	"cmp"
	"net/http"
	"strconv"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/policy"
)

// problem is a kind of denial.
type problem struct {
	status            int
	kind, title, name string // the members type, title and error
	code              string // the member error, ready for JSON
	start             string // the beginning of application/problem+json, up to the text of the detail
}

var (
	quotaExceeded   = newProblem(http.StatusTooManyRequests, problemTypes+"quota-exceeded", "rate_limit_exceeded")
	overloaded      = newProblem(http.StatusServiceUnavailable, problemTypes+"temporary-reduced-capacity", "overloaded")
	reducedCapacity = newProblem(http.StatusServiceUnavailable, problemTypes+"temporary-reduced-capacity", "temporary_reduced_capacity")
	missingKey      = newProblem(http.StatusBadRequest, "about:blank", "missing_key")
	forbidden       = newProblem(http.StatusForbidden, "about:blank", "blocked")
	malformed       = newProblem(http.StatusBadRequest, "about:blank", "malformed_request")
	bodyTooLarge    = newProblem(http.StatusRequestEntityTooLarge, "about:blank", "body_too_large")
)

const problemTypes = "https://iana.org/assignments/http-problem-types#"

func newProblem(status int, kind, code string) *problem {
	title := cmp.Or(http.StatusText(status), "Refused")
	return &problem{status: status, kind: kind, title: title, name: code, code: `"error":"` + code + `"`, start: `{"type":"` + kind +
		`","title":"` + title + `","status":` + strconv.Itoa(status) + `,"detail":"`}
}

// findProblem returns the kind of a denial.
func (a *Answer) findProblem() *problem {
	switch {
	case a.fault != "", a.decision.Ambiguous() != "", a.decision.Mismatched() != "":
		return malformed
	case a.decision.TooLarge():
		return bodyTooLarge
	case a.decision.NoBodyMemory():
		return reducedCapacity
	case a.decision.Missing != "":
		return missingKey
	case a.decision.Blocked != "":
		return forbidden
	case a.decision.Overloaded != "":
		return overloaded
	case a.decision.Unavailable:
		return reducedCapacity
	}
	return quotaExceeded
}

// retryAfter returns the seconds after which to retry, or 0 if a retry is useless.
func (a *Answer) retryAfter() int64 {
	d := a.decision
	if a.fault == "" && d.NoBodyMemory() {
		return 1
	}
	if a.fault != "" || d.Missing != "" || d.Blocked != "" || d.RetryAfter == sluice.Never {
		return 0
	}
	return seconds(d.RetryAfter.Microseconds())
}

// refuse sets the status, and the fields that every denial has.
func (a *Answer) refuse(f fields, accept []string) {
	a.problem = a.findProblem()
	a.Status, a.media = a.problem.status, plainJSON
	if a.form == policy.Plain {
		a.media = negotiate(accept)
	}
	f.set("Content-Type", offers[a.media])
	f.set("Cache-Control", "no-store")
	if id := a.decision.RequestID(); id != "" {
		f.set(fieldRequestID, id)
	}
	retry := a.retryAfter()
	if retry > 0 {
		a.text = strconv.AppendInt(a.text[:0], retry, 10)
		a.retry = a.arena.text(a.text)
		f.set("Retry-After", a.retry)
	}
	if a.isLLM() {
		a.refuseLLM(f, retry)
	}
}

// Body returns the body of a denial, in the media type of its Content-Type, or the body of a quota, or nil. It is
// valid until a is used again.
func (a *Answer) Body() []byte {
	switch {
	case a.decision == nil || a.Status == http.StatusOK && !a.quota:
		return nil
	case a.Status == http.StatusOK:
		a.text = a.appendQuota(a.text[:0])
		return a.text
	}
	switch {
	case a.media == ownBody:
	case a.form == policy.OpenAI:
		a.text = a.appendOpenAI(a.text[:0], a.problem)
	case a.form == policy.Anthropic:
		a.text = a.appendAnthropic(a.text[:0], a.problem)
	case a.form == policy.MCP:
		a.text = a.appendMCP(a.text[:0], a.problem)
	default:
		a.text = a.appendBody(a.text[:0], a.sentProblem())
	}
	return a.text
}

// appendBody appends the body in the negotiated media type.
func (a *Answer) appendBody(dst []byte, p *problem) []byte {
	switch a.media {
	case plainText:
		return append(a.appendDetail(dst), '\n')
	case plainJSON:
		dst = append(append(append(dst, '{'), p.code...), `,"message":"`...)
		dst = append(a.appendDetail(dst), '"')
	default: // RFC 9457
		dst = append(a.appendDetail(append(dst, p.start...)), '"')
		if p.name == quotaExceeded.name {
			dst = a.appendViolated(append(dst, `,"violated-policies":[`...))
			dst = append(dst, ']')
		}
		dst = append(append(dst, ','), p.code...)
	}
	if a.retry != "" {
		dst = append(append(dst, `,"retry_after":`...), a.retry...)
	}
	return append(dst, "}\n"...)
}

func (a *Answer) appendViolated(dst []byte) []byte {
	seen, violated := 0, 0
	for i := range a.results {
		r := &a.results[i]
		if r.Shadow {
			continue
		}
		if !r.Allowed {
			if violated > 0 {
				dst = append(dst, ',')
			}
			violated++
			dst = append(dst, a.header.labels[seen].item...)
		}
		seen++
	}
	return dst
}

// appendDetail appends a sentence for people, in printable ASCII. For JSON, it is escaped as the inside of a
// string.
func (a *Answer) appendDetail(dst []byte) []byte {
	d := a.decision
	switch {
	case a.fault != "":
		s := newSentence(a.fault)
		return append(dst, s.encoded(a.media)...)
	case d.NoBodyMemory():
		dst = append(dst, "The bodies of other requests take up the memory for bodies."...)
	case d.Missing != "":
		return append(dst, a.missing()...)
	case d.Blocked != "":
		return append(append(append(dst, "Rule "...), d.Blocked...), " blocks the request."...)
	case d.Overloaded != "":
		dst = append(dst, "The service is overloaded."...)
	case d.Unavailable || a.most < 0:
		dst = append(dst, "The request cannot be taken at the moment."...)
	default:
		dst = append(dst, a.mostLabel().sentence.encoded(a.media)...)
		if d.RetryAfter == sluice.Never {
			r := &a.results[a.most]
			dst = append(append(dst, " The request asks for "...), r.Plan.Limit.Amount(r.Cost)...)
			dst = append(dst, ". The limit allows at most "...)
			return append(append(dst, r.Plan.Limit.Amount(r.Plan.Capacity)...), " at once."...)
		}
	}
	if a.most >= 0 {
		switch a.results[a.most].Because() {
		case "penalty":
			dst = append(dst, " Clients that exceed it are locked out for a while."...)
		case "reserved":
			dst = append(dst, " Requests under way have reserved what is left."...)
		case "limit":
			dst = a.appendTooLarge(dst, &a.results[a.most])
		}
	}
	if a.retry == "" {
		return dst
	}
	return append(append(append(dst, " Retry in "...), a.retry...), " s."...)
}

// appendTooLarge appends a sentence about a budget that is not used up, but has less left than the request may cost.
func (a *Answer) appendTooLarge(dst []byte, r *policy.Result) []byte {
	if r.Unit == policy.NoUnit || r.Remaining < 1 {
		return dst
	}
	dst = append(append(dst, " The request may cost "...), r.Plan.Limit.Amount(r.Cost)...)
	return append(append(append(dst, ", and "...), r.Plan.Limit.Amount(r.Remaining)...), " are left."...)
}

func (a *Answer) missing() string {
	text := "The request lacks " + wireName(a.decision.Missing) + "."
	switch what := a.decision.Ambiguous(); {
	case a.decision.BodyLimit() != "":
		text = "The body is larger than " + a.decision.BodyLimit() + ", the maximum."
	case a.decision.TooLarge():
		text = "The body cannot be read here: the request lacks " + a.decision.Missing + "."
	case a.decision.Mismatched() != "":
		text = a.decision.Mismatched() + " differs from the field of the body that it repeats."
	case what == "":
	case a.form == policy.MCP && a.decision.CallID == "null":
		text = "Batches of JSON-RPC are refused here."
	case what == "path":
		text = "The path can be read in more than one way."
	default:
		text = wireName(what) + " can be read in more than one way."
	}
	s := newSentence(text)
	return s.encoded(a.media)
}

// sentence is a text of printable ASCII, unescaped and as the inside of a string of JSON.
type sentence struct{ text, json string }

func newSentence(text string) sentence {
	quoted := appendQuoted(nil, text)
	return sentence{text, string(quoted[1 : len(quoted)-1])}
}

func (s *sentence) encoded(media int) string {
	if media == plainText {
		return s.text
	}
	return s.json
}
