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
	// Decision is the decision that [Engine.Decide] would make now. Nothing was taken: Remaining, ResetAfter and Delay
	// of its results describe the state before the request. See [Trace.After].
	Decision Decision
	// Client is the address of the client, as the trusted proxies report it.
	Client netip.Addr
	// Tier is the tier of the request, if a rule needs one, and TierFrom its source: "subjects", the part of the
	// request that tiers.from names, or "default".
	Tier, TierFrom string
	// TierSubject is the entry in the list of subjects that sets the tier, if any. Do not change it.
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
	// Why is the reason why the rule applies or does not: the condition that matched, or the one that did not.
	Why string
	// Key is the text under which the store or an automatic limit counts, if the rule charges something.
	Key string
	// Results are the results of the rule's limits, empty if it charges nothing.
	Results []Result
	// After are the Results after the request has been charged; see [Trace.After].
	After []Result
	// Enforced is the rollout percentage of the rule, such as "10 %". Watched reports that this subject is not in
	// that percentage, so the rule does not deny its requests. Without a percentage both are zero.
	Enforced string
	Watched  bool
	// Override is the override that applies to the subject, if there is one. Do not change it.
	Override *Override
	// Share is the subject's present allocation of a shared limit, in words: see [Share].
	Share string
	// Then describes how the response changes the charge.
	Then string
	// Consistency is how the instances that share a store count what the rule charges.
	Consistency sluice.Consistency
	// Load is the automatic limit of the rule, or nil.
	Load *LoadTrace
}

// LoadTrace explains an automatic limit of requests under way.
type LoadTrace struct {
	Load // the result for the request
	// State is the present state of the limit. It is zero if this process has no limit for the key yet.
	State LoadState
}

// Explain returns what [Engine.Decide] would return for a request, and why. It reads the counts in the store
// without changing them, and takes time in proportion to the number of rules. It evaluates all rules, even those
// for which Decide would not read the body because other rules deny the request already.
func (e *Engine) Explain(ctx context.Context, req *Request) (t Trace) {
	w := e.begin(req, &t.Decision)
	w.timed = w.policy.adapts && req.Subject == nil // as if it came from an integration that reports responses
	defer e.end(w)
	defer t.form(w)
	t.Client = w.policy.client(req)
	if w.policy.exemptsPreflight(w) {
		t.exempt(w, nil, "cors exempts preflights")
		return t
	}
	if w.match(); w.matches.exempting != nil {
		t.exempt(w, w.matches.exempting, fmt.Sprintf("rule %q exempts the request", w.matches.exempting.name))
		return t
	}
	if by := w.matches.barred(); by != nil {
		refuseBarred(&t.Decision, by)
		t.Decision.addBlocks(w)
		t.explainBarred(w, by)
		return t
	}
	w.matchBodies()
	missing := t.explainRules(w)
	t.explainTier(w)
	switch {
	case w.matches.ambiguous:
		missing = ambiguousPath
	case w.matches.lack.part != "":
		missing = w.matches.lack.String()
	case missing == "":
		missing = w.unreadable()
	}
	if missing != "" {
		w.resolveMalformed()
	}
	w.charge(missing != "")
	if e.preview(ctx, w, &t.Decision); missing != "" && !t.refuses(w) {
		t.Decision = Decision{Missing: missing}
		t.Decision.addBlocks(w)
		return t
	}
	if t.Decision.Allowed && t.Decision.Err == nil && t.Decision.Blocked == "" {
		var waits logWaits
		waits.addNext(&w.charges)
		waits.ask(ctx, e.store)
	}
	if t.after = t.Decision.after(w); t.after != nil {
		t.after.addBlocks(w)
	}
	t.Decision.addBlocks(w)
	if t.Decision.Blocked == "" { // a blocked request leaves the limits unknown
		t.explainLimits(w)
		if missing == "" {
			t.explainLoads(e, w)
		}
	}
	return t
}

// form sets the form of the answer.
func (t *Trace) form(w *work) {
	t.Decision.form(w)
	if t.after != nil {
		t.after.Form, t.after.CallID = t.Decision.Form, t.Decision.CallID
	}
}

// refuses reports whether the rules that count a malformed request deny it.
func (t *Trace) refuses(w *work) bool {
	return len(w.charges.list)+len(w.subjects.blocked) > 0 && !t.Decision.Allowed && t.Decision.Err == nil
}

// exempt explains a request that is exempt by the rule in by, or by cors if by is nil.
func (t *Trace) exempt(w *work, by *rule, why string) {
	t.Decision = Decision{Allowed: true, Exempt: true}
	t.Rules = make([]RuleTrace, len(w.policy.rules))
	for i := range w.policy.rules {
		r := &w.policy.rules[i]
		t.Rules[i] = RuleTrace{Rule: r.name, Source: r.source, Why: why}
		if r == by {
			t.Rules[i].Applies, t.Rules[i].Why = true, withClient("exempts the request", r.whyClient(&w.input))
		}
	}
}

