package telemetry

import (
	"cmp"
	"context"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/printable"
	"github.com/sluicehq/sluice/policy"
)

// LogRefusals writes lines about denials of e to logger, at level INFO. The message is "denied"; "would deny" if the
// rule is in shadow mode or not enforced for the subject; or "marked" if the rule has "over: mark". Call LogRefusals
// before the first decision. Call stop to end the log: it takes at most a second to write the lines that are still due.
//
// A line has the following attributes, as far as they are known:
//
//   - "rule"
//   - "limit", and "limit_name" if the rule has several limits
//   - "from": see [policy.Result]
//   - "because", which is "limit", "reserved" (by the estimates of requests in flight), "penalty", "block", "store"
//     (the store is unavailable and on_error is deny), "overload" (the rule has "in_flight: auto"), or "malformed"
//   - "missing": why a request is "malformed"; such a line has no rule
//   - "class": the class of the request, only with "overload"
//   - "subject", in the form that the rule's show_key allows
//   - "wait": the Retry-After for this rule in seconds, unless waiting does not help
//   - "address", unless it is part of a subject that is not shown whole
//   - "door", "method", "path" (without the query), "host", "request_id", and "trace_id" (from the field traceparent)
//   - "left_out": see below
//
// With each line, the handler of logger gets the context of the request, without its cancellation.
//
// A subject gets a line for each of its first four denials by a rule, then for the 8th, 16th, 32nd and so on. The
// attribute "left_out" is the number of denials omitted in between. After an hour without a denial, counting starts
// again. On average, at most 5 lines a second are written, and at most 200 at once; for one rule, at most 2 a second
// and 50 at once. This bound does not depend on the number of subjects that an attacker has. Denials omitted because of
// it are counted by rule in a line "denied requests omitted from the log", once a minute. No line is longer than 2 KiB
// in JSON, so the log grows by less than a gigabyte a day in the worst attack, and by some 150 MB with typical lines.
// Up to 4096 subjects are counted separately, in 200 KiB. A further subject replaces one that was last denied long
// ago.
//
// No text from a request can end a line or reach a terminal as a control character: unprintable characters become
// "�", and long texts end in "…". If logger's output is slow, no request waits for it: lines are dropped, and
// counted as unwritten.
func LogRefusals(e *policy.Engine, logger *slog.Logger) (stop func()) {
	l := &refusalLog{
		refusalSampler: newRefusalSampler(firstLines),
		handler:        logger.Handler(),
		lines:          make(chan *refusalLine, maxQueued),
		end:            make(chan struct{}),
		ended:          make(chan struct{}),
		all:            allowance{rate: allRate, burst: allBurst},
		perRule:        perRule{rate: ruleRate, burst: ruleBurst},
	}
	go l.run()
	e.Observe(l.observe)
	return sync.OnceFunc(l.stop)
}

// These are the bounds that LogRefusals promises.
const (
	allRate, allBurst   = 5, 200    // lines a second, and at once
	ruleRate, ruleBurst = 2, 50     // the same for one rule
	maxQueued           = 256       // lines that wait to be written
	firstLines          = 3         // the first denials of a subject, which all get a line
	forgetAfter         = time.Hour // without a denial of a subject
	summaryEvery        = time.Minute
	stopWithin          = time.Second
)

// These names are used in place of a rule's name.
const (
	refusalsOfCallers   = "*caller"    // limits sent by callers: see policy.Engine.Adhoc
	refusalsOfMalformed = "*malformed" // requests that lack something
)

// refusalLog receives denials from observers, without waiting, and writes them to a handler. Each denial is in a line,
// in left_out of a later line, or in a summary.
type refusalLog struct {
	refusalSampler
	handler slog.Handler
	lines   chan *refusalLine
	stopped atomic.Bool
	end     chan struct{} // closed: no more lines come
	ended   chan struct{} // closed: run has returned

	mu        sync.Mutex // guards the fields below
	all       allowance
	perRule   perRule // n is the number of denials without a line
	unwritten uint64
}

