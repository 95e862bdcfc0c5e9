package pace

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// State is the state of one limit, as an answer reports it.
type State struct {
	Name   string        // distinguishes the limits of a server
	Left   int64         // the number of remaining requests
	Reset  time.Duration // the time until more requests can be made
	Quota  int64         // the number of requests per Window; 0 if unknown
	Window time.Duration
}

const (
	// maxStates bounds the limits of one answer that are read.
	maxStates = 16
	// maxField is the largest field that is read, in bytes. It bounds the names that are kept, and the memory for
	// parsing: net/http accepts heads of several megabytes, and parsed lists of that length would take hundreds of
	// megabytes.
	maxField = 4 << 10
)

// States returns the states of limits that the header of an answer reports. It reads the most detailed dialect that
// is present: the RateLimit fields of the drafts from 8 on, of draft 7, or of drafts 3 to 6, or the common
// X-RateLimit fields. It ignores fields of more than 4 KiB, and answers from a cache, which have an Age. The keys
// of h must be in the canonical form of net/http.
func States(h http.Header, now time.Time) []State {
	if age := first(h, "Age"); age != "" && age != "0" {
		return nil
	}
	if field := joined(h, "Ratelimit"); field != "" {
		if states := named(field, h); states != nil {
			return states
		}
		if s, ok := draft7(field, h); ok {
			return []State{s}
		}
	}
	for _, names := range &triples {
		if s, ok := triple(h, names, now); ok {
			return []State{s}
		}
	}
	return nil
}

// named reads a field such as `"per-ip";r=42;t=26, "user-day";r=4100;t=70848`.
func named(field string, h http.Header) (states []State) {
	list, _ := parseList(field)
	policies, _ := parseList(joined(h, "Ratelimit-Policy"))
	for i := range list[:min(len(list), maxStates)] {
		name, isName := list[i].name()
		r, hasR := list[i].parameter("r").(int64)
		t, _ := list[i].parameter("t").(int64)
		if !isName || !hasR || r < 0 || t < 0 {
			continue
		}
		s := State{Name: name, Left: r, Reset: seconds(t)}
		if p := find(policies, name); p == nil || s.quota(p) {
			states = append(states, s)
		}
	}
	return states
}

// name returns the name of a policy, which some servers write as a token.
func (m *member) name() (name string, ok bool) {
	if t, isToken := m.value.(token); isToken {
		return string(t), true
	}
	name, ok = m.value.(string)
	return name, ok
}

func find(policies []member, name string) *member {
	for i := range policies {
		if n, ok := policies[i].name(); ok && n == name {
			return &policies[i]
		}
	}
	return nil
}

// quota reads the quota of a policy such as `"per-ip";q=100;w=60`, and reports whether the quota counts requests.
func (s *State) quota(p *member) bool {
	q, _ := p.parameter("q").(int64)
	w, _ := p.parameter("w").(int64)
	if q > 0 && w > 0 {
		s.Quota, s.Window = q, seconds(w)
	}
	switch unit := p.parameter("qu").(type) {
	case nil:
		return true
	case string:
		return unit == "requests"
	case token:
		return unit == "requests"
	}
	return false
}

// draft7 reads a field such as "limit=100, remaining=50, reset=5".
func draft7(field string, h http.Header) (s State, ok bool) {
	members, _ := parseDictionary(field)
	var limit, remaining, reset any
	for _, m := range members {
		switch m.key {
		case "limit":
			limit = m.value
		case "remaining":
			remaining = m.value
		case "reset":
			reset = m.value
		}
	}
	left, ok1 := remaining.(int64)
	t, ok2 := reset.(int64)
	if !ok1 || !ok2 || left < 0 || t < 0 {
		return s, false
	}
	s = State{Left: left, Reset: seconds(t)}
	if l, isLimit := limit.(int64); isLimit && l > 0 {
		s.Name = strconv.FormatInt(l, 10)
		s.window(l, joined(h, "Ratelimit-Policy"))
	}
	return s, true
}

// window finds the window of a quota in a list such as "100;w=60, 5000;w=86400".
func (s *State) window(quota int64, policies string) {
	list, _ := parseList(policies)
	for i := range list {
		q, _ := list[i].value.(int64)
		if w, _ := list[i].parameter("w").(int64); q == quota && w > 0 {
			s.Quota, s.Window = q, seconds(w)
			return
		}
	}
}

// names has the names of the three fields of a dialect.
type names struct{ limit, remaining, reset string }