// explainTier sets the tier of the request, if a rule needs it.
func (t *Trace) explainTier(w *work) {
	if !w.subjects.tier.known {
		return
	}
	t.Tier, t.TierFrom = strings.Clone(w.subjects.tier.name), w.subjects.tier.from
	if e := w.subjects.listedTier(&w.input); e != nil {
		t.TierSubject = &w.policy.subjects.list[e.Item]
	}
}

// explainLimits sets the results of the rules' limits.
func (t *Trace) explainLimits(w *work) {
	i, c := 0, &w.charges
	for n := range t.Rules {
		r := &t.Rules[n]
		if i == len(c.results) || c.results[i].Rule != r.Rule {
			continue
		}
		r.Key = strings.Clone(c.subjects[i].key)
		for _, k := range c.active {
			r.Share += k.explain(c, i)
		}
		first := i
		for i < len(c.results) && c.results[i].Rule == r.Rule {
			i++
		}
		r.Results = t.Decision.Results[first:i:i]
		r.After = r.Results
		if t.Decision.Allowed {
			r.After = t.After().Results[first:i:i]
		}
		r.Then, r.Consistency = w.policy.rules[n].then(), w.policy.rules[n].consistency
	}
}

// explainLoads gives the rules their automatic limits, and denies the request if one of them has no permit for it.
func (t *Trace) explainLoads(e *Engine, w *work) {
	now, class := e.loads.Now(), w.subjects.requestClass()
	overloaded := ""
	for i := range w.subjects.loads {
		l := &w.subjects.loads[i]
		load := &LoadTrace{Load: Load{Rule: l.rule.name, Source: l.rule.source, Key: strings.Clone(l.key), Class: classNames[class], Allowed: true, Shadow: l.shadow}}
		if limiter := e.loads.Known(l.rule.name, l.key); limiter != nil {
			load.Allowed, load.State = limiter.Fits(now, class), loadState(load.Key, limiter.State(now))
		}
		rule := &t.Rules[l.rule.index]
		rule.Load, rule.Key = load, load.Key
		if l.rule.isPartial() {
			rule.Enforced, rule.Watched = shareText(l.rule.rollout), l.shadow
			rule.Why += ", " + l.rule.whyPartial(l.shadow)
		}
		if !load.Allowed && !load.Shadow && overloaded == "" {
			overloaded = l.rule.name
		}
	}
	if overloaded != "" {
		t.Decision = Decision{Overloaded: overloaded, RetryAfter: retryOverloaded(class)}
		t.after = nil
	}
}

// explainRules fills in the rules of t and finds their subjects. It returns what the request lacks if a rule denies
// it for this reason, or "".
func (t *Trace) explainRules(w *work) (missing string) {
	matches := w.matches.rules
	for i := range w.policy.rules {
		r := &w.policy.rules[i]
		trace := RuleTrace{Rule: r.name, Source: r.source}
		switch {
		case r.block:
			trace.explainBlock(w, r)
		case len(matches) > 0 && matches[0].rule == r:
			part, out := trace.explainMatch(w, &matches[0])
			if out == refused && missing == "" {
				missing = w.lackOf(part).String()
			}
			matches = matches[1:]
		default:
			trace.Why = r.whyNot(w)
		}
		t.Rules = append(t.Rules, trace)
	}
	return missing
}

// explainMatch finds the subject of a matching rule, and returns the rule's effect on the request.
func (t *RuleTrace) explainMatch(w *work, m *matched) (*parts.Part, effect) {
	r, s := m.rule, &w.subjects
	s.override = nil
	part, out := s.resolve(&w.input, m)
	t.Applies, t.Override = out == charged || out == barred || out == classified || out == adapted, s.override
	t.Why = withClient(why(m, part, out, w.x.Garbled()), r.whyClient(&w.input))
	if b, v := w.checkBody(r); v == doubtful {
		t.Why += fmt.Sprintf(", the request has no usable %s", &b.part)
	}
	if out == exempted || out == barred {
		t.Why = s.whyUncounted(r, out)
	}
	if (out == charged || out == barred) && r.isPartial() {
		if t.Enforced = shareText(r.rollout); out == barred {
			t.Watched = s.blocked[len(s.blocked)-1].shadow
		} else {
			t.Watched = s.list[len(s.list)-1].shadow
		}
		t.Why += ", " + r.whyPartial(t.Watched)
	}
	return part, out
}

