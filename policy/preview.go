package policy

import (
	"context"
	"slices"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/kernel"
	"github.com/sluicehq/sluice/policy/internal/parts"
)

// preview decides about the charges without taking them.
func (e *Engine) preview(ctx context.Context, w *work, d *Decision) {
	if d.refuseBlocked(w) {
		return
	}
	if len(w.charges.list) == 0 {
		d.Allowed = true
		return
	}
	mode := w.mode
	w.mode = Peek
	d.derive(w, e.take(ctx, w))
	w.mode = mode
}

// makeFree sets the costs of the charges to 0, and keeps the real costs in c.costs. If a log has a cost above 1,
// makeFree keeps that cost, and adds a charge that never fits: see unfittable.
func (c *charges) makeFree() {
	c.costs = c.costs[:0]
	asks := -1
	for i := range c.list {
		o := &c.list[i]
		c.costs = append(c.costs, o.Cost)
		if o.Plan.Kernel.Log() && o.Cost > 1 {
			asks = i
		} else {
			o.Cost = 0
		}
	}
	if asks >= 0 {
		c.list = append(c.list, unfitting(&c.list[asks]))
	}
}

// restoreCosts undoes makeFree.
func (c *charges) restoreCosts() {
	c.list, c.receipts = c.list[:len(c.costs)], c.receipts[:len(c.costs)]
	for i, cost := range c.costs {
		c.list[i].Cost = cost
	}
}

// foresee replaces the receipts of charges that took nothing with the receipts that their real costs would get,
// judging by the remaining units. If on_error denies a charge, the others stay as they are.
func (c *charges) foresee(in *input) {
	for i := range c.list {
		if c.closed(i) && !c.list[i].Shadow {
			return
		}
	}
	for i := range c.results {
		c.wouldFit(i)
	}
	for _, k := range c.active {
		k.preview(in, c)
	}
}

// wouldFit sets Fits of receipt i by the real cost of the charge.
func (c *charges) wouldFit(i int) {
	if o, r := &c.list[i], &c.receipts[i]; r.Origin != sluice.ByOnError {
		r.Fits = c.turns.Offer(o, o.Cost, r) || o.Cost <= o.Plan.Decide(0, *r).Remaining
	}
}

// After returns what [Engine.Decide] would return now for the request: the Decision, with Remaining, ResetAfter and
// Delay of its results after the charge. If the request is denied before its body is read, the decision has only
// the results of the rules that were evaluated before.
func (t *Trace) After() Decision {
	if t.after != nil {
		return *t.after
	}
	return t.Decision
}

// after returns the decision with the state after the costs of the request are taken. For a denied request it returns
// refusedFirst. It returns nil if d is correct as it is.
func (d *Decision) after(w *work) *Decision {
	switch {
	case len(d.Results) == 0 || d.Err != nil || d.Blocked != "":
		return nil
	case !d.Allowed:
		return d.refusedFirst(w)
	}
	c := &w.charges
	after := d.Clone()
	after.Delay = 0
	before := slices.Clone(c.receipts)
	for i := range c.list {
		if r := &c.receipts[i]; r.Origin != sluice.ByOnError && (i >= len(c.results) || r.Fits) {
			c.list[i].Plan.Spend(&r.Receipt, c.list[i].Cost)
		}
	}
	for i := range after.Results {
		r, receipt := &after.Results[i], &c.receipts[i]
		if !receipt.Fits || receipt.Origin == sluice.ByOnError {
			continue // nothing is taken, or the remaining units are unknown
		}
		c.list[i].Plan.DecideInto(c.list[i].Cost, receipt, &r.Decision)
		for _, k := range c.active {
			k.join(c, i, r)
		}
		after.weigh(r)
	}
	c.receipts = before
	return &after
}

