package memory

import (
	"github.com/sluicehq/sluice"
)

// takeKnown takes from a state that is in a slot, without the lock. It reports false, and has
// done nothing, where that cannot be.
func (s *Store) takeFast(now int64, hash uint64, p *sluice.Plan, cost int64, r *sluice.Receipt) bool {
	l := s.plans.find(p)
	if l == nil || !l.fits {
		return false
	}
	st, tag := s.stripe(hash), l.tag(hash)
	if st.n.Load() >= manyBuckets && cost > 0 && cost <= l.most && s.takeClockFirst(s.at(now), st, l, tag, cost, r) {
		return true
	}
	for {
		c, word := st.find(tag)
		if c == nil {
			return false
		}
		next, ok := l.step(word, tag, s.at(now), cost, r)
		if !ok {
			return false
		}
		if next == word || c.word.CompareAndSwap(word, next) {
			return true
		}
	}
}

// farLines is how many lines the table of a stripe has when there are so many keys that a
// state is seldom near the processor.
const manyBuckets = 16

// takeFar takes from a meter at a time that was read before its state. Reading the clock waits
// for all that was read before it, so this way round the state is fetched while the processor
// goes on with what follows, for example to the next key. Others may have taken meanwhile,
// at later times: what fits at this time fits at theirs, but what does not is to be looked at
// again at a time that is read after the state. takeFar reports false for that, and for all
// that is not usual.
func (s *Store) takeClockFirst(now int64, st *stripe, l *layout, tag uint64, cost int64, r *sluice.Receipt) bool {
	first, second := st.buckets(tag)
	c := first.at(tag)
	if c.tag.Load() != tag {
		c = second.at(tag)
	}
	word := c.word.Load()
	if c.tag.Load() != tag || word <= reserved {
		return false
	}
	next := l.add(mixed(word, tag), now, cost, r)
	if next == 0 || !r.Fits {
		return false
	}
	next = mixed(next, tag)
	return next > reserved && c.word.CompareAndSwap(word, next)
}

// takeAllKnown is takeKnown for several charges. It claims the slots of all but one, in the
// order of their hashes, so that nobody waits in a circle. Writing the last one is the moment
// at which all is taken.
func (s *Store) takeAllFast(now int64, charges []sluice.Charge, receipts []sluice.Receipt, ops []op, order []int32) bool {
	for i := range ops {
		o := &ops[i]
		if o.layout = s.plans.find(charges[i].Plan); o.layout == nil {
			return false
		}
		o.tag = o.layout.tag(o.hash)
	}
	last := len(order) - 1
	if last < 0 {
		return true
	}
	for n, i := range order[:last] {
		o := &ops[i]
		if o.hash == ops[order[n+1]].hash {
			release(ops, order[:n])
			return false
		}
		o.cell, o.word = o.find(o.tag)
		for o.cell != nil && !o.cell.word.CompareAndSwap(o.word, busy) {
			o.cell, o.word = o.find(o.tag)
		}
		if o.cell == nil {
			release(ops, order[:n])
			return false
		}
	}
	o := &ops[order[last]]
	for {
		o.cell, o.word = o.find(o.tag)
		if o.cell == nil || !stepFast(s.at(now), charges, receipts, ops) {
			release(ops, order[:last])
			return false
		}
		if o.next == o.word || o.cell.word.CompareAndSwap(o.word, o.next) {
			break
		}
	}
	for _, i := range order[:last] {
		ops[i].word = ops[i].next
	}
	release(ops, order[:last])
	return true
}

// release ends the claims of ops.
func release(ops []op, order []int32) {
	for _, i := range order {
		ops[i].cell.word.Store(ops[i].word)
	}
}

// stepKnown works out receipts and the next words of ops, and reports whether it could.
func stepFast(now int64, charges []sluice.Charge, receipts []sluice.Receipt, ops []op) bool {
	admitted := true
	for i := range ops {
		if !ops[i].stepFast(now, charges[i].Cost, &receipts[i]) {
			return false
		}
		admitted = admitted && (receipts[i].Fits || charges[i].Shadow)
	}
	if admitted {
		return true
	}
	for i := range ops {
		if receipts[i].Fits {
			ops[i].stepFast(now, 0, &receipts[i])
		}
	}
	return true
}

func (o *op) stepFast(now, cost int64, r *sluice.Receipt) (ok bool) {
	o.next, ok = o.layout.step(o.word, o.tag, now, cost, r)
	return ok
}
