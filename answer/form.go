package answer

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/policy"
)

// These are fields of the APIs of language models, which are sent in addition to Retry-After.
const (
	fieldRetryAfterMS = "Retry-After-Ms"
	fieldShouldRetry  = "X-Should-Retry"
	fieldCallID       = "Request-Id" // Anthropic's name of X-Request-Id
)

// longestRetry is the longest wait, in seconds, after which SDKs may retry by themselves. With longer waits, some
// SDKs sleep for hours, and others ignore the wait and retry at once.
const longestRetry = 60

// statusOverloaded is Anthropic's status for an overloaded server. It is sent in place of 503.
const statusOverloaded = 529

// formOf returns the form of the answer. A message of MCP that is not a request has no ID, so it gets the plain form.
func formOf(d *policy.Decision) policy.Form {
	if d.Form == policy.MCP && d.CallID == "" {
		return policy.Plain
	}
	return d.Form
}

// isLLM reports whether the answer has the form of an API of language models.
func (a *Answer) isLLM() bool { return a.form == policy.OpenAI || a.form == policy.Anthropic }

// HTTPStatus returns the status of an HTTP response with the answer. It differs from Status for an error of
// JSON-RPC, which has status 200, because clients of MCP take other statuses for a failure of the connection. A
// decision service sends Status instead.
func (a *Answer) HTTPStatus() int {
	if a.form == policy.MCP {
		return http.StatusOK
	}
	return a.Status
}

// refuseLLM sets the fields by which SDKs decide whether and when to retry.
func (a *Answer) refuseLLM(f fields, retry int64) {
	if a.form == policy.Anthropic {
		if a.Status == http.StatusServiceUnavailable {
			a.Status = statusOverloaded
		}
		if id := a.decision.RequestID(); id != "" {
			f.set(fieldCallID, id)
		}
	}
	if retry > 0 {
		ms := int64((a.decision.RetryAfter + time.Millisecond - 1) / time.Millisecond)
		if ms == 0 { // the wait does not come from a limit
			ms = retry * 1000
		}
		a.text = strconv.AppendInt(a.text[:0], clamp(ms), 10)
		f.set(fieldRetryAfterMS, a.arena.text(a.text))
	}
	switch {
	case retry == 0 || retry > longestRetry:
		f.set(fieldShouldRetry, "false")
	case a.decision.Overloaded != "", a.reserved():
		f.set(fieldShouldRetry, "true")
	}
}

// reserved reports whether requests under way have reserved the rest of a limit.
func (a *Answer) reserved() bool {
	return slices.ContainsFunc(a.results, func(r policy.Result) bool { return !r.Shadow && r.Because() == "reserved" })
}

// These are the types of errors by the status of the denial. For 429, OpenAI's type depends on the unit.
var (
	openAITypes = map[int]string{
		http.StatusBadRequest: "invalid_request_error", http.StatusForbidden: "permission_error",
		http.StatusRequestEntityTooLarge: "invalid_request_error", http.StatusServiceUnavailable: "server_error",
	}
	anthropicTypes = map[int]string{
		http.StatusBadRequest: "invalid_request_error", http.StatusForbidden: "permission_error",
		http.StatusRequestEntityTooLarge: "request_too_large", http.StatusServiceUnavailable: "overloaded_error",
		http.StatusTooManyRequests: "rate_limit_error",
	}
)

// noQuota is OpenAI's type and code for a limit in money.
const noQuota = "insufficient_quota"

// openAIError returns the type and the code of OpenAI's error.
func (a *Answer) openAIError(p *problem) (kind, code string) {
	if kind = openAITypes[p.status]; kind != "" {
		return kind, p.name
	}
	if a.most < 0 {
		return "requests", p.name
	}
	switch r := &a.results[a.most]; {
	case r.Unit == policy.USD && !r.UnderWay:
		return noQuota, noQuota
	case r.Unit == policy.USD, r.Unit == policy.Tokens:
		return "tokens", p.name
	}
	return "requests", p.name
}

// appendOpenAI appends {"error":{"message":"…","type":"tokens","param":null,"code":"rate_limit_exceeded"}}.
func (a *Answer) appendOpenAI(dst []byte, p *problem) []byte {
	kind, code := a.openAIError(p)
	dst = a.appendDetail(append(dst, `{"error":{"message":"`...))
	dst = append(append(dst, `","type":"`...), kind...)
	dst = append(append(dst, `","param":null,"code":"`...), code...)
	return append(dst, "\"}}\n"...)
}

// appendAnthropic appends {"type":"error","error":{"type":"rate_limit_error","message":"…"},"request_id":"…"}.
func (a *Answer) appendAnthropic(dst []byte, p *problem) []byte {
	dst = append(append(dst, `{"type":"error","error":{"type":"`...), anthropicTypes[p.status]...)
	dst = a.appendDetail(append(dst, `","message":"`...))
	dst = append(dst, `"},"request_id":`...)
	if id := a.decision.RequestID(); id != "" {
		dst = appendQuoted(dst, wireName(id))
	} else {
		dst = append(dst, "null"...)
	}
	return append(dst, "}\n"...)
}