// refusedFirst returns the decision by the rules that are evaluated before a body is read for others: see
// [Engine.refusedUnread]. It returns nil unless one of them denies the request.
func (d *Decision) refusedFirst(w *work) *Decision {
	if w.charges.penalties.offence || !w.looksFirst() {
		return nil
	}
	first := d.Clone()
	first.Results, first.RetryAfter = first.Results[:0], 0
	refuses := false
	for i := range d.Results {
		if r := w.charges.subjects[i].rule; r.readsBody || r.neverRefuses() || w.charges.list[i].Cost != 1 {
			continue
		}
		refuses = refuses || !d.Results[i].Allowed
		first.Results = append(first.Results, d.Results[i])
		first.weigh(&d.Results[i])
	}
	if !refuses {
		return nil
	}
	return &first
}

// A receipt contains the remaining units, so it shows whether any cost fits. It also shows when a cost will fit,
// except for a log: the Wait of a log is the wait of the requested cost. So a preview requests the real cost of a
// log together with a charge that never fits, and nothing is taken.

// unfittable is the plan of a charge that never fits. No policy has this plan.
var unfittable = func() *sluice.Plan {
	p, err := sluice.NewPlan(sluice.Limit{Algorithm: sluice.LeakyBucket, Count: 7919, Period: 24 * time.Hour, Burst: 1})
	if err != nil {
		panic(err)
	}
	return p
}()

// unfitting returns a charge that never fits, with a key in the same cluster slot as the charge beside.
func unfitting(beside *sluice.Charge) sluice.Charge {
	return sluice.Charge{Key: beside.Key, Plan: unfittable, Cost: unfittable.Capacity + 1, OnError: beside.OnError}
}

// logWait is a charge of a log with an unknown wait.
type logWait struct {
	c      *charges
	d      *Decision // the decision by c, or nil
	charge int
}

// logWaits are charges with unknown waits, and the calls that ask the store for the waits.
type logWaits struct {
	all   []logWait
	calls []sluice.TakeCall
}

// add adds a call that asks when a cost will fit the log of a charge.
func (w *logWaits) add(l logWait, cost int64) {
	o := l.c.list[l.charge]
	if cost > o.Plan.Capacity {
		return // the cost never fits
	}
	o.Cost, o.Shadow = cost, false
	w.all = append(w.all, l)
	w.calls = append(w.calls, sluice.TakeCall{Charges: []sluice.Charge{o, unfitting(&o)}, Receipts: make([]sluice.Receipt, 2)})
}

// addNext adds calls that ask when logs that the request fills will have room for another unit.
func (w *logWaits) addNext(c *charges) {
	for i := range c.results {
		o, r := &c.list[i], &c.receipts[i]
		if o.Plan.Kernel.Log() && r.Fits && r.Origin != sluice.ByOnError && r.Used > 0 && r.Used+o.Cost >= o.Plan.Capacity {
			w.add(logWait{c: c, charge: i}, o.Cost+1)
		}
	}
}

// addUnknown adds the charges of a decision that do not fit and have receipts with the wait of another cost. asked
// returns the cost that was requested from the store.
func (w *logWaits) addUnknown(c *charges, d *Decision, asked func(charge int) int64) {
	for i := range c.results {
		o, r := &c.list[i], &c.receipts[i]
		if o.Plan.Kernel.Log() && !r.Fits && r.Origin != sluice.ByOnError && max(1, asked(i)) != o.Cost {
			w.add(logWait{c, d, i}, o.Cost)
		}
	}
}

// ask asks the store for the waits. A receipt stays as it is if the store does not answer, or if the cost fits by
// now.
func (w *logWaits) ask(ctx context.Context, store sluice.Store) {
	if len(w.calls) == 0 {
		return
	}
	sluice.TakeEach(ctx, store, w.calls)
	for i, l := range w.all {
		if r := &w.calls[i].Receipts[0]; w.calls[i].Err == nil && !r.Fits && r.Origin != sluice.ByOnError {
			l.c.receipts[l.charge].Wait = r.Wait
		}
	}
}

// decideAgain corrects the decisions by the waits that ask has found.
func (w *logWaits) decideAgain() {
	for _, l := range w.all {
		r, o := &l.d.Results[l.charge], &l.c.list[l.charge]
		o.Plan.DecideInto(o.Cost, &l.c.receipts[l.charge], &r.Decision)
		for _, k := range l.c.active {
			k.join(l.c, l.charge, r)
		}
	}
	for _, l := range w.all {
		l.d.RetryAfter = 0
		for i := range l.d.Results {
			l.d.weigh(&l.d.Results[i])
		}
	}
}

