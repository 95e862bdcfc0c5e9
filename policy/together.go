package policy

import (
	"context"
	"strings"
	"sync/atomic"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/policy/internal/money"
)

// DecideTogether decides about the parts of one request: all of them are charged, or none. Charges of several parts for
// the same count are added up. Each part gets its own decision. If one part is denied, no part is charged, except that
// a malformed part is charged to those rules that can count it. Allowed in the decisions of the other parts then only
// reports whether they would have been allowed without the denied part. Automatic limits do not count the parts. A part
// with Mode [Peek] does not affect the other parts: if it does not fit, only its own decision is a denial. Its decision
// describes the state after the charges of the other parts. The result is true if all parts that do not peek are
// allowed. If all parts peek, it is true if all parts are allowed.
//
// If any part has an ID, all parts together are recognized as a repetition, or none is. Each limit of a key is one
// charge, and so are each penalty and the ID. At most 1024 charges can be taken together: a request that needs more is
// denied, with Missing set.
func (e *Engine) DecideTogether(ctx context.Context, reqs []*Request, ds []Decision) (allowed bool) {
	began := e.began()
	t := together{parts: make([]onePart, len(reqs)), places: make(map[stateID]int), uncut: make(map[int]int64)}
	for i, r := range reqs {
		p := &t.parts[i]
		p.d = &ds[i]
		p.d.reset()
		p.w = e.begin(r, p.d)
		p.w.timed = false
		p.asks = e.prepare(ctx, p.w, p.d)
		e.takeMalformed(ctx, p)
		t.refused = t.refused || p.w.mode != Peek && !p.asks && !p.d.Allowed
	}
	t.decide(ctx, e)
	took := e.took(began)
	for i := range t.parts {
		e.finish(ctx, t.parts[i].w, t.parts[i].d, took)
	}
	return t.allowed()
}

// takeMalformed charges a part that is denied as malformed.
func (e *Engine) takeMalformed(ctx context.Context, p *onePart) {
	if p.asks && p.d.Missing != "" {
		p.d.derive(p.w, e.take(ctx, p.w))
		p.asks = false
	}
}

// maxTogether is the largest number of charges that every store can take at once.
const maxTogether = 1024

// together is the state of a DecideTogether.
type together struct {
	parts    []onePart
	charges  []sluice.Charge // of all parts: limits, then the ID, then penalties
	limits   int             // how many of the charges are for limits
	receipts []sluice.Receipt
	places   map[stateID]int // the index in charges of each state
	uncut    map[int]int64   // by the index of the charge: the sum of reservation.uncut over the parts, in units
	refused  bool            // a part was denied before the store was asked
	differ   bool            // parts have different values for one key
	waits    logWaits
	queued   *queued // the turns for which the whole request waits
	left     []int64 // for each charge, the units that are left for the next part
	first    []int64 // for each charge, the units that were left for the first part
}

// onePart is a part of the request.
type onePart struct {
	w      *work
	d      *Decision
	asks   bool  // it has charges for the store
	at     []int // the index in together.charges of each charge
	limits int   // how many of the charges are not penalties
}

// stateID identifies a state in the store.
type stateID struct {
	key         string
	fingerprint uint64
}

func (t *together) decide(ctx context.Context, e *Engine) {
	t.merge()
	switch {
	case len(t.charges) == 0:
		return
	case len(t.charges) > maxTogether:
		t.malformed("a total of at most 1024 charges")
		return
	case t.differ:
		t.malformed("a single value for each key of a rule with distinct")
		return
	}
	if t.refused {
		for i := range t.charges {
			t.charges[i].Cost = 0
		}
	}
	t.receipts = make([]sluice.Receipt, len(t.charges))
	err := e.turns.Take(ctx, e.store, t.charges, t.receipts)
	repeats := err == nil && t.repeats()
	if repeats {
		allowAgain(t.receipts)
		err = e.again(ctx, t.charges[t.limits].Key, t.charges[:t.limits], t.receipts)
	}
	switch {
	case err != nil:
		t.each(func(p *onePart) { p.d.withoutStore(p.w, err) })
	case repeats:
		t.each(t.repeat)
	case !t.refused && sluice.Admitted(t.charges, t.receipts):
		t.each(t.foresee)
		t.waits.ask(ctx, e.store)
		t.eachCharged(t.admit)
	default:
		t.refuse()
		t.waits.ask(ctx, e.store)
		t.waits.decideAgain()
	}
}

