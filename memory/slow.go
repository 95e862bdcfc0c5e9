package memory

import (
	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/kernel"
)

// takeSlow takes any charges, including charges of new keys and of states in the overflow, with the locks of their
// stripes.
func (s *Store) takeSlow(now int64, charges []sluice.Charge, receipts []sluice.Receipt, ops []op, order []int32) {
	crowded := s.refuse && s.crowded(s.at(now), charges)
	lock(ops, order)
	var before *op // among ops with one hash, the one that has claimed their cell
	for _, i := range order {
		o := &ops[i]
		if s.read(o, before, &charges[i]); !o.twin || o.cell != nil {
			before = o
		}
	}
	now = s.at(now)
	if s.refuse {
		for i := range ops {
			s.refuseNew(&ops[i], &charges[i], crowded, now)
		}
	}
	s.stepAll(now, charges, receipts, ops)
	for i := range ops {
		if ops[i].cell != nil {
			ops[i].replace()
		}
	}
	// Insertions move states, so from here on ops[i].cell is only compared with nil.
	for i := range ops {
		if ops[i].cell == nil && !ops[i].twin {
			s.insert(&ops[i], now, &charges[i], &receipts[i])
		}
	}
	for n, i := range order {
		if n == 0 || ops[i].stripe != ops[order[n-1]].stripe {
			s.sweep(ops[i].stripe, now)
			ops[i].mu.Unlock()
		}
	}
	if s.overflow.full() {
		s.evictOverflow(s.overflow.max, unevictable, now)
	}
}

// lock locks the stripes of ops, each once and always in the same order, which prevents deadlocks. Claims come
// after locks: a call that has claimed a cell waits for no lock.
func lock(ops []op, order []int32) {
	for n, i := range order {
		if n == 0 || ops[i].stripe != ops[order[n-1]].stripe {
			ops[i].mu.Lock()
		}
	}
}

// read finds the state of a charge, and claims it if it is in a cell. Successive ops with the same hash share a
// claim and a state.
func (s *Store) read(o, before *op, c *sluice.Charge) {
	p := c.Plan
	o.tag, o.word = 0, free // takeAllFast may have set them
	o.twin = before != nil && before.hash == o.hash
	if !changes(p) {
		o.layout = s.plans.layout(p)
		if o.twin && before.cell != nil {
			o.cell, o.tag, o.word = before.cell, before.tag, before.word
		} else if o.cell = o.findHash(o.hash); o.cell != nil {
			o.tag, o.word = o.cell.tag.Load(), o.cell.claim()
		}
		if o.word != free {
			return
		}
		o.cell = nil // another call has just freed the cell
	}
	if o.overflow == nil {
		return
	}
	if o.record = o.findRecord(); o.record != nil {
		o.old, o.held = o.record.state, o.record.bytes()
	}
}

// stepAll computes the receipts and new states: all charges are taken, or none.
func (s *Store) stepAll(now int64, charges []sluice.Charge, receipts []sluice.Receipt, ops []op) {
	for i := range ops {
		if o := &ops[i]; o.cell != nil {
			o.old = s.layoutOf(o.tag, o.layout).unpack(mixed(o.word, o.tag), now)
		}
	}
	if len(ops) == 1 {
		ops[0].step(now, &charges[0], charges[0].CostAt(now), charges[0].Owe, &receipts[0])
		return
	}
	for i := range ops {
		ops[i].try(now, &charges[i], &receipts[i])
	}
	for i := range ops {
		if sluice.Offends(charges, receipts, i) {
			ops[i].new = charges[i].Plan.Offend(ops[i].old, now, &receipts[i].Receipt)
		}
	}
	admitted := sluice.Admitted(charges, receipts)
	for i := range ops {
		c, cost := &charges[i], charges[i].CostAt(now)
		tried := cost
		if !admitted && receipts[i].Fits {
			cost = 0
		}
		if cost != tried || changes(c.Plan) || c.Owe && !admitted {
			ops[i].step(now, c, cost, c.Owe && admitted, &receipts[i])
		}
	}
}

// step takes cost units, which may be owed. It changes a copy of the state, except for states that change in place.
func (o *op) step(now int64, c *sluice.Charge, cost int64, owe bool, r *sluice.Receipt) {
	r.Origin = sluice.ByStore
	switch p := o.stepping(c.Plan); {
	case p.Kernel.Log() && owe:
		r.Receipt = o.changed(c.Plan).log.Owe(p, now, cost)
	case p.Kernel.Log():
		r.Receipt = o.changed(c.Plan).log.Step(p, now, cost)
	case !p.Kernel.Permits() && owe:
		o.new = p.Owe(o.old, now, cost, &r.Receipt)
	case !p.Kernel.Permits():
		o.new = p.Step(o.old, now, cost, &r.Receipt)
	case o.full:
		r.Receipt = p.FullPermits(now, cost)
	default:
		r.Receipt = o.changed(c.Plan).permits().Step(p, now, c.Permit, cost)
	}
}

// stepping returns the plan to step the op's state with.
func (o *op) stepping(p *sluice.Plan) *kernel.Plan {
	if p.Kernel != kernel.Meter || o.layout == never {
		return &p.Plan
	}
	return o.layout.stepping()
}

// try does what step does, for a charge that might have to be undone: it does not change states in place.
func (o *op) try(now int64, c *sluice.Charge, r *sluice.Receipt) {
	r.Origin = sluice.ByStore
	switch p, cost := c.Plan, c.CostAt(now); {
	case p.Kernel.Log():
		r.Receipt = o.changed(p).log.Look(&p.Plan, now, cost)
	case p.Kernel.Permits() && !o.full:
		r.Receipt = o.changed(p).permits().Look(&p.Plan, now, c.Permit, cost)
	default:
		o.step(now, c, cost, c.Owe, r)
	}
}

// changed returns the record of an op with a state that changes in place.
func (o *op) changed(p *sluice.Plan) *record {
	if o.record == nil {
		o.record = &record{plan: p}
	}
	return o.record
}

// replace writes the state of an op that has claimed a cell. If the state no longer fits, the op has no cell
// afterwards, and has to be inserted.
func (o *op) replace() {
	if o.new == o.old {
		o.cell.word.Store(o.word)
		return
	}
	tag := o.layout.tag(o.hash)
	word, ok := o.layout.word(o.new, tag)
	if tag != o.tag && ok {
		o.cell.tag.Store(tag)
	}
	o.cell.word.Store(word)
	if !ok {
		o.cell = nil
	}
}

// insert stores the state of an op without a cell: in a cell, or in the overflow.
func (s *Store) insert(o *op, now int64, c *sluice.Charge, r *sluice.Receipt) {
	p := c.Plan
	if changes(p) {
		s.setRecord(o, c, r)
		return
	}
	if o.new == o.old {
		return
	}
	tag := o.layout.tag(o.hash)
	word, ok := o.layout.word(o.new, tag)
	if !ok {
		s.setState(o, p, r)
		return
	}
	if o.record != nil {
		s.removeRecord(o)
	}
	if word == free {
		return
	}
	if c := s.cellFor(o.stripe, tag, now); c != nil {
		c.put(word, tag)
	} else {
		priority, _ := priorityOf(p, r, 0)
		s.countEvicted(priority)
	}
}