// triples has the dialects with separate fields for the limit, the remaining requests and the reset. States reads
// the first dialect that is present.
var triples = [...]names{
	{"Ratelimit-Limit", "Ratelimit-Remaining", "Ratelimit-Reset"},
	{"X-Ratelimit-Limit", "X-Ratelimit-Remaining", "X-Ratelimit-Reset-After"}, // Discord sends both a relative and an absolute time; the relative one is preferred
	{"X-Ratelimit-Limit", "X-Ratelimit-Remaining", "X-Ratelimit-Reset"},
	{"X-Rate-Limit-Limit", "X-Rate-Limit-Remaining", "X-Rate-Limit-Reset"},
	{"X-Ratelimit-Limit-Requests", "X-Ratelimit-Remaining-Requests", "X-Ratelimit-Reset-Requests"},
}

func triple(h http.Header, n names, now time.Time) (s State, ok bool) {
	left, ok := decimal(first(h, n.remaining))
	if !ok {
		return s, false
	}
	s.Reset, ok = reset(first(h, n.reset), clock(h, now))
	if !ok {
		return s, false
	}
	s.Left = int64(min(left, 1<<40))
	limit, policies, _ := strings.Cut(first(h, n.limit), ",")
	s.Name = first(h, "X-Ratelimit-Resource") + "/" + limit
	if quota, isLimit := decimal(strings.TrimSpace(limit)); isLimit && quota >= 1 {
		s.window(int64(min(quota, 1<<40)), policies)
		if s.Window == 0 {
			s.window(int64(min(quota, 1<<40)), joined(h, "Ratelimit-Policy"))
		}
	}
	return s, true
}

// first returns the first value of a field, or "" if it is missing or too long.
func first(h http.Header, name string) string {
	if values := h[name]; len(values) > 0 && len(values[0]) <= maxField {
		return strings.TrimSpace(values[0])
	}
	return ""
}

// joined returns the values of a field as one list, or "" if it is missing or too long.
func joined(h http.Header, name string) string {
	size := 0
	for _, v := range h[name] {
		if size += len(v) + 1; size > maxField {
			return ""
		}
	}
	return strings.Join(h[name], ",")
}

// A numeric reset below mostDelta, which is about three years, is in seconds from now. A larger one below mostUnix,
// which is in the year 5138, is in seconds since 1970. All others are in milliseconds since 1970.
const (
	mostDelta = 1e8
	mostUnix  = 1e11
)

// reset returns the time until a reset. The text is a number (see mostDelta) with or without decimals, a duration
// such as 6m0s, or a date in the format of RFC 3339 or HTTP. For a date in the past, reset returns 0.
func reset(text string, now time.Time) (d time.Duration, ok bool) {
	n, isNumber := decimal(text)
	switch {
	case !isNumber:
		return resetText(text, now)
	case n < mostDelta:
		return fraction(n), true
	case n < mostUnix:
		n *= 1e3
	}
	return max(0, time.UnixMilli(int64(min(n, 1e15))).Sub(now)), true
}

func resetText(text string, now time.Time) (d time.Duration, ok bool) {
	if d, err := time.ParseDuration(text); err == nil {
		return d, d >= 0
	}
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return max(0, at.Sub(now)), true
	}
	at, ok := parseDate(text)
	return max(0, at.Sub(now)), ok
}

// RetryAfter returns the time in the Retry-After of an answer, and whether this field is valid. A date is relative
// to the server's clock if the answer has a Date, and otherwise to the time now. A number may have decimals,
// because some servers send them.
func RetryAfter(h http.Header, now time.Time) (d time.Duration, ok bool) {
	text := first(h, "Retry-After")
	if n, isNumber := decimal(text); isNumber {
		return fraction(n), true
	}
	at, ok := parseDate(text)
	if !ok {
		return 0, false
	}
	return max(0, at.Sub(clock(h, now))), true
}

// clock returns the server's time: the Date of the answer, or else the time now.
func clock(h http.Header, now time.Time) time.Time {
	if at, ok := parseDate(first(h, "Date")); ok {
		return at
	}
	return now
}

// parseDate reads a date of HTTP. It also accepts a date that ends in UTC, which some servers in Go send by
// mistake.
func parseDate(text string) (at time.Time, ok bool) {
	if utc, found := strings.CutSuffix(text, " UTC"); found {
		text = utc + " GMT"
	}
	at, err := http.ParseTime(text)
	return at, err == nil
}

// decimal reads a number of digits, with or without a fraction.
func decimal(text string) (n float64, ok bool) {
	whole, part, _ := strings.Cut(text, ".")
	if whole == "" || strings.Trim(whole+part, "0123456789") != "" {
		return 0, false
	}
	n, _ = strconv.ParseFloat(text, 64) // infinite if it is too large
	return n, true
}

// longest is the upper bound of all times, because no caller would wait longer.
const longest = 100 * 365 * 24 * time.Hour

func seconds(n int64) time.Duration { return fraction(float64(n)) }

// fraction returns n seconds as a duration, at most longest.
func fraction(n float64) time.Duration {
	if n >= longest.Seconds() {
		return longest
	}
	return time.Duration(n * float64(time.Second))
}
