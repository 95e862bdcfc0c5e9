package policy

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/spelling"
	"github.com/sluicehq/sluice/policy/internal/parts"
)

// Trace explains a decision.
type Trace struct {
	// Decision is what [Engine.Decide] would say now. Nothing has been taken: Remaining,
	// ResetAfter and Delay of its results are those before the request.
	Decision Decision
	// Client is where the request comes from, as trusted proxies tell it.
	Client netip.Addr
	// Tier is that of the request, if a rule asks for one, and TierFrom what says it: "subjects",
	// the part of the request that tiers.from names, or "default".
	Tier, TierFrom string
	// TierSubject is the entry of the subjects that says it, if one does. Do not change it.
	TierSubject *TierSubject
	// Rules are all the rules, in the order of the document.
	Rules []RuleTrace

	after *Decision
}

// RuleTrace explains what one rule does with a request.
type RuleTrace struct {
	Rule    string
	Source  string // see [Rule]
	Applies bool
	// Why says what matched, or what did not.
	Why string
	// Key is the text under which the store counts, if the rule charges something.
	Key string
	// Results are what its limits would say; nothing if it charges nothing.
	Results []Result
	// After are Results once the request has been charged; see [Trace.After].
	After []Result
	// Enforced is for which share of its subjects the rule refuses, such as "10 %", and Watched
	// whether this subject is none of them. Without a share both are empty.
	Enforced string
	Watched  bool
	// Override is the one that holds for the subject, if there is one. Do not change it.
	Override *Override
	// Share says what the subject's part is at present of a limit that is shared: see [Share].
	Share string
	// Then says what the response changes of that, if it does.
	Then string
	// Consistency is how the instances that share a store count what the rule charges.
	Consistency sluice.Consistency
}

// Explain returns what [Engine.Decide] would say about a request, and why. It looks at the counts in
// the store without changing them, and takes time in proportion to the number of rules. It asks all
// rules, even those for which Decide would not read the body because others refuse already.
func (e *Engine) Explain(ctx context.Context, req *Request) Trace {
	var t Trace
	s := e.begin(req, &t.Decision)
	defer e.end(s)
	t.Client = s.policy.client(req)
	if s.exemptPreflight() {
		t.Decision = Decision{Allowed: true, Exempt: true}
		t.Rules = s.explainExempt(nil, "cors exempts preflights")
		return t
	}
	if exempt := s.match(); exempt != nil {
		t.Decision = Decision{Allowed: true, Exempt: true}
		t.Rules = s.explainExempt(exempt, fmt.Sprintf("rule %q exempts the request", exempt.name))
		return t
	}
	if by := s.barred(); by != nil {
		s.refuseBarred(&t.Decision, by)
		s.addBarring(&t.Decision)
		t.Rules = s.explainBarred(by)
		return t
	}
	missing := s.explainRules(&t)
	if s.tierKnown {
		t.Tier, t.TierFrom = strings.Clone(s.tier), s.tierFrom
		if e := s.listedTier(); e != nil {
			t.TierSubject = &s.policy.subjects.list[e.Item]
		}
	}
	if s.ambiguous {
		missing = ambiguousPath
	}
	if missing == "" {
		e.rehearse(ctx, s, &t.Decision)
	} else if !e.rehearseMalformed(ctx, s, &t.Decision) {
		t.Decision = Decision{Missing: missing}
		s.addBarring(&t.Decision)
		return t
	}
	if t.Decision.Allowed && t.Decision.Err == nil && t.Decision.Blocked == "" {
		s.askNext(ctx, e.store)
	}
	if t.after = s.foresee(&t.Decision); t.after != nil {
		s.addBarring(t.after)
	}
	s.addBarring(&t.Decision)
	if t.Decision.Blocked != "" {
		return t // nothing is known of the limits
	}
	i := 0
	for n := range t.Rules {
		if r := &t.Rules[n]; i < len(s.results) && s.results[i].Rule == r.Rule {
			r.Key = strings.Clone(s.keyOf(i))
			r.Share = s.part(i)
			first := i
			for i < len(s.results) && s.results[i].Rule == r.Rule {
				i++
			}
			r.Results = t.Decision.Results[first:i:i]
			r.After = r.Results
			if t.Decision.Allowed {
				r.After = t.After().Results[first:i:i]
			}
			r.Then, r.Consistency = s.policy.rules[n].then(), s.policy.rules[n].consistency
		}
	}
	return t
}

