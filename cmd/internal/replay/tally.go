package replay

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/cmd/internal/replay/accesslog"
	"github.com/sluicehq/sluice/kernel"
	"github.com/sluicehq/sluice/policy"
)

// side decides about the requests of one worker by one policy, and counts the results. In a comparison, each worker
// has two sides.
type side struct {
	rules  []ruleInfo
	engine *policy.Engine
	tally  tally

	// The request that is being decided.
	entry    *accesslog.Entry
	store    Store
	subjects *subjects
	name     string // name of the client, if the log has names
	value    string // the value of the last key
	hash     uint64 // hash of value
	refusing []int
	unsure   []unsure

	decision policy.Decision
}

// ruleInfo has the properties of a rule that counting needs.
type ruleInfo struct {
	group int // the same for rules with the same key
	rule  *policy.Rule
}

// Take implements [sluice.Store]. It passes the charges to the store of those clients to which the request belongs (see
// [part]), with the time of the request.
func (s *side) Take(ctx context.Context, charges []sluice.Charge, receipts []sluice.Receipt) error {
	s.value = valueOf(charges[0].Key)
	s.hash = s.subjects.textHash(s.value)
	return s.store.TakeAt(ctx, s.entry.Time, charges, receipts)
}

func newSide(p *policy.Policy, rules []ruleInfo) *side {
	s := &side{rules: rules, tally: tally{rules: make([]ruleTally, len(rules))}}
	s.engine = policy.NewEngine(s, p)
	s.engine.Observe(s.observe)
	s.engine.Untimed()
	return s
}

// decide decides about a request by the policy, and counts the result.
func (s *side) decide(ctx context.Context, e *accesslog.Entry, r *policy.Request, name string, in *counts) (allowed bool) {
	s.entry, s.store, s.subjects, s.name = e, in.store, in.subjects, name
	s.value, s.hash = "", in.subjects.none
	d := &s.decision
	s.engine.DecideInto(ctx, r, d)
	if d.Allowed && d.Unsettled() {
		s.engine.Settle(ctx, *d, outcomeOf(e))
	}
	return d.Allowed
}

// outcomeOf returns the outcome of a request from its entry in the log.
func outcomeOf(e *accesslog.Entry) policy.Outcome {
	o := policy.Outcome{Status: e.Status, Bytes: e.Sent, At: time.UnixMicro(e.Time)}
	if e.Tokens.Total >= 0 || e.Tokens.Input >= 0 || e.Tokens.Output >= 0 {
		o.Bytes = max(o.Bytes, 0) // an unknown size counts as 0
		o.Numbers = numbersOf(&e.Tokens)
	}
	return o
}

// numbersOf returns tokens as a response reports them. If only a total is known, all tokens count as output.
func numbersOf(t *accesslog.Tokens) map[string]int64 {
	if t.Input < 0 && t.Output < 0 {
		return map[string]int64{"usage.completion_tokens": t.Total}
	}
	return map[string]int64{
		"usage.prompt_tokens": max(t.Input, 0), "usage.completion_tokens": max(t.Output, 0),
		"usage.prompt_tokens_details.cached_tokens": max(t.Cached, 0),
	}
}

// forever is used as the wait where RetryAfter is [sluice.Never]. It is longer than the time that any log covers.
const forever = math.MaxInt64 * time.Nanosecond

