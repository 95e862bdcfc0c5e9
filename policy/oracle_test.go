package policy

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"math/big"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/plantest"
	"github.com/sluicehq/sluice/storetest"
)

// oracle decides by the documentation of a [Document], one rule after the other, and counts in rational numbers. It
// shares only types with the code that it checks.
type oracle struct {
	t      testing.TB
	doc    *Document
	counts storetest.Model
	plans  map[string]*sluice.Plan
	blocks map[string]time.Time // by key
	passed map[string]time.Time // when a request with an ID was allowed, by [questionOf]
	left   map[string][]*wait   // turns that were given up, by queue
	turns  map[string][]*wait   // turns for which a request with an ID waits, by [questionOf]
}

// query is a request as the oracle reads it.
type query struct {
	method, path string
	client       netip.Addr
	headers      map[string]string
	attributes   map[string]string
	name         string // in the body
	cost         int64
	at           time.Time // time at which overrides and blocks are compared
	mode         Mode
	id           string
}

// oracleCharge is the charge of one limit of a rule for a request.
type oracleCharge struct {
	rule    *Rule
	charge  sluice.Charge
	values  []string // of the key
	result  Result
	blocked time.Time     // end of the block
	wait    time.Duration // until the block ends
}

// wait is the time of one or several turns in a queue, in ticks.
type wait struct {
	queue    string
	from, to *big.Rat
}

// owed is a charge that waits for the outcome of its request.
type owed struct {
	oracleCharge
	until   time.Time // when its units are no longer counted
	settled bool
}

// patternMeans has a function for each pattern of [randomDocument], which reports whether it matches.
var patternMeans = map[string]func(q *query) bool{
	"/a":         func(q *query) bool { return q.path == "/a" },
	"POST /a":    func(q *query) bool { return q.method == "POST" && q.path == "/a" },
	"/b/{id}":    func(q *query) bool { return strings.HasPrefix(q.path, "/b/") },
	"/{rest...}": func(*query) bool { return true },
}

func (o *oracle) within(entries []string, a netip.Addr) bool {
	for _, e := range entries {
		if list, named := o.doc.Lists[e]; named {
			if o.within(list.Networks, a) {
				return true
			}
		} else if p, err := netip.ParsePrefix(e); err == nil && p.Contains(a) || e == a.String() {
			return true
		}
	}
	return false
}

func met(conditions, values map[string]string) bool {
	for name, want := range conditions {
		if got := values[name]; got == "" || want != "*" && got != want {
			return false
		}
	}
	return true
}

func (o *oracle) applies(r *Rule, q *query) bool {
	return (len(r.Match) == 0 || slices.ContainsFunc(r.Match, func(m string) bool { return patternMeans[m](q) })) &&
		(len(r.Clients) == 0 || o.within(r.Clients, q.client)) && !o.within(r.NotClients, q.client) &&
		met(r.Headers, q.headers) && met(r.Attributes, q.attributes)
}

// value returns the value of a key part, and whether the request has it.
func (q *query) value(part string) (string, bool) {
	kind, name, _ := strings.Cut(part, ":")
	v := ""
	switch kind {
	case "client_ip":
		v = q.client.String()
		if q.client.Is6() {
			p, _ := q.client.Prefix(64)
			v = p.Addr().String()
		}
	case "header":
		v = q.headers[name]
	case "attr":
		v = q.attributes[name]
	case "body":
		v = q.name
	case "method":
		v = q.method
	case "const":
		v = name
	}
	return v, v != ""
}

func readsBody(r *Rule) bool { return slices.Contains(r.Key, "body:name") }

// costOf returns the units that a request is charged before its outcome.
func costOf(r *Rule, q *query) int64 {
	one := cmp.Or(r.Cost.Estimate.Units, r.Cost.Default, 1)
	if n, err := strconv.ParseInt(q.headers[r.Cost.Header], 10, 64); r.Cost.Header != "" && err == nil {
		one = min(max(n, 1), r.Cost.Max)
	}
	return one * max(1, q.cost)
}

