package httplimit

import (
	"fmt"
	"math/bits"
	"strconv"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/policy"
)

// maxInteger is the largest integer that a structured field can hold.
const maxInteger = 999_999_999_999_999

// legend is what is said of a set of rules, whatever the state of their limits.
type legend struct {
	entries []entry
	policy  string // RateLimit-Policy
}

type entry struct {
	name  string
	plan  *sluice.Plan
	item  string // the name as a quoted string, both of structured fields and of JSON
	quota int64  // per window
	span  int64  // the window in whole seconds
	limit string // the most that remaining can be

	sentence sentence // for people
}

// legends keeps those that were used last. A policy has few sets of rules that apply
// together; where it has many, some are made anew each time.
type legends [256]atomic.Pointer[legend]

// of returns the legend of the results that clients are told about. What a shadow says
// is not in force, and clients that heeded it would slow down for nothing.
func (l *legends) of(results []policy.Result, dialect Dialect) *legend {
	var h uintptr
	for i := range results {
		if r := &results[i]; !r.Shadow {
			h += uintptr(unsafe.Pointer(r.Plan)) + uintptr(unsafe.Pointer(unsafe.StringData(r.Rule)))
			h *= 0x9E3779B1
		}
	}
	slot := &l[h>>16%uintptr(len(l))]
	if known := slot.Load(); known != nil && known.speaksOf(results) {
		return known
	}
	made := newLegend(results, dialect)
	slot.Store(made)
	return made
}

func (l *legend) speaksOf(results []policy.Result) bool {
	n := 0
	for i := range results {
		r := &results[i]
		if r.Shadow {
			continue
		}
		if n == len(l.entries) || l.entries[n].plan != r.Plan || l.entries[n].name != r.Rule {
			return false
		}
		n++
	}
	return n == len(l.entries)
}

func newLegend(results []policy.Result, dialect Dialect) *legend {
	l := &legend{}
	var text []byte
	for i := range results {
		if results[i].Shadow {
			continue
		}
		e := newEntry(results[i].Rule, results[i].Plan)
		l.entries = append(l.entries, e)
		if len(text) > 0 {
			text = append(text, ", "...)
		}
		if dialect == Draft11 {
			text = append(text, e.item+";q="...)
		}
		text = strconv.AppendInt(text, e.quota, 10)
		text = strconv.AppendInt(append(text, ";w="...), e.span, 10)
	}
	l.policy = string(text)
	return l
}

func newEntry(name string, plan *sluice.Plan) entry {
	wire := printable(name)
	e := entry{name: name, plan: plan, item: string(appendQuoted(nil, wire))}
	e.quota, e.span = wholeSeconds(plan.Limit)
	e.limit = strconv.FormatInt(min(maxInteger, max(plan.Limit.Count, plan.Capacity)), 10)
	e.sentence = newSentence(fmt.Sprintf("Limit %s: %d per %ds.", wire, e.quota, e.span))
	return e
}

// wholeSeconds returns a limit as a quota per whole seconds, the only windows there are
// in the fields: 1/250ms is announced as 4 per second, 5/1.5s as 10 per 3 seconds.
func wholeSeconds(l sluice.Limit) (quota, seconds int64) {
	const second = int64(time.Second / time.Microsecond)
	period := int64(l.Period / time.Microsecond)
	a, b := period, second
	for b != 0 {
		a, b = b, a%b
	}
	hi, lo := bits.Mul64(uint64(l.Count), uint64(second/a))
	if hi != 0 || lo > maxInteger {
		lo = maxInteger
	}
	return int64(lo), period / a
}

// printable returns s with what a string of a structured field cannot hold, everything
// but printable ASCII, as %XX.
func printable(s string) string {
	const digits = "0123456789ABCDEF"
	text := make([]byte, 0, len(s))
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' {
			text = append(text, '%', digits[c>>4], digits[c&15])
		} else {
			text = append(text, c)
		}
	}
	return string(text)
}

// appendQuoted appends printable ASCII as a string of RFC 9651, which for such text is
// a string of JSON as well.
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
