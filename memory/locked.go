package memory

import "github.com/sluicehq/sluice"

// takeLocked takes whatever there is, new keys and states that are kept aside too, with the
// locks of all stripes.
func (s *Store) takeLocked(now int64, charges []sluice.Charge, receipts []sluice.Receipt, ops []op, order []int32) {
	crowded := s.refuse && s.crowded(s.at(now), charges)
	lock(ops, order)
	for n, i := range order {
		var before *op
		if n > 0 {
			before = &ops[order[n-1]]
		}
		s.read(&ops[i], before, &charges[i])
	}
	now = s.at(now)
	if s.refuse {
		for i := range ops {
			s.refuseNew(&ops[i], &charges[i], crowded, now)
		}
	}
	s.stepAll(now, charges, receipts, ops)
	for i := range ops {
		if ops[i].slot != nil {
			ops[i].replace()
		}
	}
	// An insertion moves slots, so that from here on ops[i].slot says nothing.
	for i := range ops {
		if ops[i].slot == nil && !ops[i].twin {
			s.insert(&ops[i], now, &charges[i], &receipts[i])
		}
	}
	for n, i := range order {
		if n == 0 || ops[i].stripe != ops[order[n-1]].stripe {
			s.sweep(ops[i].stripe, now)
			ops[i].mu.Unlock()
		}
	}
	if s.asides.full() {
		s.shed(s.asides.max, most, now)
	}
}

// lock locks the stripes of ops, each once and everybody in the same order, so that nobody
// waits in a circle. Claims come after locks: who has claimed a slot waits for no lock.
func lock(ops []op, order []int32) {
	for n, i := range order {
		if n == 0 || ops[i].stripe != ops[order[n-1]].stripe {
			ops[i].mu.Lock()
		}
	}
}

// read finds the state of a charge, and claims it if it is in a slot. Two keys of one hash,
// which come one after the other, have one claim, and one state.
func (s *Store) read(o, before *op, c *sluice.Charge) {
	p := c.Plan
	o.tag, o.word = 0, free // touch and takeAllKnown have used them
	o.twin = before != nil && before.hash == o.hash && !s.verified
	switch {
	case s.verified:
		o.layout, o.key = never, c.Key
	case !p.Kernel.Log():
		o.layout = s.plans.layout(p)
		if o.twin && before.slot != nil {
			o.slot, o.tag, o.word = before.slot, before.tag, before.word
		} else if o.slot = o.findHash(o.hash); o.slot != nil {
			o.tag, o.word = o.slot.tag.Load(), o.slot.claim()
		}
		if o.word != free {
			return
		}
		o.slot = nil // it was given back just now
	}
	if o.asides == nil {
		return
	}
	if o.aside = s.findAside(o, p); o.aside != nil {
		o.old, o.held = o.aside.state, o.aside.bytes()
	}
}

// stepAll works out receipts and new states: all or nothing.
func (s *Store) stepAll(now int64, charges []sluice.Charge, receipts []sluice.Receipt, ops []op) {
	for i := range ops {
		if o := &ops[i]; o.slot != nil {
			o.old = s.layoutOf(o.tag, o.layout).unpack(mixed(o.word, o.tag), now)
		}
	}
	if len(ops) == 1 {
		ops[0].step(now, charges[0].Plan, charges[0].Cost, &receipts[0])
		return
	}
	for i := range ops {
		ops[i].try(now, &charges[i], &receipts[i])
	}
	admitted := sluice.Admitted(charges, receipts)
	for i := range ops {
		c, cost := &charges[i], charges[i].Cost
		if !admitted && receipts[i].Fits {
			cost = 0
		}
		if cost != c.Cost || c.Plan.Kernel.Log() {
			ops[i].step(now, c.Plan, cost, &receipts[i])
		}
	}
}

// step asks for cost units: of a copy of the state, but of a log itself.
func (o *op) step(now int64, p *sluice.Plan, cost int64, r *sluice.Receipt) {
	if !p.Kernel.Log() {
		o.new = p.Step(o.old, now, cost, r)
		return
	}
	if o.aside == nil {
		o.aside = &aside{plan: p}
	}
	*r = o.aside.log.Step(p, now, cost)
}

// try is step for a charge that might have to be undone: it leaves a log as it is.
func (o *op) try(now int64, c *sluice.Charge, r *sluice.Receipt) {
	switch {
	case !c.Plan.Kernel.Log():
		o.step(now, c.Plan, c.Cost, r)
	case o.aside == nil:
		var empty sluice.Log
		*r = empty.Look(c.Plan, now, c.Cost)
	default:
		*r = o.aside.log.Look(c.Plan, now, c.Cost)
	}
}

// replace writes the state of an op that has claimed a slot. If it no longer fits the slot, op
// has none afterwards and is to be inserted.
func (o *op) replace() {
	if o.new == o.old {
		o.slot.word.Store(o.word)
		return
	}
	tag := o.layout.tag(o.hash)
	word, ok := o.layout.word(o.new, tag)
	if tag != o.tag && ok {
		o.slot.tag.Store(tag)
	}
	o.slot.word.Store(word)
	if !ok {
		o.slot = nil
	}
}

// insert keeps the state of an op that has no slot, in one or aside.
func (s *Store) insert(o *op, now int64, c *sluice.Charge, r *sluice.Receipt) {
	p := c.Plan
	if p.Kernel.Log() {
		s.setLog(o, p, c.Cost, r)
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
	if o.aside != nil {
		s.removeAside(o)
	}
	if word == free {
		return
	}
	if sl := s.room(o.stripe, tag, now); sl != nil {
		sl.put(word, tag)
	} else {
		rank, _ := rankOf(p, r, 0)
		s.forgot(rank)
	}
}