// limits returns the limits of the subject, and their source.
func (o *oracle) limits(r *Rule, q *query) ([]string, string) {
	best, rank := []string(nil), ""
	for _, v := range o.doc.Overrides {
		until, err := time.Parse(time.RFC3339, v.Until)
		if v.Rule != r.Name || err == nil && !until.After(q.at) {
			continue
		}
		fits, named, network := true, "", "999"
		for _, part := range r.Key {
			want, exact := v.Key[part]
			if exact = exact && want != "*"; !exact {
				named += "0"
				continue
			}
			named += "1"
			if net, err := netip.ParsePrefix(want); part == "client_ip" && err == nil {
				network = fmt.Sprintf("%03d", net.Bits())
				fits = fits && net.Contains(q.client)
			} else if got, _ := q.value(part); got != want {
				fits = false
			}
		}
		// An override with more parts comes first, then one with earlier parts, then one with a smaller network.
		if this := fmt.Sprint(strings.Count(named, "1"), named, network); fits && this > rank {
			if best, rank = v.Limits, this; v.Limit != "" {
				best = []string{v.Limit}
			}
		}
	}
	if rank != "" {
		return best, "override"
	}
	if tier := cmp.Or(q.headers["X-Plan"], o.doc.Tiers.Default); o.doc.Tiers.From != "" && r.Tiers[tier] != nil {
		return r.Tiers[tier], "tier:" + tier
	}
	if r.Limit != "" {
		return []string{r.Limit}, "rule"
	}
	return r.Limits, "rule"
}

// plan returns the plan of a limit of a rule. Its states have room for the largest limit of the rule and its tiers that
// uses the same state, or for the limit itself, and for debts.
func (o *oracle) plan(r *Rule, text string) *sluice.Plan {
	id := r.Name + " " + text
	if o.plans[id] != nil {
		return o.plans[id]
	}
	p := o.plainPlan(r, text)
	own := slices.Concat([]string{r.Limit}, r.Limits)
	for _, limits := range r.Tiers {
		own = append(own, limits...)
	}
	most, largest := p.Capacity, r.Cost.Max
	for _, other := range own {
		if other == "" {
			continue
		}
		q := o.plainPlan(r, other)
		if r.Cost.ResponseBytes > 0 {
			largest = max(largest, q.Capacity)
		}
		if q.Fingerprint == p.Fingerprint {
			most = max(most, q.Capacity)
		}
	}
	if r.Cost.ResponseHeader != "" || r.Cost.ResponseBytes > 0 {
		most += 64 * largest
	}
	kept, err := p.WithMost(most)
	for ; err != nil && most > p.Capacity; kept, err = p.WithMost(most) { // reduces the debt until it can be counted
		most--
	}
	o.plans[id] = must(kept, err)
	p = o.plans[id]
	return p
}

func (o *oracle) plainPlan(r *Rule, text string) *sluice.Plan {
	known := o.plans[r.Algorithm+text]
	if known != nil {
		return known
	}
	l := must(sluice.ParseLimit(text))
	if r.Algorithm != "" {
		l.Algorithm = must(sluice.ParseAlgorithm(r.Algorithm))
	}
	known = plantest.Of(o.t, l)
	o.plans[r.Algorithm+text] = known
	return known
}

// share returns the rollout percentage of a rule.
func (o *oracle) share(r *Rule) float64 {
	if r.Enforce == "" {
		return 100
	}
	share := must(strconv.ParseFloat(strings.TrimSuffix(r.Enforce, "%"), 64))
	return share
}

// isIn reports whether a rule is enforced for a subject: whether the hash of its key, as a fraction of 2^256, is below
// the rollout percentage.
func (o *oracle) isIn(r *Rule, values []string) bool {
	key := r.Name
	for _, v := range values {
		key += "/" + cmp.Or(v, "!") // no value needs escaping
	}
	sum := sha256.Sum256([]byte(key))
	at, _ := new(big.Float).Quo(new(big.Float).SetInt(new(big.Int).SetBytes(sum[:])), big.NewFloat(0x1p256)).Float64()
	return at < o.share(r)/100
}

