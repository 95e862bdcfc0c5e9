package policy

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/adaptive"
	"github.com/sluicehq/sluice/internal/spelling"
	"github.com/sluicehq/sluice/policy/internal/parts"
	"github.com/sluicehq/sluice/policy/internal/pattern"
	"github.com/sluicehq/sluice/policy/internal/tighter"
	"github.com/sluicehq/sluice/policy/internal/words"
)

// suspicions returns warnings about valid settings that are probably mistakes.
func (p *Policy) suspicions(where func(string) (string, int)) []Problem {
	w := &warner{where: where, policy: p}
	if len(p.rules) == 0 {
		w.add(nil, "", "add one", "the policy has no rules, so nothing is limited")
	}
	w.tiers()
	w.trust()
	w.lists()
	w.prices()
	w.answers()
	everything := w.exemptEverywhere()
	floor := slices.ContainsFunc(p.rules, isFloor)
	closed := p.closed()
	for i := range p.rules {
		r := &p.rules[i]
		switch {
		case r.exempt:
			w.exempt(r)
		case r.block:
			w.block(r)
		case r.classifies:
			w.class(r)
			w.unreachable(r, everything)
		case r.adaptive != nil:
			w.class(r)
			w.manyLoads(r)
			w.unreachable(r, everything)
		default:
			w.class(r)
			w.sensitive(r, closed)
			w.queue(r)
			w.idle(r)
			w.hasty(r)
			w.sharing(r)
			w.debt(r)
			w.reservations(r)
			w.forgeable(r, floor)
			w.preflights(r)
			w.unreachable(r, everything)
			w.hostless(r)
		}
	}
	sortProblems(w.found)
	return w.found
}

type warner struct {
	where  func(string) (string, int)
	policy *Policy
	found  []Problem
}

// add adds a warning about a rule, or about a field of the document for a nil rule.
func (w *warner) add(r *rule, path, hint, format string, args ...any) {
	p := Problem{Path: path, Message: fmt.Sprintf(format, args...), Hint: hint}
	if r != nil {
		p.Path, p.Rule = fmt.Sprintf("rules[%d]", r.index), r.name
	}
	w.found = append(w.found, p.at(w.where))
}

// manyLoads warns of an automatic limit with a key that clients choose, because each value gets a limit of its own.
func (w *warner) manyLoads(r *rule) {
	for i := range r.key {
		if p := &r.key[i]; p.IsFree() || p.IsChosen() && len(r.hosts) == 0 {
			w.add(r, "", "use the key host, and list the names of --upstream under hosts", "clients can invent values of %s and get a limit for each, so the upstream is not protected", p)
			return
		}
	}
}

// class warns of a class that has no effect, and of a class that clients can give themselves.
func (w *warner) class(r *rule) {
	if r.class != 0 && !w.policy.adapts {
		w.add(r, "", "add a rule with \"in_flight: auto\", or remove the class", "the class has no effect, because no rule has \"in_flight: auto\"")
	}
	if r.class == adaptive.Critical && len(r.headers) > 0 && len(r.match)+len(r.hosts)+len(r.attributes)+len(r.clients) == 0 {
		w.add(r, "", "list critical paths under match, or have a proxy in front of Sluice set or remove the header",
			"clients that can send the header %s become critical, and are served when others are denied", r.headers[0].name)
	}
}

func (w *warner) tiers() {
	if from := w.policy.tierFrom; from != nil && from.IsFree() {
		hint := "have a proxy in front of Sluice set or remove it"
		if from.IsClaim() {
			hint = "have a proxy in front of Sluice verify the token"
		}
		w.add(nil, "tiers.from", hint, "clients that can send %s choose their own tier", from)
	}
	if subject := w.policy.tierSubject; subject != nil {
		switch {
		case subject.IsClaim():
			w.add(nil, "tiers.subject", "have a proxy in front of Sluice verify the token", "clients that can send another client's %s get its tier", subject)
		case subject.Folds():
			w.add(nil, "tiers.subject", "use a secret, such as api_key", "clients that can send another client's %s get its tier", subject)
		}
	}
}

func (w *warner) trust() {
	for _, p := range w.policy.trusted {
		if p.Bits() == 0 {
			w.add(nil, "trusted_proxies", "list only the proxies in front of Sluice",
				"trusted_proxies has %v: clients can choose their own address with X-Forwarded-For", p)
		}
	}
}

// exemptEverywhere returns the patterns that exempt all of their requests, and the rules with these patterns.
func (w *warner) exemptEverywhere() map[string]*rule {
	all := make(map[string]*rule)
	for i := range w.policy.rules {
		r := &w.policy.rules[i]
		if !r.exempt || r.asks || len(r.bodies) > 0 {
			continue
		}
		for _, p := range r.match {
			all[p.Text] = r
		}
	}
	return all
}