// Quota returns the remaining units of every limit of the sender of a request, and takes nothing. The decision has
// the results that [Engine.Decide] would return now, as in a [Trace]. Without a Path, the decision has only the
// limits of rules without patterns, which apply to all paths.
//
// Quota leaves out rules that do not count the request, and rules that use its query or body, which may name subjects
// other than the sender. A blocked request is denied, and an exempt one has no limits. Observers are not called.
func (e *Engine) Quota(ctx context.Context, req *Request) (d Decision) {
	w := e.begin(req, &d)
	defer e.end(w)
	w.matches.pathless = req.Path == ""
	if w.match(); w.matches.exempting != nil {
		return Decision{Allowed: true, Exempt: true}
	}
	if by := w.matches.barred(); by != nil {
		refuseBarred(&d, by)
		d.addBlocks(w)
		return d
	}
	if w.matches.ambiguous {
		return Decision{Missing: ambiguousPath}
	}
	for i := range w.matches.rules {
		if m := &w.matches.rules[i]; !m.rule.countsTyped() && (m.rule.tiers == nil || !w.policy.tierTyped()) {
			w.subjects.resolve(&w.input, m) // a rule with a missing part does not count the request
		}
	}
	w.charge(false)
	e.preview(ctx, w, &d)
	d.addBlocks(w)
	return d
}

// tierTyped reports whether the tier of a request may depend on its query or body.
func (p *Policy) tierTyped() bool {
	for _, part := range []*parts.Part{p.tierFrom, p.tierSubject} {
		if part != nil && part.Folds() {
			return true
		}
	}
	return false
}

// looksFirst reports whether rules are evaluated before the body is read for others. It reports false for a request
// with an ID, which is allowed if it was allowed before, and for a refund, which is never denied.
func (w *work) looksFirst() bool {
	return w.request.Body != nil && w.request.ID == "" && w.mode <= Peek &&
		slices.ContainsFunc(w.matches.rules, func(m matched) bool { return m.rule.readsBody })
}

// refusedUnread reports whether rules that do not need the body deny the request, so that a client over a limit
// cannot make the engine wait for a body, or work on it. It takes nothing: a request that passes is decided again
// by all rules together.
func (e *Engine) refusedUnread(ctx context.Context, w *work, d *Decision) bool {
	if w.matches.ambiguous || !w.looksFirst() {
		return false
	}
	for i := range w.matches.rules {
		m := &w.matches.rules[i]
		if m.rule.readsBody || m.rule.neverRefuses() || w.cost(m.rule) != 1 {
			continue
		}
		if _, out := w.subjects.resolve(&w.input, m); out == refused {
			w.forget() // all subjects are resolved together later
			return false
		}
	}
	if len(w.subjects.list)+len(w.subjects.blocked) == 0 {
		w.forget()
		return false
	}
	w.charge(false)
	if e.preview(ctx, w, d); !d.Allowed && !w.charges.penalties.offence { // the Take has to record an offence
		return true
	}
	d.reset()
	w.forget()
	return false
}

// needsFreePermit reports whether the request passes only if a permit is free, but takes no permit.
func (w *work) needsFreePermit() bool {
	return w.charges.inFlight() && w.mode == Charge && !w.request.Ends
}

// refusedInFlight reports whether a request that takes no permit is denied because all permits are taken. It decides
// before the Take, so that a denied request uses up nothing of other limits.
func (e *Engine) refusedInFlight(ctx context.Context, w *work, d *Decision) bool {
	e.preview(ctx, w, d)
	if !d.Allowed && !w.charges.penalties.offence { // the Take has to record an offence
		for i := range d.Results {
			if r := &d.Results[i]; r.Plan.Kernel == kernel.InFlight && !r.Allowed && !r.Shadow && r.Origin != sluice.ByOnError {
				return true
			}
		}
	}
	d.reset()
	w.charges.reset()
	w.charge(false) // again, because the preview has noted which tenants are ahead: see allocations.beside
	return false
}