// charges returns the charges of a rule. It returns none if the rule does not apply, and the missing key part if the
// request is malformed.
func (o *oracle) charges(r *Rule, q *query) (all []oracleCharge, lacks string) {
	key, values := r.Name, []string(nil)
	for _, part := range r.Key {
		v, found := q.value(part)
		values = append(values, v)
		switch {
		case found:
			key += "|" + strconv.Quote(v)
		case r.Missing == "skip", r.Missing == "refuse" && (r.Shadow || o.share(r) < 100):
			return nil, ""
		case r.Missing == "refuse":
			return nil, part
		default:
			key += "|missing"
		}
	}
	shadow := r.Shadow || !o.isIn(r, values)
	texts, from := o.limits(r, q)
	count := make(map[string]int)
	for _, text := range texts {
		c := oracleCharge{rule: r, values: values, charge: sluice.Charge{Key: key, Plan: o.plan(r, text), Cost: costOf(r, q), Shadow: shadow}}
		c.result = Result{Rule: r.Name, From: from, Cost: c.charge.Cost, Shadow: shadow}
		if len(texts) > 1 {
			c.result.Name = r.Name + "-" + periodNames[text]
			if count[c.result.Name]++; count[c.result.Name] > 1 {
				c.result.Name += fmt.Sprint("-", count[c.result.Name])
			}
		}
		if !shadow && o.blocks[key].After(q.at) {
			c.blocked, c.wait = o.blocks[key], o.blocks[key].Sub(q.at)
		}
		all = append(all, c)
	}
	return all, ""
}

// decide returns the decision, the charges that wait for the outcome, and all charges.
func (o *oracle) decide(q *query) (d Decision, pending []*owed, all []oracleCharge) {
	var limits []*Rule
	var barring []Result
	for i := range o.doc.Rules {
		r := &o.doc.Rules[i]
		switch {
		case !o.applies(r, q):
		case r.Exempt:
			return Decision{Allowed: true, Exempt: true}, nil, nil
		case r.Block:
			barring = append(barring, Result{Rule: r.Name, From: "block", Shadow: r.Shadow, Decision: sluice.Decision{RetryAfter: sluice.Never}})
			if !r.Shadow && d.Blocked == "" {
				d.Blocked, d.RetryAfter = r.Name, sluice.Never
			}
		default:
			limits = append(limits, r)
		}
	}
	if d.Blocked == "" {
		d, pending, all = o.limit(limits, q)
	}
	if d.Blocked == "" {
		d.Results = append(d.Results, barring...)
	} else { // results of blocked subjects come last
		d.Results = append(barring, d.Results...)
	}
	return d, pending, all
}

// limit decides by the rules with limits that apply.
func (o *oracle) limit(rules []*Rule, q *query) (d Decision, pending []*owed, all []oracleCharge) {
	lacks := ""
	var bodiless, first []oracleCharge
	unread := slices.ContainsFunc(rules, readsBody) && q.id == "" && q.mode != GiveBack
	for _, r := range rules {
		these, missing := o.charges(r, q)
		lacks = cmp.Or(lacks, missing)
		all = append(all, these...)
		if readsBody(r) {
			continue
		}
		bodiless = append(bodiless, these...)
		if !r.Shadow && costOf(r, q) == 1 {
			first = append(first, these...)
			unread = unread && missing == ""
		}
	}
	// Rules that need no body are evaluated before a body is read.
	if unread && q.method == "POST" && len(first) > 0 {
		if d := o.ask(first, false); !d.Allowed {
			return d, nil, first
		}
	}
	if q.mode == GiveBack {
		return o.giveBack(q, lacks, all)
	}
	if lacks != "" {
		if d := o.once(q, bodiless); !d.Allowed {
			return d, nil, bodiless
		}
		return Decision{Missing: lacks}, nil, bodiless
	}
	if d = o.once(q, all); d.Repeated || q.mode == Peek {
		return d, nil, all
	}
	for i, c := range all {
		r := c.rule
		tells := r.Cost.ResponseHeader != "" || r.Cost.ResponseBytes > 0
		if d.Allowed && d.Results[i].Allowed && (tells || !r.Count.isZero()) {
			pending = append(pending, &owed{oracleCharge: c, until: forgotten(&c, &d.Results[i])})
		}
	}
	return d, pending, all
}