// refusalLine is a line of the log.
type refusalLine struct {
	Refusal
	ctx     context.Context
	leftOut uint64 // denials of the subject since its last line
}

func (l *refusalLog) observe(ctx context.Context, o *policy.Observation) {
	eachRefusal(o, func(i int) {
		if !l.stopped.Load() && l.handler.Enabled(ctx, slog.LevelInfo) {
			l.note(ctx, o, i, time.Now())
		}
	})
}

// eachRefusal calls f for each rule that denies the request or would deny it, with the index of its result. Indexes
// from len(Results) on are those of Loads. If the request is malformed, and no rule denies it for another reason,
// eachRefusal calls f with -1. This includes requests that only rules in shadow mode would deny as malformed.
func eachRefusal(o *policy.Observation, f func(i int)) {
	d := &o.Decision
	if o.Request.Mode != policy.Charge || d.Repeated {
		return
	}
	refused := false
	for i := 0; i < len(d.Results); {
		worst, next := worstOf(d.Results, i)
		if worst >= 0 {
			refused = refused || !d.Results[worst].Shadow
			f(worst)
		}
		i = next
	}
	for i := range d.Loads {
		if l := &d.Loads[i]; !l.Allowed {
			refused = refused || !l.Shadow
			f(len(d.Results) + i)
		}
	}
	if !refused && (d.Missing != "" || o.Pardoned() != "") {
		f(-1)
	}
}

// worstOf looks at the results of one rule, which start at i. It returns the index of the denial with the longest wait,
// or -1, and the index at which the results of the next rule start.
func worstOf(results []policy.Result, i int) (worst, next int) {
	worst = -1
	for next = i; next < len(results) && results[next].Rule == results[i].Rule; next++ {
		if r := &results[next]; !r.Allowed && (worst < 0 || r.RetryAfter > results[worst].RetryAfter) {
			worst = next
		}
	}
	return worst, next
}

// note counts a denial by result i, or of a malformed request if i is negative, and queues a line if one is due.
func (l *refusalLog) note(ctx context.Context, o *policy.Observation, i int, now time.Time) {
	hash, rule := l.hashOf(o, i)
	leftOut, due, gone := l.sample(hash, rule, now)
	l.missed(gone)
	if !due || !l.allow(rule, leftOut, now) {
		return
	}
	line := &refusalLine{describeRefusal(o, i, now), context.WithoutCancel(ctx), leftOut}
	select {
	case l.lines <- line:
	default:
		l.mu.Lock()
		l.unwritten++
		l.perRule.get(rule).n += 1 + leftOut
		l.mu.Unlock()
	}
}

// allow reports whether a line about a denial by a rule may be written. If not, the denial and those left out before
// it go into the summary.
func (l *refusalLog) allow(rule string, leftOut uint64, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.perRule.get(rule)
	if r.has(now) && l.all.has(now) {
		r.tokens--
		l.all.tokens--
		return true
	}
	r.n += 1 + leftOut
	return false
}

// allowance is a token bucket.
type allowance struct {
	rate, burst, tokens float64
	at                  time.Time
}

// has refills the bucket, and reports whether it has a token.
func (a *allowance) has(now time.Time) bool {
	if a.at.IsZero() {
		a.tokens = a.burst
	} else if passed := now.Sub(a.at); passed > 0 {
		a.tokens = min(a.burst, a.tokens+passed.Seconds()*a.rate)
	}
	a.at = now
	return a.tokens >= 1
}

// perRule has an allowance for each of at most MaxRules rules, and one for all others.
type perRule struct {
	rate, burst float64
	rules       map[string]*ruleAllowance
}

// ruleAllowance is the allowance of a rule, and a count of its denials.
type ruleAllowance struct {
	allowance
	n uint64
}

// get returns the allowance of a rule.
func (p *perRule) get(rule string) *ruleAllowance {
	r := p.rules[rule]
	if r == nil && len(p.rules) >= MaxRules {
		rule = OtherRules
		r = p.rules[rule]
	}
	if r == nil {
		if p.rules == nil {
			p.rules = make(map[string]*ruleAllowance)
		}
		r = &ruleAllowance{allowance: allowance{rate: p.rate, burst: p.burst}}
		p.rules[rule] = r
	}
	return r
}

