package answer

import (
	"net/http"
	"strconv"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/printable"
	"github.com/sluicehq/sluice/kernel"
	"github.com/sluicehq/sluice/policy"
)

// Quota sets *a to the answer to a client's query of its limits, and sets the header fields of this answer in h. d is
// the result of [policy.Engine.Quota], and is changed. The body is
//
//	{"limits":[{"name":"per-key","quota":100,"window":60,"remaining":0,"reset":1795219270,"retry_after":1}]}
//
// Each limit has the quota of units in a window of seconds, the remaining units, and the time of the full reset in
// seconds since 1970. If the described request does not fit, retry_after is the number of seconds until it fits. A
// debt of the client is in "owed". A limit of requests in flight has "unit":"concurrent-requests", and neither window
// nor reset. A limit of tokens from the response has "unit":"tokens". A limit in USD has "unit":"micro-usd", and its
// numbers as decimals: "usd":{"quota":"50","remaining":"12.40"}. The names, quotas and windows are those of
// RateLimit-Policy, for all limits. The answer is a denial if the client is blocked, the described request is
// malformed, or the store does not answer.
func (e *Encoder) Quota(a *Answer, h http.Header, d *policy.Decision, c Client) {
	switch {
	case d.Blocked != "" || d.Missing != "":
	case d.Now == 0 && visible(d.Results) > 0:
		d.Allowed, d.Unavailable, d.RetryAfter = false, true, time.Second
	default:
		d.Allowed = true
	}
	d.Exempt = false // an exempt request gets this answer, too
	a.quota = true
	e.encode(a, h, d, "", c)
	if a.Status == http.StatusOK {
		h.Set("Content-Type", "application/json")
		h.Set("Cache-Control", "no-store")
	}
}

// appendQuota appends the state of all limits.
func (a *Answer) appendQuota(dst []byte) []byte {
	dst = append(dst, `{"limits":[`...)
	first := len(dst)
	for i := range a.decision.Results {
		r := &a.decision.Results[i]
		if r.Shadow || r.Origin == sluice.ByOnError { // the state of the limit is unknown
			continue
		}
		if len(dst) > first {
			dst = append(dst, ',')
		}
		dst = appendLimit(dst, r, a.decision.Now)
	}
	return append(dst, "]}\n"...)
}

// quotaUnit returns the unit of a limit for clients, or "".
func quotaUnit(r *policy.Result) string {
	if r.Unit == policy.Tokens {
		return "tokens"
	}
	return unitOf(r.Plan)
}

// appendUSD appends the numbers of a limit in USD as decimals.
func appendUSD(dst []byte, r *policy.Result, quota int64) []byte {
	value := func(units int64) string { return printable.FormatDecimal(r.Plan.Limit.Value(units)) }
	dst = append(dst, `,"usd":{"quota":"`+printable.FormatDecimal(quota)+`","remaining":"`+value(r.Remaining)...)
	if r.Owed > 0 {
		dst = append(dst, `","owed":"`+value(r.Owed)...)
	}
	return append(dst, `"}`...)
}

func appendLimit(dst []byte, r *policy.Result, now int64) []byte {
	l := newLabel(r)
	if r.Plan.Limit.MonthDay > 0 {
		l.month(now)
	}
	inFlight := r.Plan.Kernel == kernel.InFlight
	dst = append(append(dst, `{"name":`...), l.item...)
	for _, member := range []struct {
		name string
		n    int64
	}{{"quota", l.quota}, {"window", l.span}, {"remaining", clamp(r.Plan.Limit.Value(r.Remaining))}, {"reset", seconds(now + r.ResetAfter.Microseconds())}} {
		if inFlight && (member.name == "window" || member.name == "reset") {
			continue
		}
		dst = append(append(append(dst, `,"`...), member.name...), `":`...)
		dst = strconv.AppendInt(dst, member.n, 10)
	}
	if r.Owed > 0 {
		dst = strconv.AppendInt(append(dst, `,"owed":`...), clamp(r.Plan.Limit.Value(r.Owed)), 10)
	}
	if unit := quotaUnit(r); unit != "" {
		dst = append(dst, `,"unit":"`+unit+`"`...)
	}
	if r.Plan.Limit.Money > 0 {
		dst = appendUSD(dst, r, l.quota)
	}
	if !r.Allowed && r.RetryAfter != sluice.Never {
		dst = strconv.AppendInt(append(dst, `,"retry_after":`...), seconds(r.RetryAfter.Microseconds()), 10)
	}
	return append(dst, '}')
}
