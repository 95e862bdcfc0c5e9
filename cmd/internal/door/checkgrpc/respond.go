package checkgrpc

import (
	"cmp"
	"net/http"
	"slices"
	"strings"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/answer"
	"github.com/sluicehq/sluice/cmd/internal/door"
	"github.com/sluicehq/sluice/kernel"
	"github.com/sluicehq/sluice/policy"
)

// answer returns the response for a decision.
func (s *service) answer(c *check, d *policy.Decision) *CheckResponse {
	var a answer.Answer
	header := http.Header{}
	s.Answer(&a, header, d, c.fault, c.request.Header)
	out := &CheckResponse{
		Allowed: d.Allowed, Status: int32(a.Status), Degraded: d.Degraded, Exempt: d.Exempt,
		Blocked: text(d.Blocked), Missing: text(d.Missing), Known: d.Repeated,
		Headers: headers(header), Body: slices.Clone(a.Body()), Place: s.Engine.Place(*d), Over: d.Over(),
	}
	if header["Retry-After"] != nil {
		out.RetryAfter = durationpb.New(d.RetryAfter)
	}
	if d.Delay > 0 {
		out.Delay = durationpb.New(d.Delay)
	}
	for i := range d.Results {
		out.Results = append(out.Results, result(&d.Results[i], d.Now))
	}
	return out
}

func headers(h http.Header) (all []*Header) {
	for _, name := range door.FieldNames(nil, h) {
		for _, v := range h[name] {
			all = append(all, &Header{Name: name, Value: text(v)})
		}
	}
	return all
}

// result converts the result of one limit. Unknown numbers are omitted.
func result(r *policy.Result, now int64) *Result {
	out := &Result{
		Rule: text(r.Rule), Name: text(cmp.Or(r.Name, r.Rule)), Allowed: r.Allowed, Shadow: r.Shadow, From: r.From,
	}
	if r.Plan == nil || now == 0 || r.Origin == sluice.ByOnError {
		return out
	}
	out.Limit, out.Remaining = r.Plan.ReportedLimit(), r.Plan.Limit.Value(r.Remaining)
	if r.Plan.Kernel != kernel.InFlight { // the end of requests in flight is unknown
		out.ResetAfter = durationpb.New(r.ResetAfter)
	}
	if !r.Allowed && r.RetryAfter != sluice.Never {
		out.RetryAfter = durationpb.New(r.RetryAfter)
	}
	if r.Delay > 0 {
		out.Delay = durationpb.New(r.Delay)
	}
	return out
}

// text returns s as valid UTF-8, which protocol buffers require.
func text(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }
