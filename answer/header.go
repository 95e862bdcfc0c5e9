package answer

import (
	"cmp"
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/printable"
	"github.com/sluicehq/sluice/kernel"
	"github.com/sluicehq/sluice/policy"
)

// maxInteger is the largest integer that a structured field can hold.
const maxInteger = 999_999_999_999_999

// policyHeader is the constant part of the header for a set of rules.
type policyHeader struct {
	labels []label
	policy string // RateLimit-Policy
	// The header is valid in the time [from, until), in microseconds since the epoch, because months differ in
	// length.
	from, until int64
}

// label is the constant part of the header for one limit.
type label struct {
	rule  string
	name  string // Result.Name
	plan  *sluice.Plan
	item  string // the name as a quoted string, valid in structured fields and in JSON
	quota int64  // units per window
	span  int64  // the window in whole seconds; for a month, the length of the present month; 0 for requests in flight
	wire  string // the name in printable ASCII
	most  int64  // the largest number of units that can remain
	limit string // most as text

	sentence sentence // the detail of a denial, for people
}

// headerCache keeps recently used policyHeaders. Usually only a few sets of rules of a policy apply together. If
// there are many, some headers are made again each time.
type headerCache [256]atomic.Pointer[policyHeader]

// get returns the header for the reported results at the time now, from the cache if it is there. Shadows are not
// reported, because clients would slow down for nothing.
func (c *headerCache) get(results []policy.Result, dialect Dialect, now int64) *policyHeader {
	var h uint64
	for i := range results {
		if r := &results[i]; !r.Shadow {
			h = h*31 + r.Plan.Fingerprint + uint64(r.Plan.Capacity)
		}
	}
	slot := &c[h%uint64(len(c))]
	if cached := slot.Load(); cached != nil && now < cached.until && now >= cached.from && cached.isOf(results) {
		return cached
	}
	made := newPolicyHeader(results, dialect, now)
	slot.Store(made)
	return made
}

func (p *policyHeader) isOf(results []policy.Result) bool {
	n := 0
	for i := range results {
		r := &results[i]
		if r.Shadow {
			continue
		}
		if n == len(p.labels) || p.labels[n].plan != r.Plan || p.labels[n].rule != r.Rule || p.labels[n].name != r.Name {
			return false
		}
		n++
	}
	return n == len(p.labels)
}

func newPolicyHeader(results []policy.Result, dialect Dialect, now int64) *policyHeader {
	p := &policyHeader{from: math.MinInt64, until: math.MaxInt64}
	var text []byte
	for i := range results {
		if results[i].Shadow {
			continue
		}
		l := newLabel(&results[i])
		if l.plan.Limit.MonthDay > 0 {
			begin, end := l.month(now)
			p.from, p.until = max(p.from, begin), min(p.until, end)
		}
		p.labels = append(p.labels, l)
		unit := unitOf(l.plan)
		if unit != "" && dialect != Draft11 { // older dialects know only requests with a window
			continue
		}
		if len(text) > 0 {
			text = append(text, ", "...)
		}
		if dialect == Draft11 {
			text = append(text, l.item+";q="...)
		}
		text = strconv.AppendInt(text, l.quota, 10)
		if unit != "" {
			text = append(text, `;qu="`+unit+`"`...)
		}
		if l.span > 0 {
			text = strconv.AppendInt(append(text, ";w="...), l.span, 10)
		}
	}
	p.policy = string(text)
	return p
}

// unitOf returns the unit of a quota, or "" for requests and their costs.
func unitOf(p *sluice.Plan) string {
	switch {
	case p.Kernel == kernel.InFlight:
		return "concurrent-requests"
	case p.Kernel == kernel.Distinct:
		return "distinct-values"
	case p.Limit.Money > 0:
		return "micro-usd"
	}
	return ""
}

func newLabel(r *policy.Result) label {
	plan, wire := r.Plan, wireName(cmp.Or(r.Name, r.Rule))
	l := label{rule: r.Rule, name: r.Name, plan: plan, wire: wire, item: string(appendQuoted(nil, wire))}
	l.most = min(maxInteger, plan.ReportedLimit())
	l.limit = strconv.FormatInt(l.most, 10)
	if plan.Kernel == kernel.InFlight {
		l.quota = l.most
		l.sentence = newSentence(fmt.Sprintf("Too many requests at once: limit %s is %d.", wire, l.quota))
		return l
	}
	if plan.Kernel == kernel.Distinct {
		l.quota, l.span = l.most, seconds(plan.Span)
		l.sentence = newSentence(fmt.Sprintf("Too many different values: limit %s is %d in %ds.", wire, l.quota, l.span))
		return l
	}
	l.quota, l.span = wholeSeconds(plan.Limit)
	period := fmt.Sprintf("%ds", l.span)
	if plan.Limit.MonthDay > 0 {
		period = "month"
	}
	quota := strconv.FormatInt(l.quota, 10)
	switch {
	case plan.Limit.Money > 0:
		quota = printable.FormatMoney(l.quota)
	case r.Unit == policy.Tokens:
		quota += " tokens"
	}
	l.sentence = newSentence(fmt.Sprintf("Limit %s: %s per %s.", wire, quota, period))
	return l
}

// month sets the window to the month of the time now, and returns when that month begins and ends.
func (l *label) month(now int64) (begin, end int64) {
	_, begin, end = l.plan.WindowAt(now)
	l.span = (end - begin) / time.Second.Microseconds()
	return begin, end
}

// wholeSeconds returns a limit as a quota per whole seconds, because windows in the fields are whole seconds:
// 1/250ms is announced as 4 per second, 5/1.5s as 10 per 3 seconds.
func wholeSeconds(l sluice.Limit) (quota, seconds int64) {
	const second = int64(time.Second / time.Microsecond)
	period := int64(l.Period / time.Microsecond)
	a, b := period, second
	for b != 0 {
		a, b = b, a%b
	}
	hi, lo := bits.Mul64(uint64(l.Value(l.Count)), uint64(second/a))
	if hi != 0 || lo > maxInteger {
		lo = maxInteger
	}
	return int64(lo), period / a
}

// wireName returns s with all characters but printable ASCII written as %XX, because a string of a structured field
// cannot contain them.
func wireName(s string) string {
	return printable.Percent(s, func(c byte) bool { return c < ' ' || c > '~' })
}

// appendQuoted appends printable ASCII as a string of RFC 9651. The result is also a valid string of JSON.
func appendQuoted(dst []byte, s string) []byte {
	dst = append(dst, '"')
	for i := range len(s) {
		if s[i] == '"' || s[i] == '\\' {
			dst = append(dst, '\\')
		}
		dst = append(dst, s[i])
	}
	return append(dst, '"')
}

// mostLabel returns the label of the most restrictive result, results[most].
func (a *Answer) mostLabel() *label { return &a.header.labels[visible(a.results[:a.most])] }
