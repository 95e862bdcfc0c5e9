package policy

import (
	"time"

	"github.com/sluicehq/sluice"
)

// charges are the charges of a request to the store, and their receipts.
type charges struct {
	list     []sluice.Charge  // first the charges of limits, one for each result, then the charges of counters
	results  []Result         // in the memory of the decision
	subjects []*subject       // the subject of each result
	receipts []sluice.Receipt // one for each charge
	costs    []int64          // the real costs of the charges during a preview, which charges 0
	began    time.Time        // start of the Take, if a rule depends on the outcome
	made     time.Time        // Time of the request, if a rule depends on the outcome

	turns       *sluice.Turns
	counters    []counter // one of each kind
	using       uint8     // a bit for each kind that the request uses
	active      []counter // the counters of these kinds, in the order of counterKinds
	allocations allocations
	once        once
	penalties   penalties
	permits     permits
	estimates   estimates
}

// newWork returns the working memory of a decision, which later decisions reuse.
func (e *Engine) newWork() *work {
	w := new(work)
	c := &w.charges
	c.turns, c.allocations.shares, c.once.engine, c.permits.holder = &e.turns, &e.shares, e, e.holder
	c.estimates.underWay = &e.underWay
	for _, k := range counterKinds {
		c.counters = append(c.counters, k.of(c))
	}
	return w
}

func (c *charges) reset() {
	c.list, c.results, c.subjects = c.list[:0], c.results[:0], c.subjects[:0]
	for _, k := range c.active {
		k.reset()
	}
	c.once.reset() // even without an ID: a part can be a repetition because of another part's ID
	c.using, c.active = 0, c.active[:0]
}

// use adds kinds of counters to those that the request uses.
func (c *charges) use(kinds uint8) {
	if kinds&^c.using == 0 {
		return
	}
	c.using, c.active = c.using|kinds, c.active[:0]
	for i, k := range c.counters {
		if c.using&(1<<i) != 0 {
			c.active = append(c.active, k)
		}
	}
}

// charge makes the charges of all subjects. A malformed request takes no permit in flight.
func (w *work) charge(malformed bool) {
	c := &w.charges
	c.permits.malformed = malformed
	if w.request.ID != "" {
		c.use(1 << countsIDs)
	}
	if n := w.subjects.limits; n > cap(c.results) {
		c.results = make([]Result, 0, n) // no spare capacity, because callers of Decide keep the results
	}
	subjects := w.subjects.list
	for i := range subjects {
		c.add(&w.input, &subjects[i])
	}
}

// add adds a charge and a result for each limit of a subject. It writes them in place, because copying such
// large structs is slow.
func (c *charges) add(in *input, s *subject) {
	r, by, whole, first := s.rule, s.by, s.rule.cost.fixed, len(c.list)
	if r.cost.varies || in.request.Cost > 1 || in.mode == GiveBack {
		whole = in.whole(s)
	}
	shadow := s.shadow || s.marks
	for i := range by.limits {
		l, cost := &by.limits[i], whole
		if r.cost.usage != nil {
			cost = s.reserved.within(cost, l.plan)
		}
		to, result := extend(&c.list), extend(&c.results)
		to.Key, to.Plan, to.Cost, to.Shadow, to.OnError = s.owner, l.plan, cost, shadow, r.onError
		to.Owe, to.Consistency, to.Permit, to.Until = false, r.consistency, 0, 0
		result.Rule, result.Name, result.Plan, result.From, result.Source, result.Cost, result.Shadow = r.name, l.name, l.plan, by.from, by.source, cost, shadow
		result.at, result.Unit, result.Marks, result.Owed = int32(r.index)+1, r.cost.unit, s.marks, 0
		result.UnderWay = false
		c.subjects = append(c.subjects, s)
	}
	if r.counters == 0 {
		return
	}
	c.use(r.counters)
	for i, k := range c.counters {
		if r.counters&(1<<i) != 0 {
			k.charge(in, c, s, first)
		}
	}
}

// complete adds the charges of counters, and makes room for the receipts.
func (c *charges) complete(in *input) {
	c.list = c.list[:len(c.results)]
	for _, k := range c.active {
		k.beside(in, c)
	}
	switch in.mode {
	case GiveBack:
		c.keepTurns()
	case Peek:
		c.makeFree()
	}
	c.expect(in)
}

// expect makes room for the receipts of the charges. If a rule depends on the outcome, expect notes the time.
func (c *charges) expect(in *input) {
	if n := len(c.list); n > cap(c.receipts) {
		c.receipts = make([]sluice.Receipt, n)
	} else {
		c.receipts = c.receipts[:n]
	}
	if in.policy.settles {
		c.began, c.made = time.Now(), in.request.Time
	}
}

// closed reports whether charge i is denied by on_error, because the shared store is unavailable.
func (c *charges) closed(i int) bool {
	return c.receipts[i].Origin == sluice.ByOnError && !c.receipts[i].Fits
}