// rehearseMalformed is countMalformed without taking anything. It reports whether rules refuse
// the request, for what they have counted.
func (e *Engine) rehearseMalformed(ctx context.Context, s *scratch, d *Decision) bool {
	if s.chargeMalformed(); len(s.charges)+len(s.blocked) == 0 {
		return false
	}
	e.rehearse(ctx, s, d)
	return !d.Allowed && d.Err == nil
}

func (s *scratch) explainExempt(exempt *rule, why string) []RuleTrace {
	all := make([]RuleTrace, len(s.policy.rules))
	for i := range s.policy.rules {
		r := &s.policy.rules[i]
		all[i] = RuleTrace{Rule: r.name, Source: r.source, Why: why}
		if r == exempt {
			all[i].Applies, all[i].Why = true, withClient("exempts the request", r.whyClient(s))
		}
	}
	return all
}

// explainRules fills in the rules of t and makes their charges. It returns what the request
// lacks and is refused for, or "".
func (s *scratch) explainRules(t *Trace) (missing string) {
	matches := s.matches
	for i := range s.policy.rules {
		r := &s.policy.rules[i]
		trace := RuleTrace{Rule: r.name, Source: r.source}
		if r.block {
			trace = s.explainBlock(r)
		} else if len(matches) > 0 && matches[0].rule == r {
			s.override = nil
			part, out := s.charge(&matches[0])
			trace.Applies, trace.Override = out == charged || out == barred, s.override
			trace.Why = withClient(why(matches[0], part, out, s.x.Garbled), r.whyClient(s))
			if out == exempted || out == barred {
				trace.Why = s.whyUncounted(r, out)
			}
			if trace.Applies && r.isPartial() {
				trace.Enforced, trace.Watched = shareText(r.share), s.watchesLast(out)
				trace.Why += ", " + r.whyPartial(trace.Watched)
			}
			if out == refused && missing == "" {
				missing = lacking(part.String(), s.x.Garbled)
			}
			matches = matches[1:]
		} else {
			trace.Why = s.whyNot(r)
		}
		t.Rules = append(t.Rules, trace)
	}
	return missing
}

// watchesLast reports whether what a rule has made of the request last is only watched.
func (s *scratch) watchesLast(out outcome) bool {
	if out == barred {
		return s.blocked[len(s.blocked)-1].shadow
	}
	return s.charges[len(s.charges)-1].Shadow
}

// whyUncounted says why a rule that holds for the request does not count it: its subject, of which
// the charge was tried last, is exempt or blocked.
func (s *scratch) whyUncounted(r *rule, out outcome) string {
	if out == exempted {
		return "an override exempts the subject" + s.override.Terms()
	}
	switch b := &s.blocked[len(s.blocked)-1]; {
	case b.from == blocked:
		return "the subject is blocked until " + time.UnixMicro(b.until).UTC().Format(time.RFC3339)
	case b.shadow:
		return "an override would block the subject" + s.override.Terms() + r.onlyWatched()
	}
	return "an override blocks the subject" + s.override.Terms()
}

func why(m matched, missing *parts.Part, out outcome, garbled bool) string {
	state := "lacks"
	if garbled {
		state = "has no usable"
	}
	switch {
	case out == skipped && m.rule.missing == refuse:
		return fmt.Sprintf("skipped: the request %s %s, and would be refused for it%s", state, missing, m.rule.onlyWatched())
	case out == skipped:
		return fmt.Sprintf("skipped: the request %s %s", state, missing)
	case out == refused:
		return fmt.Sprintf("refuses: the request %s %s", state, missing)
	case m.pattern != nil:
		return fmt.Sprintf("match %q", m.pattern.Text)
	case len(m.rule.hosts)+len(m.rule.headers) > 0:
		return "hosts and headers match"
	case len(m.rule.attributes) > 0:
		return "attributes match"
	}
	return everyRequest
}