// malformed denies the parts that have charges, because the request lacks something.
func (t *together) malformed(lacks string) {
	t.eachCharged(func(p *onePart) { p.w.malformed(p.d, lacks) })
}

// each copies the receipts to the parts that have charges, and calls do for each of these parts.
func (t *together) each(do func(p *onePart)) {
	for i := range t.parts {
		p := &t.parts[i]
		if !p.asks {
			continue
		}
		p.w.charges.receipts = p.w.charges.receipts[:0]
		for _, at := range p.at {
			p.w.charges.receipts = append(p.w.charges.receipts, t.receipts[at])
		}
		do(p)
	}
}

// eachCharged calls do for each part that has charges.
func (t *together) eachCharged(do func(p *onePart)) {
	for i := range t.parts {
		if p := &t.parts[i]; p.asks {
			do(p)
		}
	}
}

// merge adds up the charges of the parts.
func (t *together) merge() {
	for i := range t.parts {
		if p := &t.parts[i]; p.asks {
			c := &p.w.charges
			c.once.at = 0 // all parts share the charge of the ID
			c.expect(&p.w.input)
			for _, k := range c.active {
				if k != counter(&c.once) && k != counter(&c.permits) { // parts share these charges
					k.beside(&p.w.input, c)
				}
			}
			p.limits = len(c.list) - len(c.penalties.list)
			t.add(p, c.list[:p.limits])
			t.cutEstimates(p)
		}
	}
	t.limits = len(t.charges)
	t.addOnce()
	for i := range t.parts {
		if p := &t.parts[i]; p.asks {
			t.add(p, p.w.charges.list[p.limits:])
		}
	}
}

func (t *together) add(p *onePart, charges []sluice.Charge) {
	for i, c := range charges {
		if p.w.mode == Peek || p.w.mode == GiveBack && isQueue(c.Plan) || takesNoPermit(&c) {
			c.Cost = 0
		}
		id := stateID{c.Key, c.Plan.Fingerprint}
		at, known := t.places[id]
		if !known {
			at = len(t.charges)
			t.places[id] = at
			t.charges = append(t.charges, c)
		} else {
			t.addTo(&t.charges[at], &c, p.w.charges.active)
			charges[i].Permit = c.Permit
		}
		p.at = append(p.at, at)
	}
}

// cutEstimates cuts the sums of estimates to their limits, as single estimates are cut. The part is charged only for
// what it adds to a sum.
func (t *together) cutEstimates(p *onePart) {
	c := &p.w.charges
	for i := range c.results {
		one, s, at := &c.list[i], c.subjects[i], p.at[i]
		if s.rule.cost.usage == nil || p.w.mode != Charge {
			continue
		}
		sum := &t.charges[at]
		t.uncut[at] = addUp(t.uncut[at], money.Units(s.reserved.uncut, sum.Plan))
		if over := min(sum.Cost-sum.Plan.Capacity, one.Cost); over > 0 && t.uncut[at] <= sum.Plan.Capacity {
			sum.Cost -= over
			one.Cost -= over
			c.results[i].Cost -= over
		}
	}
}

// addTo adds a charge to sum, the charge of the same state.
func (t *together) addTo(sum, c *sluice.Charge, counters []counter) {
	for _, k := range counters {
		if k.merge(t, sum, c) {
			return
		}
	}
	sum.Cost = addUp(sum.Cost, c.Cost)
	if c.Plan.Capacity < sum.Plan.Capacity {
		sum.Plan = c.Plan
	}
}

// addOnce adds the charge of the request's IDs, if any, after the charges of limits.
func (t *together) addOnce() {
	asked := []byte{askedOnce}
	for i := range t.parts {
		if id := t.parts[i].w.request.ID; id != "" {
			asked = appendText(asked, id)
		}
	}
	if len(asked) == 1 || t.limits == 0 || t.peeks() {
		return
	}
	// A single request with this charge has an ID, so the empty ID distinguishes the two texts.
	asked = appendAsked(asked, "", t.charges[:t.limits], 1)
	t.charges = append(t.charges, onceCharge(&t.parts[0].w.charges.once.keys, asked, t.charges[0].Key))
}

// repeats reports whether the charge of the ID did not fit, because the request was allowed before.
func (t *together) repeats() bool {
	return t.limits < len(t.charges) && t.charges[t.limits].Plan.Once && !t.receipts[t.limits].Fits &&
		t.receipts[t.limits].Origin != sluice.ByOnError
}

