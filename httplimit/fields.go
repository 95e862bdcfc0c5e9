package httplimit

import (
	"math"
	"math/bits"
	"net/http"
	"slices"
	"strconv"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/policy"
)

// The names of the fields as net/http writes them. HTTP does not tell upper case from
// lower case in names.
const (
	fieldPolicy     = "Ratelimit-Policy"
	fieldRateLimit  = "Ratelimit"
	fieldLimit      = "Ratelimit-Limit"
	fieldRemaining  = "Ratelimit-Remaining"
	fieldReset      = "Ratelimit-Reset"
	fieldXLimit     = "X-Ratelimit-Limit"
	fieldXRemaining = "X-Ratelimit-Remaining"
	fieldXReset     = "X-Ratelimit-Reset"
	fieldDegraded   = "X-Ratelimit-Degraded"
)

// say sets the fields that tell what was decided.
func (c *call) say(h http.Header, d *door) {
	f := fields{h, &c.values}
	decision := &c.decision
	if len(decision.Results) > maxTold {
		decision.Results = foremost(decision.Results, decision.Now)
	}
	if d.DegradedField && decision.Degraded {
		f.set(fieldDegraded, "true")
	}
	if !decision.Allowed {
		c.sayRefused(&f)
	}
	if d.cors != nil && !decision.Exempt {
		c.sayCORS(&f, d.cors(), d.Dialect)
	}
	if decision.Now == 0 || d.Dialect == NoRateLimit && d.XFields == NoXFields {
		return // The state of the limits is not known, or not told.
	}
	if one := leading(decision); one >= 0 {
		c.sayState(&f, d, d.legends.of(decision.Results, d.Dialect), one)
	}
}

// sayState sets the fields for a decision with a state. Index one is the result that
// fields speak of that have room for one only.
func (c *call) sayState(f *fields, d *door, l *legend, one int) {
	decision := &c.decision
	limit := l.entries[told(decision.Results[:one])].limit

	// All values are cut from one string, and remaining and delta from the states.
	t := states{text: c.text[:0], one: one}
	t.append(l, decision, d.Dialect, limit)
	all := len(t.text)
	t.text = strconv.AppendInt(t.text, seconds(decision.Now+t.effective), 10)
	c.text = t.text
	s := c.values.keep(t.text)
	remaining, delta, unix := s[t.remaining.from:t.remaining.to], s[t.delta.from:t.delta.to], s[all:]

	switch d.Dialect {
	case Draft11:
		policies, before := f.header[fieldPolicy], f.header[fieldRateLimit]
		f.add(fieldPolicy, policies, l.policy)
		f.add(fieldRateLimit, before, s[:all])
	case Draft7:
		f.add(fieldPolicy, f.header[fieldPolicy], l.policy)
		f.set(fieldRateLimit, s[:all])
	case Draft3:
		f.set(fieldLimit, limit)
		f.set(fieldRemaining, remaining)
		f.set(fieldReset, delta)
	}
	switch d.XFields {
	case XUnix:
		f.set(fieldXReset, unix)
	case XDelta:
		f.set(fieldXReset, delta)
	default:
		return
	}
	f.set(fieldXLimit, limit)
	f.set(fieldXRemaining, remaining)
}

// states is the text of what remains of limits.
type states struct {
	text []byte
	// Of result one: where its numbers are in the text, and its effective window.
	one              int
	remaining, delta span
	effective        int64
}

type span struct{ from, to int }

func (t *states) append(l *legend, d *policy.Decision, dialect Dialect, limit string) {
	switch dialect {
	case Draft11:
		t.appendAll(l, d)
	case Draft7:
		t.text = append(append(t.text, "limit="...), limit...)
		t.appendOne(t.one, d, ", remaining=", ", reset=")
	default:
		t.appendOne(t.one, d, "", "")
	}
}

// appendAll appends the RateLimit field of Draft11.
func (t *states) appendAll(l *legend, d *policy.Decision) {
	n := 0
	for i := range d.Results {
		if d.Results[i].Shadow {
			continue
		}
		if n > 0 {
			t.text = append(t.text, ", "...)
		}
		t.text = append(t.text, l.entries[n].item...)
		t.appendOne(i, d, ";r=", ";t=")
		n++
	}
}