func (w *warner) exempt(r *rule) {
	switch {
	case len(r.clients) > 0: // only these clients are exempt
	case r.everyRequest():
		w.add(r, "", "list exempt paths under match", "the rule exempts every request, so nothing is limited")
	case len(r.headers) > 0:
		w.add(r, "", "have a proxy in front of Sluice set or remove it",
			"clients that can send the header %s are exempt", r.headers[0].name)
	case len(r.attributes) > 0: // the program vouches for attributes
	case r.anyHost() != "":
		w.add(r, "", "have a proxy in front of Sluice check the host",
			"clients that send Host: %s are exempt", r.anyHost())
	}
}

// anyHost returns a host that the rule requires, or "".
func (r *rule) anyHost() string {
	if len(r.hosts) > 0 {
		return r.hosts[0]
	}
	for _, p := range r.match {
		if p.Host == "" {
			return ""
		}
	}
	if len(r.match) > 0 {
		return r.match[0].Host
	}
	return ""
}

// preflights warns of a rule because of which no preflight is exempt: see [work.meetsTyped].
func (w *warner) preflights(r *rule) {
	if c := w.policy.cors; c == nil || !c.preflights || !r.countsTyped() || !r.everyPath() {
		return
	}
	w.add(r, "", "name the paths under match, or leave out \"preflights: exempt\"",
		"no preflight is exempt, because the rule counts requests to every path by their query or body")
}

// everyPath reports whether the rule applies on every path of every host.
func (r *rule) everyPath() bool {
	if len(r.match) == 0 {
		return len(r.hosts) == 0
	}
	return slices.ContainsFunc(r.match, (*pattern.Pattern).EveryPath)
}

func (w *warner) unreachable(r *rule, exempt map[string]*rule) {
	var by *rule
	for _, p := range r.match {
		if by = exempt[p.Text]; by == nil {
			return
		}
	}
	if by != nil {
		w.add(r, "", "narrow the match of that rule", "the rule never counts: rule %q exempts all its requests", by.name)
	}
}

// hostless warns of patterns that start with a host and probably should start with a path.
func (w *warner) hostless(r *rule) {
	for _, p := range r.match {
		if p.Host != "" && p.Host != "localhost" && !strings.ContainsAny(p.Host, ".:") {
			w.add(r, "", "start it with \"/\" if it is a path", "the pattern %s matches the host %s", spelling.Quote(p.Text), p.Host)
		}
	}
}

// sensitive warns of rules for logins, passwords and payments that allow all requests during an outage.
func (w *warner) sensitive(r *rule, closed []*rule) {
	if r.onError != sluice.Allow || r.neverRefuses() {
		return
	}
	what, word := named(r.hosts, r.match, words.Closed)
	if word == "" {
		what, word = named(r.hosts, r.match, words.Careful)
	}
	if word == "" || slices.ContainsFunc(closed, func(c *rule) bool { return c.covers(r) }) {
		return
	}
	w.add(r, "", "write \"on_error: deny\" (or local)", "%s is unlimited while the store is unavailable", spelling.Quote(what))
}

// closed returns the rules that deny requests while the store does not answer.
func (p *Policy) closed() (all []*rule) {
	for i := range p.rules {
		if r := &p.rules[i]; r.onError == sluice.Deny && r.charges() && !r.neverRefuses() && !r.isPartial() {
			all = append(all, r)
		}
	}
	return all
}

// covers reports whether the text of both rules shows that r matches every request that o matches.
func (r *rule) covers(o *rule) bool {
	if len(r.headers)+len(r.attributes)+len(r.bodies)+len(r.clients)+len(r.notClients) > 0 || len(r.hosts) > 0 && !slices.Equal(r.hosts, o.hosts) {
		return false
	}
	if len(r.match) == 0 {
		return true
	}
	return len(o.match) > 0 && !slices.ContainsFunc(o.match, func(p *pattern.Pattern) bool {
		return !slices.ContainsFunc(r.match, func(q *pattern.Pattern) bool { return q.Text == p.Text })
	})
}