// missed adds the left-out denials of a removed subject to the summary.
func (l *refusalLog) missed(s refusedSubject) {
	if s.leftOut == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.perRule.get(s.rule).n += s.leftOut
}

// describeRefusal copies the data of a denial, because the request is no longer valid when the line is written. It
// leaves out the fields that only Refusals use.
func describeRefusal(o *policy.Observation, i int, now time.Time) Refusal {
	q := o.Request
	address := o.Client().WithZone("")
	line := Refusal{
		At: now, Shadow: i < 0 && o.Decision.Missing == "", Wait: -1, Because: "malformed",
		Door:      q.Door,
		Method:    printable.Text(q.Method, 16),
		Path:      printable.Text(q.Path, 128),
		Host:      printable.Text(q.Host, 64),
		RequestID: printable.Text(requestID(o), 64),
		TraceID:   traceID(q.Header["Traceparent"]),
	}
	if address.IsValid() {
		line.Address = address.String()
	}
	if i < 0 {
		line.Missing = printable.Text(cmp.Or(o.Decision.Missing, o.Pardoned()), 64)
		return line
	}
	if at := i - len(o.Decision.Results); at >= 0 {
		line.describeLoad(o, at)
		return line
	}
	r := &o.Decision.Results[i]
	line.Shadow, line.Marked, line.Because = r.Shadow, r.Marks, r.Because()
	line.Rule, line.LimitName, line.From = printable.Text(r.Rule, 100), printable.Text(r.Name, 100), printable.Text(r.From, 64)
	if key := o.Key(i); key != "" {
		shown := o.Shown(i)
		line.Subject = printable.Text(shown, 160)
		if !strings.Contains(shown, addressIn(key, address)) {
			line.Address = ""
		}
	}
	if r.Plan != nil {
		line.Limit = r.Plan.String()
	}
	if seconds, ok := r.RetryAfterSeconds(); ok {
		line.Wait = seconds
	}
	return line
}

// describeLoad describes a denial by a rule with "in_flight: auto".
func (r *Refusal) describeLoad(o *policy.Observation, i int) {
	l := &o.Decision.Loads[i]
	r.Shadow, r.Because, r.Class = l.Shadow, l.Because(), l.Class
	r.Rule, r.Subject = printable.Text(l.Rule, 100), printable.Text(o.LoadShown(i), 160)
	if !l.Shadow {
		r.Wait, _ = (sluice.Decision{RetryAfter: o.Decision.RetryAfter}).RetryAfterSeconds()
	}
}

// addressIn returns the first part of a key that is either the address, or the first address of an IPv6 network that
// contains the address. It returns "" if the key has no such part.
func addressIn(key string, address netip.Addr) string {
	for part := range strings.SplitSeq(key, "/") {
		first, err := netip.ParseAddr(part)
		if err == nil && (first == address || first.Is6() && covers(first, address)) {
			return part
		}
	}
	return ""
}

// covers reports whether the second address is in a network that starts at the first address and has a prefix of 16
// bits or more.
func covers(first, address netip.Addr) bool {
	for bits := 16; bits <= 128; bits++ {
		if network, err := address.Prefix(bits); err == nil && network.Addr() == first {
			return true
		}
	}
	return false
}

// requestID returns the ID of the request: see [policy.Decision.RequestID]. A request that only a rule in shadow mode
// would have denied has only the ID that it came with.
func requestID(o *policy.Observation) string {
	if id := o.Decision.RequestID(); id != "" {
		return id
	}
	return sentID(o.Request)
}

// sentID returns the ID that a request came with: from the field that proxies set, or else from the integration.
func sentID(q *policy.Request) string {
	if ids := q.Header["X-Request-Id"]; len(ids) > 0 && ids[0] != "" {
		return ids[0]
	}
	return q.ID
}