// These are codes of errors in JSON-RPC.
const (
	invalidRequest = "-32600" // the request itself is invalid
	notNow         = "-32029" // from the range that JSON-RPC reserves for servers
)

// appendMCP appends {"jsonrpc":"2.0","id":7,"error":{"code":-32029,"message":"…","data":{…}}}.
func (a *Answer) appendMCP(dst []byte, p *problem) []byte {
	code := notNow
	if p.status == http.StatusBadRequest || p.status == http.StatusRequestEntityTooLarge {
		code = invalidRequest
	}
	dst = append(append(dst, `{"jsonrpc":"2.0","id":`...), a.decision.CallID...)
	dst = append(append(dst, `,"error":{"code":`...), code...)
	dst = a.appendDetail(append(dst, `,"message":"`...))
	dst = append(append(dst, `","data":{`...), p.code...)
	if a.retry != "" {
		dst = append(append(dst, `,"retry_after":`...), a.retry...)
	}
	if a.most >= 0 && p.name == quotaExceeded.name {
		dst = append(append(dst, `,"limit":`...), a.mostLabel().item...)
	}
	return append(dst, "}}}\n"...)
}

// llmFields are the names of the fields that report one unit.
type llmFields struct{ limit, remaining, reset string }

func openAIFields(unit string) llmFields {
	const prefix = "X-Ratelimit-"
	return llmFields{prefix + "Limit-" + unit, prefix + "Remaining-" + unit, prefix + "Reset-" + unit}
}

func anthropicFields(unit string) llmFields {
	prefix := "Anthropic-Ratelimit-" + unit
	return llmFields{prefix + "-Limit", prefix + "-Remaining", prefix + "-Reset"}
}

// llmUnits are the units that the APIs report, and their fields. All units but tokens and money are reported as
// requests.
var llmUnits = [...]struct {
	has               func(policy.Unit) bool
	openAI, anthropic llmFields
}{
	{func(u policy.Unit) bool { return u == policy.NoUnit || u == policy.Numbers }, openAIFields("Requests"), anthropicFields("Requests")},
	{func(u policy.Unit) bool { return u == policy.Tokens }, openAIFields("Tokens"), anthropicFields("Tokens")},
}

// IsLLMField reports whether a field of that canonical name reports limits of an API of language models.
func IsLLMField(name string) bool {
	rest, ok := strings.CutPrefix(name, "X-Ratelimit-")
	return ok && (strings.HasPrefix(rest, "Limit-") || strings.HasPrefix(rest, "Remaining-") || strings.HasPrefix(rest, "Reset-")) ||
		strings.HasPrefix(name, "Anthropic-Ratelimit-")
}

// encodeLLM sets the fields that report the most restrictive limit of each unit.
func (a *Answer) encodeLLM(f fields) {
	for i := range llmUnits {
		u := &llmUnits[i]
		if r := a.mostOf(u.has); r == nil {
			continue
		} else if a.form == policy.Anthropic {
			at := seconds(a.decision.Now + r.ResetAfter.Microseconds())
			a.encodeUnit(f, &u.anthropic, r, time.Unix(at, 0).UTC().Format(time.RFC3339))
		} else {
			ms := (r.ResetAfter + time.Millisecond - 1) / time.Millisecond
			a.encodeUnit(f, &u.openAI, r, (ms * time.Millisecond).String())
		}
	}
}

// mostOf returns the most restrictive of the results for whose unit has returns true, or nil. It skips limits that are
// not rates in such a unit, such as requests in flight.
func (a *Answer) mostOf(has func(policy.Unit) bool) (most *policy.Result) {
	for i := range a.results {
		r := &a.results[i]
		if !r.Shadow && has(r.Unit) && unitOf(r.Plan) == "" && r.Origin != sluice.ByOnError &&
			(most == nil || moreRestrictive(r, most, a.decision.Now)) {
			most = r
		}
	}
	return most
}

func (a *Answer) encodeUnit(f fields, names *llmFields, r *policy.Result, reset string) {
	a.text = strconv.AppendInt(a.text[:0], clamp(max(r.Plan.Limit.Count, r.Plan.Capacity)), 10)
	f.set(names.limit, a.arena.text(a.text))
	a.text = strconv.AppendInt(a.text[:0], clamp(r.Remaining), 10)
	f.set(names.remaining, a.arena.text(a.text))
	f.set(names.reset, reset)
}

// exposedLLM are the fields of the APIs of language models that pages of other origins may read, in addition to the
// fields in the variable exposed.
var exposedLLM = func() (names [policy.Anthropic + 1]string) {
	for _, form := range []policy.Form{policy.OpenAI, policy.Anthropic} {
		list := []string{fieldRetryAfterMS, fieldShouldRetry}
		for _, u := range llmUnits {
			of := u.openAI
			if form == policy.Anthropic {
				of = u.anthropic
			}
			list = append(list, of.limit, of.remaining, of.reset)
		}
		slices.Sort(list)
		names[form] = strings.Join(list, ", ")
	}
	return names
}()
