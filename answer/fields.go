package answer

import (
	"bytes"
	"math"
	"math/bits"
	"strconv"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/kernel"
	"github.com/sluicehq/sluice/policy"
)

// These are the names of the fields as net/http writes them. HTTP ignores case in names.
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
	fieldRequestID  = "X-Request-Id"
)

// StateFields are the names of all fields that report the state of limits, in any dialect.
var StateFields = [...]string{
	fieldPolicy, fieldRateLimit, fieldLimit, fieldRemaining, fieldReset,
	fieldXLimit, fieldXRemaining, fieldXReset, fieldDegraded,
}

// encodeState sets the fields that report the state of limits. Fields with room for one limit report the most
// restrictive one.
func (a *Answer) encodeState(f fields, sent forms) {
	limit := a.mostLabel().limit

	// All values are cut from one string; remaining and delta are cut from the text of the states.
	t := stateText{text: a.text[:0], one: a.most, now: a.decision.Now}
	t.append(a, sent.dialect, limit)
	all := len(t.text)
	t.text = strconv.AppendInt(t.text, seconds(t.now+t.effective), 10)
	a.text = t.text
	s := a.arena.text(t.text)
	remaining, delta, unix := s[t.remaining.from:t.remaining.to], s[t.delta.from:t.delta.to], s[all:]

	switch sent.dialect {
	case Draft11:
		f.join(fieldPolicy, a.header.policy)
		f.join(fieldRateLimit, s[:all])
	case Draft7:
		if a.header.policy != "" {
			f.join(fieldPolicy, a.header.policy)
		}
		f.set(fieldRateLimit, s[:all])
	case Draft3:
		f.set(fieldLimit, limit)
		f.set(fieldRemaining, remaining)
		f.set(fieldReset, delta)
	}
	switch {
	case sent.x == NoXFields:
		return
	case a.results[a.most].Plan.Kernel == kernel.InFlight:
		delete(f.header, fieldXReset) // the reset is unknown
	case sent.x == XDelta:
		f.set(fieldXReset, delta)
	default:
		f.set(fieldXReset, unix)
	}
	f.set(fieldXLimit, limit)
	f.set(fieldXRemaining, remaining)
}

// stateText is the text of the states of limits.
type stateText struct {
	text []byte
	now  int64
	// The next three fields are for one of the results: its index, the position of its numbers in the text, and its
	// effective window.
	one              int
	remaining, delta span
	effective        int64
}

type span struct{ from, to int }

func (t *stateText) append(a *Answer, dialect Dialect, limit string) {
	switch dialect {
	case Draft11:
		t.appendAll(a)
	case Draft7:
		t.text = append(append(t.text, "limit="...), limit...)
		t.appendOne(t.one, &a.results[t.one], ", remaining=", ", reset=")
	default:
		t.appendOne(t.one, &a.results[t.one], "", "")
	}
}

// appendAll appends the RateLimit field of Draft11.
func (t *stateText) appendAll(a *Answer) {
	n := 0
	for i := range a.results {
		r := &a.results[i]
		if r.Shadow {
			continue
		}
		if n > 0 {
			t.text = append(t.text, ", "...)
		}
		t.text = append(t.text, a.header.labels[n].item...)
		t.appendOne(i, r, ";r=", ";t=")
		if r.Plan.Kernel == kernel.InFlight { // the end of such requests is unknown
			t.text = t.text[:bytes.LastIndexByte(t.text, ';')]
			if i == t.one {
				t.delta = span{}
			}
		}
		n++
	}
}

// appendOne appends the numbers of r, which is result i, each after its name.
func (t *stateText) appendOne(i int, r *policy.Result, remaining, delta string) {
	effective := effectiveWindow(r, t.now)
	text := append(t.text, remaining...)
	a := len(text)
	text = strconv.AppendInt(text, clamp(r.Plan.Limit.Value(r.Remaining)), 10)
	b := len(text)
	text = append(text, delta...)
	c := len(text)
	text = strconv.AppendInt(text, seconds(effective), 10)
	if t.text = text; i == t.one {
		t.remaining, t.delta, t.effective = span{a, b}, span{c, len(text)}, effective
	}
}

// effectiveWindow returns the time, in microseconds, in which the client can use no more than the remaining units.
// If nothing remains, it is the time to wait.
func effectiveWindow(r *policy.Result, now int64) int64 {
	wait := r.RetryAfter.Microseconds()
	switch {
	case r.Plan.Kernel == kernel.InFlight:
		return wait // requests under way may end at any time
	case r.Remaining == 0 && r.RetryAfter == sluice.Never:
		return r.ResetAfter.Microseconds()
	case r.Remaining == 0:
		return wait
	}
	if r.Plan.Limit.Algorithm == sluice.FixedWindow {
		_, _, end := r.Plan.WindowAt(now)
		return max(end-now, r.ResetAfter.Microseconds())
	}
	window := mulDivUp(r.Plan.Limit.Period.Microseconds(), r.Remaining, r.Plan.Limit.Count)
	if !r.Allowed {
		window = min(window, wait) // the window must not end after Retry-After
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