// idle warns of limits that never deny, because another limit of the same list denies first. It ignores shadows and
// rules that depend on the outcome, in which limits count separately. It also ignores limits that share a count with
// limits of other tiers or overrides.
func (w *warner) idle(r *rule) {
	if r.isLenient() || r.settles() {
		return
	}
	for _, set := range r.sets() {
		of := ""
		if tier, found := strings.CutPrefix(set.from, "tier:"); found {
			of = " of the tier " + tier
		}
		for _, b := range set.limits {
			if a := tighterThan(set.limits, b.plan); a != nil && !w.policy.countsElsewhere(r, set, b.plan) {
				w.add(r, "", "remove it, or lower it", "the limit %v%s never denies, because %v is always tighter", b.plan.Limit, of, a.Limit)
			}
		}
	}
}

// countsElsewhere reports whether a limit of another tier or of an override of the rule shares a count with a plan
// of the set.
func (p *Policy) countsElsewhere(r *rule, set *resolved, plan *sluice.Plan) bool {
	same := func(l limit) bool { return l.plan.Fingerprint == plan.Fingerprint }
	for _, other := range r.sets() {
		if other != set && slices.ContainsFunc(other.limits, same) {
			return true
		}
	}
	overrides := p.overrides.forRule(r)
	return overrides != nil && slices.ContainsFunc(overrides.Values(), func(o *resolved) bool {
		return slices.ContainsFunc(o.limits, same)
	})
}

// tighterThan returns the first limit that certainly denies before b does, or nil.
func tighterThan(limits []limit, b *sluice.Plan) *sluice.Plan {
	for _, a := range limits {
		if a.plan != b && tighter.Than(a.plan, b) {
			return a.plan
		}
	}
	return nil
}

const longQueue = time.Minute

// queue warns of a leaky bucket in which requests wait longer than clients usually do.
func (w *warner) queue(r *rule) {
	for _, plan := range r.plans() {
		l := plan.Limit
		if l.Algorithm != sluice.LeakyBucket {
			continue
		}
		wait := time.Duration(float64(l.Burst) / float64(l.Count) * float64(l.Period))
		if wait > longQueue {
			w.add(r, "", "lower the burst", "a request may wait %v for its turn in the queue of %v", wait.Round(time.Second), l)
			return
		}
	}
}

// fewUnderWay is how many requests of one client are often under way at the same time.
const fewUnderWay = 3

// hasty warns of a penalty that a few simultaneous requests start even if they do not count in the end.
func (w *warner) hasty(r *rule) {
	if r.lock == nil || r.counts == nil {
		return
	}
	for _, plan := range r.plans() {
		if plan.Capacity < fewUnderWay {
			w.add(r, "", "raise the limit or its burst", "under the limit %v, %d simultaneous requests are locked out, even if they do not count in the end", plan.Limit, plan.Capacity+1)
			return
		}
	}
}

// everyRequest reports whether the rule applies to every request.
func (r *rule) everyRequest() bool { return len(r.match) == 0 && !r.asks && len(r.bodies) == 0 }

// isFloor reports whether a rule applies to every request, denies, and counts by a key that a client cannot choose.
func isFloor(r rule) bool {
	return r.charges() && !r.neverRefuses() && !r.isPartial() && r.everyRequest() && !r.key.Any((*parts.Part).IsChosen)
}

func (w *warner) forgeable(r *rule, floor bool) {
	if r.cost.header != "" {
		w.add(r, "", "have a proxy in front of Sluice set or remove it",
			"clients that can send the header %s choose the cost of their requests", r.cost.header)
	}
	key := r.key
	if r.sharing != nil { // the limit applies to all tenants together
		w.forgeableShare(r)
		key = key[:r.sharing.owner]
	}
	if !floor && madeUp(key) {
		w.add(r, "", "add a rule without match whose key is [client_ip]",
			"clients that invent a new %s for each request have no limit", &key[0])
	}
}

// madeUp reports whether a client can choose the whole key.
func madeUp(key parts.List) bool {
	return len(key) > 0 && !key.Any(func(p *parts.Part) bool { return !p.IsFree() })
}

// forgeableShare warns of unverified tenants.
func (w *warner) forgeableShare(r *rule) {
	if by := r.key[r.sharing.owner:]; madeUp(by) {
		w.add(r, "", "have a proxy in front of Sluice set or verify it",
			"clients that invent a new %s for each request get the allocations of many tenants", &by[0])
	}
}

// block warns of a rule that blocks all requests.
func (w *warner) block(r *rule) {
	if !r.neverRefuses() && r.everyRequest() {
		w.add(r, "", "restrict the block with clients or match", "the rule blocks every request")
	}
}

// lists warns of lists that no rule uses.
func (w *warner) lists() {
	for _, name := range w.policy.listsUnused {
		w.add(nil, fmt.Sprintf("lists[%q]", name), "use it in a rule's clients or not_clients, or remove it", "no rule uses the list %s", name)
	}
}