// forgotten returns the time from which a unit that was just taken is no longer counted: the end of the window or, for
// other algorithms, the time at which nothing is used.
func forgotten(c *oracleCharge, r *Result) time.Time {
	now, l := time.Now(), c.charge.Plan.Limit
	switch {
	case l.MonthDay > 0:
		return nextMonth(now, l.MonthDay)
	case l.Algorithm == sluice.FixedWindow || l.Algorithm == sluice.SlidingWindowCounter:
		return time.UnixMicro((now.UnixMicro()/l.Period.Microseconds() + 1) * l.Period.Microseconds())
	}
	return now.Add(r.ResetAfter)
}

// nextMonth returns the next midnight in UTC of a day of a month.
func nextMonth(now time.Time, day int) time.Time {
	for t := now.UTC().Truncate(24 * time.Hour); ; {
		t = t.AddDate(0, 0, 1)
		last := time.Date(t.Year(), t.Month()+1, 0, 0, 0, 0, 0, time.UTC).Day()
		if t.Day() == min(day, last) {
			return t
		}
	}
}

// once takes the charges, unless the request has an ID and was allowed before.
func (o *oracle) once(q *query, all []oracleCharge) Decision {
	question := questionOf(q.id, all)
	if len(all) > 0 && o.has(q, question) && blockedBy(all).Blocked == "" {
		return o.repeat(q, question, all)
	}
	d := o.ask(all, q.mode == Charge)
	if d.Allowed && q.mode != Peek {
		o.passed[question] = time.Now()
		if delete(o.turns, question); d.Delay > 0 {
			o.turns[question] = waits(all, &d)
		}
	}
	return d
}

// repeat decides about a request that was allowed before. The request waits for the turns that it had, and takes other
// turns in place of those that have passed. A peek takes no turn, and fits if other turns are free.
func (o *oracle) repeat(q *query, question string, all []oracleCharge) Decision {
	var again []oracleCharge
	for _, c := range all {
		waits := slices.ContainsFunc(o.turns[question], func(w *wait) bool {
			return w.queue == queueOf(c.charge) && w.from.Cmp(ticksNow(c.charge)) >= 0
		})
		if c.rule.Algorithm == "leaky_bucket" && !waits {
			again = append(again, c)
		}
	}
	return Decision{Allowed: o.ask(again, q.mode == Charge).Allowed, Repeated: true}
}

func queueOf(c sluice.Charge) string { return fmt.Sprint(c.Key, c.Plan.Fingerprint) }

func ticksNow(c sluice.Charge) *big.Rat { return big.NewRat(time.Now().UnixMicro()/c.Plan.Tick, 1) }

// lasts returns the ticks in which units drain.
func lasts(c sluice.Charge, units int64) *big.Rat {
	return big.NewRat(units*c.Plan.Limit.Period.Microseconds()/c.Plan.Tick, c.Plan.Limit.Count)
}

// waits returns the turns for which a decision lets its request wait.
func waits(all []oracleCharge, d *Decision) (turns []*wait) {
	for i, c := range all {
		r := &d.Results[i]
		if !time.Now().Before(time.UnixMicro(d.Now).Add(r.Delay)) {
			continue
		}
		w := &wait{queue: queueOf(c.charge), from: big.NewRat((d.Now+r.Delay.Microseconds())/c.charge.Plan.Tick, 1)}
		w.from.Sub(w.from, big.NewRat(r.Early, c.charge.Plan.Drain))
		w.to = new(big.Rat).Add(w.from, lasts(c.charge, c.charge.Cost))
		turns = append(turns, w)
	}
	return turns
}

// vacant returns the first turn that was given up, if its wait is not longer than the limit allows.
func (o *oracle) vacant(c sluice.Charge) *wait {
	now := ticksNow(c)
	var first *wait
	for _, w := range o.left[queueOf(c)] {
		if w.from.Cmp(now) < 0 {
			w.from = now
		}
		end := new(big.Rat).Add(w.from, lasts(c, c.Cost))
		if w.to.Cmp(end) >= 0 && (first == nil || w.from.Cmp(first.from) < 0) {
			first = w
		}
	}
	if first == nil || new(big.Rat).Sub(new(big.Rat).Add(first.from, lasts(c, c.Cost)), now).Cmp(lasts(c, c.Plan.Limit.Burst)) > 0 {
		return nil
	}
	return first
}