// observe counts a decision.
func (s *side) observe(_ context.Context, o *policy.Observation) {
	t, e, d := &s.tally, s.entry, &o.Decision
	step := t.step(e.Time)
	t.request(e, d, step)
	if name := o.Exempting(); name != "" {
		for i := range s.rules {
			if s.rules[i].rule.Name == name {
				t.rules[i].matched++
			}
		}
	}
	path := ""
	s.refusing, s.unsure = s.refusing[:0], s.unsure[:0]
	for i := 0; i < len(d.Results); {
		index, first := o.RuleIndex(i), i
		refused, delayed, enforced, unused, gain := false, false, false, false, int64(math.MaxInt64)
		var wait, blocked time.Duration
		rule := &t.rules[index]
		for ; i < len(d.Results) && o.RuleIndex(i) == index; i++ {
			r := &d.Results[i]
			if delayed = delayed || r.Delay > 0; r.Allowed {
				unused = unused || r.Plan != nil && r.Remaining+r.Cost >= r.Plan.Capacity
				continue
			}
			gain = min(gain, secondGains(r))
			refused, enforced = true, enforced || !r.Shadow
			if r.RetryAfter == sluice.Never {
				blocked = forever
			} else {
				wait = max(wait, r.RetryAfter)
			}
			rule.edges(r.Plan, e.Time)
		}
		rule.matched++
		if delayed {
			rule.delayed++
		}
		group, key := s.rules[index].group, o.Key(first)
		if key == "" { // a rule with block, which counts nothing
			key = s.rules[index].rule.Name + "/" + o.Client().String()
		}
		if v := valueOf(key); v != s.value { // successive rules often have the same value
			s.value, s.hash = v, s.subjects.textHash(v)
		}
		was := s.subjects.request(index, group, key, s.hash, e.Time)
		if !refused {
			s.subjects.passed(was, e.Time, unused)
			continue
		}
		if path == "" {
			path = o.Request.Path
		}
		s.subjects.refused(was, e.Time, max(wait, blocked).Microseconds(), enforced, s.name, path)
		if enforced {
			s.unsure = append(s.unsure, unsure{was, gain})
		}
		rule.longest = max(rule.longest, wait)
		rule.refused++
		rule.series = add(rule.series, step, 1)
		s.refusing = append(s.refusing, index)
	}
	t.together(s.refusing)
	if !d.Allowed && d.RetryAfter > 0 && d.RetryAfter <= time.Second && s.subjects.mayPass(s.unsure) {
		t.close++
	}
}

// secondGains returns the number of units that a limit regains in a second, divided by the cost of the request and
// rounded up. If the times in a log are whole seconds, a replay makes all requests of a second at the start of that
// second. With their true times, the limit might allow up to this many more of them. A fixed window or an exact sliding
// log regains nothing within a second if its period is a whole number of seconds.
func secondGains(r *policy.Result) int64 {
	if r.Plan == nil || r.Plan.Kernel == kernel.InFlight || r.Cost < 1 {
		return 0
	}
	switch l := r.Plan.Limit; {
	case l.Period%time.Second == 0 && (l.Algorithm == sluice.FixedWindow || l.Algorithm == sluice.SlidingWindowLogExact):
		return 0
	default:
		return int64(math.Ceil(float64(l.Count) / l.Period.Seconds() / float64(r.Cost)))
	}
}

// tally has the counts of one worker.
type tally struct {
	requests, refused, exempt, malformed int64
	limited                              int64 // requests with status 429 or 503 in the log
	close                                int64 // denied requests that might be allowed with true times: see secondGains
	undecided                            int64 // requests for which the store failed
	statuses                             [len(classes)]struct{ requests, refused int64 }
	minutes                              [60]bool // minutes[m] is true if a request came in minute m of any hour

	axis          axis
	all, refusals []int64 // series

	rules []ruleTally
}

// classes are the classes of statuses.
var classes = [...]string{"none", "1xx", "2xx", "3xx", "4xx", "5xx", "other"}

// ruleTally has the counts of a rule.
type ruleTally struct {
	matched, refused, alone, delayed int64
	windows, early                   int64 // denials by fixed windows: all, and those in the first tenth of a window
	longest                          time.Duration
	series                           []int64
	// beside are the indexes of the rules that denied every request that this rule denied, sorted, including this
	// rule.
	beside []int
}

// edges counts a denial by a fixed window, and whether it came early in the window.
func (r *ruleTally) edges(p *sluice.Plan, now int64) {
	if p == nil || p.Limit.Algorithm != sluice.FixedWindow || p.Limit.MonthDay != 0 {
		return
	}
	r.windows++
	if period := p.Limit.Period.Microseconds(); period > 0 && now%period*10 < period {
		r.early++
	}
}