// whyNot says which condition the request does not meet.
func (s *scratch) whyNot(r *rule) string {
	condition := r.unmet(s)
	switch {
	case strings.HasPrefix(condition, attributePrefix):
		return fmt.Sprintf("%s is missing or has another value", condition)
	case condition == "hosts":
		return fmt.Sprintf("host %s is not one of its hosts", spelling.Quote(s.host()))
	case condition == "clients", condition == "not_clients":
		return r.whyNotClient(s, condition)
	case condition != "":
		return fmt.Sprintf("the header %s is missing or has another value", condition)
	case r.exempt && s.hasID(r):
		return "does not exempt: the path can be read in more than one way, and not every way matches"
	}
	return "no pattern matches the method, host and path"
}

// hasID reports whether a pattern of r matches the path in one way to read it.
func (s *scratch) hasID(r *rule) bool {
	return slices.ContainsFunc(s.ids, func(id int32) bool { return s.policy.index.byID[id].rule == r })
}

// rehearse is what Decide does with the charges in s, without taking anything.
func (e *Engine) rehearse(ctx context.Context, s *scratch, d *Decision) {
	if s.refuseBlocked(d) {
		return
	}
	if len(s.charges) == 0 {
		d.Allowed = true
		return
	}
	mode := s.mode
	s.mode = Peek
	s.conclude(d, s.take(ctx, e))
	s.mode = mode
}

// uncost makes the charges ones that take nothing, and keeps what they cost.
func (s *scratch) uncost() {
	s.costs = s.costs[:0]
	for i := range s.charges {
		s.costs = append(s.costs, s.charges[i].Cost)
	}
	asks := -1
	for i := range s.charges {
		if c := &s.charges[i]; c.Plan.Kernel.Log() && c.Cost > 1 {
			asks = i
		} else {
			c.Cost = 0
		}
	}
	if asks >= 0 {
		s.charges = append(s.charges, unfitting(&s.charges[asks]))
	}
}

// recost makes them what they were.
func (s *scratch) recost() {
	s.charges, s.receipts = s.charges[:len(s.costs)], s.receipts[:len(s.costs)]
	for i, cost := range s.costs {
		s.charges[i].Cost = cost
	}
}

// foretell makes receipts of peeks those of their costs: what remains says whether a cost would
// fit. Where on_error allows, any does. Where it denies, the others are only looked at.
func (s *scratch) foretell() {
	for i := range s.charges {
		if s.closed(i) && !s.charges[i].Shadow {
			return
		}
	}
	for i := range s.charges[:s.firstLock] {
		if r := &s.receipts[i]; r.Origin != sluice.ByOnError {
			c := &s.charges[i]
			r.Fits = s.turns.Offer(c, c.Cost, r) || c.Cost <= c.Plan.Decide(0, *r).Remaining
		}
	}
	s.foretellLocks()
}

// then says what the response changes of what the rule charges, or "".
func (r *rule) then() string {
	var all []string
	if c := r.counts; c != nil {
		all = append(all, "given back "+c.unlessText())
	}
	switch {
	case r.cost.told != "":
		all = append(all, fmt.Sprintf("costs what %s says, at most %d", r.cost.told, r.cost.max))
	case r.cost.bytes > 0:
		text := fmt.Sprintf("costs 1 for each %d bytes of the body", r.cost.bytes)
		if r.cost.max > 0 {
			text += fmt.Sprintf(", at most %d", r.cost.max)
		}
		all = append(all, text)
	}
	return strings.Join(all, ", else ")
}

// unlessText says which requests do not count.
func (c *counting) unlessText() string {
	var when []string
	if len(c.status) > 0 {
		texts := make([]string, len(c.status))
		for i, s := range c.status {
			texts[i] = s.String()
		}
		when = append(when, "unless the status is "+strings.Join(texts, " or "))
	}
	if c.unless != "" {
		when = append(when, fmt.Sprintf("if %s says yes", c.unless))
	}
	return strings.Join(when, ", or ")
}