// peeks reports whether all parts peek.
func (t *together) peeks() bool {
	for i := range t.parts {
		if t.parts[i].w.mode != Peek {
			return false
		}
	}
	return true
}

// repeat makes the decision about a part of a request that was allowed before.
func (t *together) repeat(p *onePart) {
	p.w.charges.once.repeated = true
	p.d.decide(p.w)
	t.delay(p)
}

// foresee replaces the receipts of a part that peeks with the receipts that its real costs would get.
func (t *together) foresee(p *onePart) {
	if p.w.mode == Peek {
		p.w.charges.foresee(&p.w.input)
		t.waits.addUnknown(&p.w.charges, p.d, func(int) int64 { return 0 })
	}
}

// admit makes the decision about a part of a request that was charged.
func (t *together) admit(p *onePart) {
	p.d.decide(p.w)
	t.queue(p)
}

// queue makes a part wait for the turns of the whole request. The turns are given up when all parts have left.
func (t *together) queue(p *onePart) {
	if p.d.queued == nil {
		return
	}
	t.delay(p)
	if t.queued == nil {
		t.queued = t.turns(&p.w.charges.once.engine.awaited)
	}
	one := &queued{turns: t.queued.turns, once: t.queued.once, parts: t.queued.parts}
	one.parts.Add(1)
	p.d.queued = one
}

// turns returns the turns of the whole request.
func (t *together) turns(known *awaited) *queued {
	q := &queued{parts: new(atomic.Int32)}
	for i := range t.charges[:t.limits] {
		if turn, waits := t.charges[i].Turn(&t.receipts[i]); waits {
			q.turns = append(q.turns, turn)
		}
	}
	if t.limits < len(t.charges) && t.charges[t.limits].Plan.Once {
		q.once = strings.Clone(t.charges[t.limits].Key)
		known.add(q.once, q)
	}
	return q
}

// delay sets the delay of a part to the delay of all units that the request took from a queue, instead of the delay
// of the part's own units.
func (t *together) delay(p *onePart) {
	if p.d.Delay == 0 || p.w.mode != Charge {
		return
	}
	p.d.Delay = 0
	for i := range p.d.Results {
		r, sum := &p.d.Results[i], t.charges[p.at[i]].Cost
		if r.Delay > 0 && sum > p.w.charges.list[i].Cost {
			r.Delay = r.Plan.Decide(sum, p.w.charges.receipts[i]).Delay
		}
		p.d.weigh(r)
	}
}

// refuse decides about the parts of a request that was not charged. It takes the parts in their order, and decides
// about each by the units that earlier parts would have left.
func (t *together) refuse() {
	t.left = make([]int64, len(t.charges))
	for i := range t.charges {
		t.left[i] = t.charges[i].Plan.Decide(0, t.receipts[i]).Remaining
	}
	t.first = append(t.first, t.left...)
	t.each(t.refusePart)
}

// refusePart decides about a part by the units that earlier parts would have left.
func (t *together) refusePart(p *onePart) {
	w, limits := p.w, &p.w.charges
	for i := range p.limits {
		c, r, at := &limits.list[i], &limits.receipts[i], p.at[i]
		if r.Origin != sluice.ByOnError {
			if r.Fits = c.Cost <= t.left[at] || known(c, r); !r.Fits {
				c.Cost = addUp(c.Cost, t.first[at]-t.left[at])
			}
		}
	}
	if t.refused {
		limits.penalties.preview(&w.input, limits)
	}
	mode := w.mode
	if mode == Charge {
		w.mode = Peek
	}
	p.d.decide(w)
	t.waits.addUnknown(limits, p.d, func(charge int) int64 { return t.charges[p.at[charge]].Cost })
	if w.mode = mode; !p.d.Allowed || mode == Peek {
		return
	}
	for i := range p.limits {
		if c := &limits.list[i]; !c.Plan.Kernel.Permits() { // parts share permits and values
			at := p.at[i]
			t.left[at] = min(max(t.left[at]-c.Cost, 0), c.Plan.Capacity)
		}
	}
}

// allowed reports whether the whole request is allowed.
func (t *together) allowed() bool {
	all := t.peeks()
	for i := range t.parts {
		if p := &t.parts[i]; !p.d.Allowed && (all || p.w.mode != Peek) {
			return false
		}
	}
	return true
}