// setDelay sets the delay of a decision until the turn.
func (w *wait) setDelay(d *sluice.Decision, c sluice.Charge) {
	ticks := new(big.Int).Div(w.from.Num(), w.from.Denom())
	if !w.from.IsInt() {
		ticks.Add(ticks, big.NewInt(1))
	}
	d.Delay = time.Duration(ticks.Int64()*c.Plan.Tick-d.Now) * time.Microsecond
	early := new(big.Rat).Sub(new(big.Rat).SetInt(ticks), w.from)
	d.Early = early.Mul(early, big.NewRat(c.Plan.Drain, 1)).Num().Int64()
}

// vacate adds a turn that was given up, and joins it with adjacent turns.
func (o *oracle) vacate(turn *wait) {
	rest := o.left[turn.queue][:0]
	for _, w := range o.left[turn.queue] {
		switch {
		case w.to.Cmp(turn.from) == 0:
			turn.from = w.from
		case w.from.Cmp(turn.to) == 0:
			turn.to = w.to
		default:
			rest = append(rest, w)
		}
	}
	o.left[turn.queue] = append(rest, turn)
}

// questionOf returns a text that identifies a request with an ID: the ID and the charges.
func questionOf(id string, all []oracleCharge) string {
	for _, c := range all {
		id += fmt.Sprintf(" %s by %d costs %d", c.charge.Key, c.charge.Plan.Fingerprint, c.charge.Cost)
	}
	return id
}

func (o *oracle) has(q *query, question string) bool {
	at, known := o.passed[question]
	return q.id != "" && known && time.Since(at) < time.Minute
}

// giveBack gives back the cost of the request, even if a subject is blocked now.
func (o *oracle) giveBack(q *query, lacks string, all []oracleCharge) (Decision, []*owed, []oracleCharge) {
	if lacks != "" {
		return Decision{Missing: lacks}, nil, nil
	}
	question := questionOf(q.id, all)
	back := "back " + question
	d := Decision{Allowed: true, Repeated: len(all) > 0 && o.has(q, back)}
	if !d.Repeated {
		for _, c := range all {
			if c.rule.Algorithm != "leaky_bucket" { // turns are not given back
				o.add(c, -c.charge.Cost)
			}
		}
		delete(o.passed, question)
		o.passed[back] = time.Now()
	}
	return d, nil, all
}

// ask takes the charges, or only checks whether each of them fits.
func (o *oracle) ask(all []oracleCharge, take bool) (d Decision) {
	d.Allowed = true
	if len(all) == 0 {
		return d
	}
	if d := blockedBy(all); d.Blocked != "" {
		return d
	}
	if !take && !slices.ContainsFunc(all, func(c oracleCharge) bool {
		return !c.charge.Shadow && o.peek(c).Remaining < c.charge.Cost && (c.rule.Algorithm != "leaky_bucket" || o.vacant(c.charge) == nil)
	}) {
		return d
	}
	charges, receipts := make([]sluice.Charge, len(all)), make([]sluice.Receipt, len(all))
	turns := make([]*wait, len(all))
	for i := range all {
		charges[i] = all[i].charge
		if all[i].rule.Algorithm == "leaky_bucket" {
			if turns[i] = o.vacant(charges[i]); turns[i] != nil {
				charges[i].Cost = 0
			}
		}
	}
	ok(o.t, o.counts.Take(context.Background(), charges, receipts))
	d.Now = time.Now().UnixMicro()
	d.Allowed = sluice.Admitted(charges, receipts)
	for i := range all {
		r := all[i].result
		r.Decision = o.counts.Decide(charges[i], receipts[i])
		if turns[i] != nil {
			turns[i].setDelay(&r.Decision, all[i].charge)
		}
		if !d.Allowed {
			r.Delay, r.Early = 0, 0
		} else if turns[i] != nil {
			turns[i].from = new(big.Rat).Add(turns[i].from, lasts(all[i].charge, all[i].charge.Cost))
		}
		if d.Results = append(d.Results, r); !r.Shadow {
			d.Delay = max(d.Delay, r.Delay)
			if !r.Allowed {
				d.RetryAfter = max(d.RetryAfter, r.RetryAfter)
			}
		}
	}
	return d
}

