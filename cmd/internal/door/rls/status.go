package rls

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/answer"
	"github.com/sluicehq/sluice/cmd/internal/door"
	"github.com/sluicehq/sluice/kernel"
	"github.com/sluicehq/sluice/policy"
)

// encode returns the response. over reports whether the request is over a limit.
func (c *call) encode(over bool) *reply {
	code := uint64(codeOK)
	if over {
		code = codeOver
	}
	b := appendNumber(make([]byte, 0, 16+48*len(c.parts)), 1, code)
	for i := range c.parts {
		s := c.status(i)
		b = s.append(b)
	}
	if c.Answers {
		b = c.appendAnswer(b, over)
	}
	if marks := c.marks(); !over && marks != nil {
		b = appendHeader(b, requestHeader, policy.OverField, strings.Join(marks, ", "))
	}
	if c.Metadata {
		b = c.appendMetadata(b)
	}
	return &reply{b}
}

// marks returns the names of the rules with "over: mark" that the request exceeds.
func (c *call) marks() (all []string) {
	for i := range c.ds {
		for _, rule := range c.ds[i].Over() {
			if !slices.Contains(all, rule) {
				all = append(all, rule)
			}
		}
	}
	return all
}

// status returns the status of a descriptor.
func (c *call) status(i int) (s status) {
	p, d := &c.parts[i], &c.ds[i]
	s = status{code: codeOK, reset: -1}
	if p.over {
		s.code = codeOver
	}
	switch {
	case p.unasked:
		s.hasLimit = true
		s.limit = currentLimit{unit: int32(p.plan.unit), multiplier: p.plan.multiplier}
	case p.limit != nil && p.limit.unlimited && !p.over:
		s.remaining = math.MaxUint32
	default:
		c.addLimit(&s, p, d)
	}
	return s
}

// addLimit adds the state of a descriptor's most restrictive limit.
func (c *call) addLimit(s *status, p *part, d *policy.Decision) {
	r := nearest(d, p.limit)
	switch {
	case r != nil:
		s.limit, s.hasLimit = limitOf(r), true
		s.remaining = saturated(r.Plan.Limit.Value(r.Remaining))
		if c.CountRefused && !r.Allowed {
			s.remaining = 0 // the denied descriptor has used up the rest
		}
		s.reset = resetOf(r)
	case (d.Unavailable || d.Blocked != "") && d.RetryAfter != sluice.Never:
		s.reset = door.Seconds(d.RetryAfter)
	}
	switch {
	case p.brought:
		s.limit.name = "" // the limit does not belong to a rule
	case p.limit != nil && !p.limit.unlimited && (r == nil || r.Rule == p.limit.rule):
		s.limit, s.hasLimit = currentLimit{p.limit.name, p.limit.requests, int32(p.limit.unit), 0}, true
	}
}

// nearest returns the result of the most restrictive limit, or nil if no state is known. It ignores limits in
// shadow mode, except own, the limit in the configuration.
func nearest(d *policy.Decision, own *limit) *policy.Result {
	if d.Now == 0 {
		return nil
	}
	if i := answer.MostRestrictive(d.Results, d.Now); i >= 0 && d.Results[i].Plan != nil {
		return &d.Results[i]
	}
	if r := resultOf(d, own); r != nil && r.Plan != nil {
		return r
	}
	return nil
}

// limitOf returns a limit in Envoy's form, requests per unit. If the period is not whole seconds, it is rounded up,
// and the count is increased at the same rate.
func limitOf(r *policy.Result) (l currentLimit) {
	l.name = cmp.Or(r.Name, r.Rule)
	limit := &r.Plan.Limit
	if r.Plan.Kernel == kernel.InFlight { // Envoy cannot express limits of requests in flight
		l.requests = saturated(r.Plan.Capacity)
		return l
	}
	if limit.MonthDay > 0 {
		l.requests, l.unit = saturated(limit.Value(limit.Count)), int32(month)
		return l
	}
	seconds := door.Seconds(limit.Period)
	count := limit.Value(limit.Count)
	if exact := time.Duration(seconds) * time.Second; exact != limit.Period {
		count = int64(float64(count) * (float64(exact) / float64(limit.Period)))
	}
	u, n := unitOf(seconds)
	l.requests, l.unit, l.multiplier = saturated(count), int32(u), saturated(n)
	return l
}

func saturated(n int64) uint32 { return uint32(min(max(n, 0), math.MaxUint32)) }

// resetOf returns the seconds until a denied request fits. For an allowed request, it returns the seconds until the
// whole limit is available or, for a fixed window, until the window ends. Seconds are rounded up, because Envoy drops
// fractions. A negative result means never.
func resetOf(r *policy.Result) int64 {
	switch {
	case !r.Allowed && r.RetryAfter == sluice.Never:
		return -1
	case !r.Allowed:
		return door.Seconds(r.RetryAfter)
	case r.Plan.Limit.Algorithm == sluice.FixedWindow:
		_, _, end := r.Plan.WindowAt(r.Now)
		return door.Seconds(time.Duration(end-r.Now) * time.Microsecond)
	}
	return door.Seconds(r.ResetAfter)
}