// step returns the index of the step that contains the time now. It is the same in all series. If necessary, step makes
// the steps longer.
func (t *tally) step(now int64) int {
	if t.axis.from <= now && now < t.axis.end {
		return t.axis.last
	}
	for {
		if i, room := t.axis.at(now); room {
			return i
		}
		t.lengthen()
	}
}

// lengthen makes the steps of all series longer.
func (t *tally) lengthen() {
	shift, ratio := t.axis.lengthen()
	t.all, t.refusals = lengthened(t.all, shift, ratio), lengthened(t.refusals, shift, ratio)
	for i := range t.rules {
		t.rules[i].series = lengthened(t.rules[i].series, shift, ratio)
	}
}

// request counts a request as a whole.
func (t *tally) request(e *accesslog.Entry, d *policy.Decision, step int) {
	t.requests++
	t.all = add(t.all, step, 1)
	t.minutes[uint64(e.Time/60e6)%60] = true
	if e.Status == 429 || e.Status == 503 {
		t.limited++
	}
	class := &t.statuses[classOf(e.Status)]
	class.requests++
	if d.Err != nil {
		t.undecided++
	}
	if d.Exempt {
		t.exempt++
	}
	if d.Allowed {
		return
	}
	t.refused++
	class.refused++
	t.refusals = add(t.refusals, step, 1)
	if d.Missing != "" {
		t.malformed++
	}
}

func classOf(status int) int {
	switch {
	case status == 0:
		return 0
	case status >= 100 && status < 600:
		return status / 100
	}
	return len(classes) - 1
}

// together counts which rules denied a request together.
func (t *tally) together(refusing []int) {
	if len(refusing) == 1 {
		t.rules[refusing[0]].alone++
	}
	for _, i := range refusing {
		if r := &t.rules[i]; r.refused == 1 {
			r.beside = slices.Sorted(slices.Values(refusing))
		} else {
			r.keepBeside(refusing)
		}
	}
}

// keepBeside removes from r.beside all rules that are not in rules.
func (r *ruleTally) keepBeside(rules []int) {
	r.beside = slices.DeleteFunc(r.beside, func(i int) bool { return !slices.Contains(rules, i) })
}

// merge adds the counts of another worker.
func (t *tally) merge(o *tally) {
	t.alignWith(o)
	t.requests, t.refused, t.exempt, t.malformed = t.requests+o.requests, t.refused+o.refused, t.exempt+o.exempt, t.malformed+o.malformed
	t.limited, t.close, t.undecided = t.limited+o.limited, t.close+o.close, t.undecided+o.undecided
	for i := range t.statuses {
		t.statuses[i].requests += o.statuses[i].requests
		t.statuses[i].refused += o.statuses[i].refused
	}
	for i := range t.minutes {
		t.minutes[i] = t.minutes[i] || o.minutes[i]
	}
	t.all, t.refusals = summed(t.all, o.all), summed(t.refusals, o.refusals)
	for i := range t.rules {
		t.rules[i].merge(&o.rules[i])
	}
}

func (r *ruleTally) merge(o *ruleTally) {
	switch {
	case r.refused == 0:
		r.beside = o.beside
	case o.refused > 0:
		r.keepBeside(o.beside)
	}
	r.matched, r.refused, r.alone, r.delayed = r.matched+o.matched, r.refused+o.refused, r.alone+o.alone, r.delayed+o.delayed
	r.windows, r.early = r.windows+o.windows, r.early+o.early
	r.longest = max(r.longest, o.longest)
	r.series = summed(r.series, o.series)
}

// alignWith gives two tallies the same steps. Their first steps must begin at the same time.
func (t *tally) alignWith(o *tally) {
	for t.axis.level < o.axis.level {
		t.lengthen()
	}
	for o.axis.level < t.axis.level {
		o.lengthen()
	}
	t.axis.steps = max(t.axis.steps, o.axis.steps)
}

func summed(a, b []int64) []int64 {
	for i, n := range b {
		a = add(a, i, n)
	}
	return a
}
