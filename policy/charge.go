package policy

import (
	"slices"
	"time"

	"github.com/sluicehq/sluice"
)

// charges are what a request takes of the store, and the receipts for it.
type charges struct {
	list     []sluice.Charge // of limits, which have results, and behind them of counters
	results  []Result        // on the memory of the decision
	whose    []*subject      // whose each is
	receipts []sluice.Receipt
	costs    []int64   // of a preview, whose charges take nothing
	began    time.Time // the Take, if a rule goes by the outcome

	turns       *sluice.Turns
	counters    []counter // one of each kind
	using       uint8     // which of them apply
	active      []counter // those, in their order
	allocations allocations
	once        once
	penalties   penalties
	permits     permits
}

// newWork returns the memory of one decision at a time.
func (e *Engine) newWork() *work {
	w := new(work)
	c := &w.charges
	c.turns, c.allocations.shares, c.once.engine, c.permits.holder = &e.turns, &e.shares, e, e.holder
	for _, k := range counterKinds {
		c.counters = append(c.counters, k.of(c))
	}
	return w
}

func (c *charges) reset() {
	c.list, c.results, c.whose = c.list[:0], c.results[:0], c.whose[:0]
	for _, k := range c.active {
		k.reset()
	}
	c.once.reset() // a part of a request may be repeated by the ID of another
	c.using, c.active = 0, c.active[:0]
}

// use has counters apply to the request.
func (c *charges) use(kinds uint8) {
	if c.using |= kinds; kinds == 0 {
		return
	}
	c.active = c.active[:0]
	for i, k := range c.counters {
		if c.using&(1<<i) != 0 {
			c.active = append(c.active, k)
		}
	}
}

// charge makes the charges of the subjects. A request that is malformed takes no place in flight.
func (w *work) charge(malformed bool) {
	c := &w.charges
	c.permits.malformed = malformed
	if w.request.ID != "" {
		c.use(1 << countsIDs)
	}
	limits := 0
	for i := range w.subjects.list {
		limits += len(w.subjects.list[i].by.limits)
	}
	if limits > cap(c.results) {
		c.results = make([]Result, 0, limits) // as the caller of Decide keeps it
	}
	for i := range w.subjects.list {
		c.add(&w.input, &w.subjects.list[i])
	}
}

// add adds a charge for each limit of a subject. What is added is written in place: a struct that is made
// elsewhere and copied holds up the processor.
func (c *charges) add(in *input, s *subject) {
	r, by, cost, first := s.rule, s.by, in.cost(s.rule), len(c.list)
	for i := range by.limits {
		l := &by.limits[i]
		to, told := extend(&c.list), extend(&c.results)
		to.Key, to.Plan, to.Cost, to.Shadow, to.OnError = s.owner, l.plan, cost, s.shadow, r.onError
		to.Owe, to.Consistency, to.Permit, to.Until = false, r.consistency, 0, 0
		told.Rule, told.Name, told.Plan, told.From, told.Source, told.Cost, told.Shadow = r.name, l.name, l.plan, by.from, by.source, cost, s.shadow
		told.at = int32(r.index) + 1
		c.whose = append(c.whose, s)
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

// complete makes the charges those that the store is asked for.
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

// expect makes room for the receipts of the charges.
func (c *charges) expect(in *input) {
	c.receipts = slices.Grow(c.receipts[:0], len(c.list))[:len(c.list)]
	if in.policy.settles {
		c.began = time.Now()
	}
}

// closed reports whether charge i does not fit because the shared store is away.
func (c *charges) closed(i int) bool {
	return c.receipts[i].Origin == sluice.ByOnError && !c.receipts[i].Fits
}