// blockedBy returns the denial of a request with a blocked subject. It has one result for each rule with a blocked
// subject, and no other results.
func blockedBy(all []oracleCharge) (d Decision) {
	var last *Rule
	for _, c := range all {
		if c.blocked.IsZero() || c.rule == last {
			continue
		}
		last = c.rule
		d.Blocked, d.RetryAfter = cmp.Or(d.Blocked, c.rule.Name), max(d.RetryAfter, c.wait)
		d.Results = append(d.Results, Result{Rule: c.rule.Name, From: "block", Decision: sluice.Decision{RetryAfter: c.wait}})
	}
	return d
}

// peek returns the state of a count.
func (o *oracle) peek(c oracleCharge) sluice.Decision {
	c.charge.Cost = 0
	return o.add(c, 0)
}

// add changes a single count by so many units.
func (o *oracle) add(c oracleCharge, units int64) sluice.Decision {
	c.charge.Cost, c.charge.Shadow = units, false
	var receipt [1]sluice.Receipt
	ok(o.t, o.counts.Take(context.Background(), []sluice.Charge{c.charge}, receipt[:]))
	return o.counts.Decide(c.charge, receipt[0])
}

// settle gives back the units that do not count, or takes the units that are owed.
func (o *oracle) settle(pending []*owed, out *Outcome) {
	for _, p := range pending {
		cost, known := p.final(out)
		if p.settled || !known {
			continue
		}
		p.settled = true
		switch more := cost - p.charge.Cost; {
		case more > 0:
			c := p.oracleCharge
			c.charge.Owe = true
			o.add(c, more)
		case more < 0 && time.Now().Before(p.until):
			o.add(p.oracleCharge, more)
		}
	}
}

// final returns the cost of the request by its outcome, and whether it is known.
func (p *owed) final(out *Outcome) (int64, bool) {
	if !p.rule.Count.isZero() && !counts(&p.rule.Count, out) {
		return 0, true
	}
	c := &p.rule.Cost
	most := max(c.Max, p.charge.Cost) // the charge in advance may be more than the rule's max
	switch {
	case c.ResponseHeader == "" && c.ResponseBytes == 0:
		return p.charge.Cost, true
	case out.Cost > 0 && c.Max > 0:
		return min(out.Cost, most), true
	case out.Cost != 0:
		return max(0, out.Cost), true
	case c.ResponseHeader != "":
		if n, err := strconv.ParseInt(out.Header.Get(c.ResponseHeader), 10, 64); err == nil && n >= 0 {
			return min(n, most), true
		}
		return p.charge.Cost, out.Bytes >= 0
	case out.Status == 101, out.Status == 0 && out.Bytes == 0:
		return p.charge.Cost, true
	}
	return (out.Bytes + c.ResponseBytes - 1) / c.ResponseBytes, out.Bytes >= 0
}

func counts(c *Count, out *Outcome) bool {
	switch {
	case out.Verdict != ByResponse:
		return out.Verdict == Counts
	case out.Status == 0:
		return true
	case c.UnlessHeader != "" && out.Header.Get(c.UnlessHeader) == "1":
		return false
	}
	return len(c.Status) == 0 || slices.ContainsFunc(c.Status, func(s Status) bool {
		text := strconv.Itoa(out.Status)
		return string(s) == text || string(s) == text[:1]+"xx"
	})
}

// leave gives up the turns of a request, as if its client left the queues.
func (o *oracle) leave(h *held) {
	d, all, pending := &h.decision, h.charges, h.pending
	o.settle(pending, &Outcome{Verdict: CountsNot, Cost: -1})
	for _, w := range waits(all, d) {
		o.vacate(w)
	}
	delete(o.passed, questionOf(h.id, all))
}