// appendOne appends the numbers of result i, each behind its name.
func (t *states) appendOne(i int, d *policy.Decision, remaining, delta string) {
	r := &d.Results[i]
	effective := effectiveWindow(r, d.Now)
	text := append(t.text, remaining...)
	a := len(text)
	text = strconv.AppendInt(text, clamp(r.Remaining), 10)
	b := len(text)
	text = append(text, delta...)
	c := len(text)
	text = strconv.AppendInt(text, seconds(effective), 10)
	if t.text = text; i == t.one {
		t.remaining, t.delta, t.effective = span{a, b}, span{c, len(text)}, effective
	}
}

// maxTold is the most limits that clients are told about.
const maxTold = 16

// foremost returns the results that matter most to a client, in the order of the
// document. A response to a request to which very many rules apply stays small that way.
func foremost(results []policy.Result, now int64) []policy.Result {
	var order []int
	for i := range results {
		if !results[i].Shadow {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int {
		switch {
		case matters(&results[a], &results[b], now):
			return -1
		case matters(&results[b], &results[a], now):
			return 1
		}
		return 0
	})
	order = order[:min(maxTold, len(order))]
	slices.Sort(order)
	most := make([]policy.Result, len(order))
	for i, n := range order {
		most[i] = results[n]
	}
	return most
}

// told returns how many of the results clients are told about.
func told(results []policy.Result) (n int) {
	for i := range results {
		if !results[i].Shadow {
			n++
		}
	}
	return n
}

// leading returns the index of the result that matters most to a client, or -1: of
// those that refuse, the one with the longest wait; if none does, the one of which the
// smallest share is left, and of equal ones the one with the longest window.
func leading(d *policy.Decision) int {
	best := -1
	for i := range d.Results {
		if r := &d.Results[i]; !r.Shadow && (best < 0 || matters(r, &d.Results[best], d.Now)) {
			best = i
		}
	}
	return best
}

// matters reports whether a matters more than b.
func matters(a, b *policy.Result, now int64) bool {
	switch {
	case a.Allowed != b.Allowed:
		return b.Allowed
	case !a.Allowed:
		return a.RetryAfter > b.RetryAfter
	}
	// a.Remaining / a.Count < b.Remaining / b.Count
	ahi, alo := bits.Mul64(uint64(a.Remaining), uint64(b.Plan.Limit.Count))
	bhi, blo := bits.Mul64(uint64(b.Remaining), uint64(a.Plan.Limit.Count))
	if ahi != bhi || alo != blo {
		return ahi < bhi || ahi == bhi && alo < blo
	}
	return effectiveWindow(a, now) > effectiveWindow(b, now)
}

// effectiveWindow returns the time in microseconds in which the client can use no more
// than what remains. Where nothing remains it is the time to wait.
func effectiveWindow(r *policy.Result, now int64) int64 {
	wait := r.RetryAfter.Microseconds()
	switch {
	case r.Remaining == 0 && r.RetryAfter == sluice.Never:
		return r.ResetAfter.Microseconds()
	case r.Remaining == 0:
		return wait
	}
	period := r.Plan.Limit.Period.Microseconds()
	if r.Plan.Limit.Algorithm == sluice.FixedWindow {
		return max(period-now%period, r.ResetAfter.Microseconds())
	}
	window := mulDivUp(period, r.Remaining, r.Plan.Limit.Count)
	if !r.Allowed {
		window = min(window, wait) // Retry-After is never before the end of the window.
	}
	return window
}

// mulDivUp returns a·b/c, rounded up, and at most MaxInt64.
func mulDivUp(a, b, c int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	if hi >= uint64(c) {
		return math.MaxInt64
	}
	q, rest := bits.Div64(hi, lo, uint64(c))
	if rest > 0 {
		q++
	}
	return int64(min(q, math.MaxInt64))
}

// seconds returns microseconds as whole seconds, rounded up, at least 1.
func seconds(us int64) int64 {
	s := us / 1e6
	if us%1e6 > 0 {
		s++
	}
	return max(1, clamp(s))
}

func clamp(n int64) int64 { return min(n, maxInteger) }

// fields sets response fields.
type fields struct {
	header http.Header
	values *values
}

// set replaces what another door may have said before.
func (f *fields) set(name, value string) { f.header[name] = f.values.list(value) }

// add goes on with the list before, which another door has begun, if it has.
func (f *fields) add(name string, before []string, value string) {
	if len(before) > 0 {
		f.header[name] = append(slices.Clip(before), value)
		return
	}
	f.set(name, value)
}