// whyUncounted returns why a rule that applies to the request does not count it: its subject, the last one
// resolved, is exempt or blocked.
func (s *subjects) whyUncounted(r *rule, out effect) string {
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

func why(m *matched, missing *parts.Part, out effect, garbled bool) string {
	state := "lacks"
	if garbled {
		state = "has no usable"
	}
	switch {
	case out == partial:
		return "counts the request that this is a part of"
	case out == classified:
		return why(m, nil, charged, false) + ", class " + classNames[m.rule.class]
	case out == skipped && m.rule.missing == refuse:
		return fmt.Sprintf("skipped: the request %s %s, and would be denied for it%s", state, missing, m.rule.onlyWatched())
	case out == skipped:
		return fmt.Sprintf("skipped: the request %s %s", state, missing)
	case out == refused:
		return fmt.Sprintf("denies: the request %s %s", state, missing)
	case m.pattern != nil:
		return fmt.Sprintf("match %q", m.pattern.Text)
	case len(m.rule.hosts)+len(m.rule.headers) > 0:
		return "hosts and headers match"
	case len(m.rule.attributes) > 0:
		return "attributes match"
	case len(m.rule.bodies) > 0:
		return "the body matches"
	}
	return everyRequest
}

// everyRequest is the reason why a rule without conditions applies.
const everyRequest = "every request"

// withClient adds the rule's conditions on the client, if any, to the reason why it applies.
func withClient(why, client string) string {
	switch {
	case client == "":
		return why
	case why == everyRequest:
		return client
	}
	return why + ", " + client
}

// whyNot returns the condition that the request does not meet.
func (r *rule) whyNot(w *work) string {
	condition := r.unmet(&w.input)
	switch {
	case strings.HasPrefix(condition, attributePrefix):
		return fmt.Sprintf("%s is missing or has another value", condition)
	case condition == "hosts":
		return fmt.Sprintf("host %s is not one of its hosts", spelling.Quote(w.x.Host()))
	case condition == "clients", condition == "not_clients":
		return r.whyNotClient(&w.input, condition)
	case condition != "":
		return fmt.Sprintf("the header %s is missing or has another value", condition)
	}
	return r.whyNotPath(w)
}

// whyNotPath explains which pattern or, if these match, which condition on the body the request does not meet.
func (r *rule) whyNotPath(w *work) string {
	const noPattern = "no pattern matches the method, host and path"
	switch x := &w.policy.index; {
	case len(r.match) == 0:
	case !w.matches.someReading(r, x):
		return noPattern
	case r.exempt && !w.matches.everyReading(r, x):
		return "does not exempt: the path can be read in more than one way, and not every way matches"
	}
	switch b, v := w.checkBody(r); v {
	case fails:
		return b.whyNot()
	case doubtful:
		return fmt.Sprintf("the request has no usable %s", &b.part)
	}
	// Rules with patterns are ignored if the path is unknown, or if it is ambiguous and only shadows would deny the
	// request for that.
	return noPattern
}

// explainBarred explains a request that is blocked by the rule in by.
func (t *Trace) explainBarred(w *work, by *rule) {
	t.Rules = make([]RuleTrace, len(w.policy.rules))
	for i := range w.policy.rules {
		r, trace := &w.policy.rules[i], &t.Rules[i]
		trace.Rule, trace.Source = r.name, r.source
		switch {
		case r.block:
			trace.explainBlock(w, r)
		case r.exempt:
			trace.Why = r.whyNot(w)
		default:
			trace.Why = fmt.Sprintf("rule %q blocks the request", by.name)
		}
	}
}

// explainBlock explains the effect of a rule with "block" on a request that nothing exempts.
func (t *RuleTrace) explainBlock(w *work, r *rule) {
	if !slices.Contains(w.matches.barring, r) {
		t.Why = r.whyNot(w)
		return
	}
	t.Applies, t.Why = true, "blocks the request"
	if r.shadow {
		t.Why = "would block the request" + r.onlyWatched()
	}
	t.Why = withClient(t.Why, r.whyClient(&w.input))
}

// then returns how the response changes the charges of the rule, or "".
func (r *rule) then() string {
	var all []string
	if c := r.counts; c != nil {
		all = append(all, "given back "+c.unlessText())
	}
	switch {
	case r.cost.usage != nil:
		all = append(all, "costs "+r.cost.usage.text())
	case r.cost.responseHeader != "":
		all = append(all, fmt.Sprintf("costs the value of %s, at most %d", r.cost.responseHeader, r.cost.max))
	case r.cost.bytes > 0:
		text := fmt.Sprintf("costs 1 for each %d bytes of the body", r.cost.bytes)
		if r.cost.max > 0 {
			text += fmt.Sprintf(", at most %d", r.cost.max)
		}
		all = append(all, text)
	}
	return strings.Join(all, ", else ")
}

// unlessText describes the requests that do not count.
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
		when = append(when, fmt.Sprintf("if %s is yes", c.unless))
	}
	return strings.Join(when, ", or ")
}
