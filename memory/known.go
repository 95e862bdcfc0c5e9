package memory

import (
	"github.com/sluicehq/sluice"
)

// takeKnown takes from a state that is in a slot, without the lock. It reports false, and has
// done nothing, where that cannot be.
func (s *Store) takeKnown(now int64, hash uint64, p *sluice.Plan, cost int64, r *sluice.Receipt) bool {
	l := s.plans.find(p)
	if l == nil || !l.fits {
		return false
	}
	st, tag := s.stripe(hash), l.tag(hash)
	for {
		sl, word := st.find(tag)
		if sl == nil {
			return false
		}
		next, ok := l.step(word, tag, s.at(now), cost, r)
		if !ok {
			return false
		}
		if next == word || sl.word.CompareAndSwap(word, next) {
			return true
		}
	}
}

// takeAllKnown is takeKnown for several charges. It claims the slots of all but one, in the
// order of their hashes, so that nobody waits in a circle. Writing the last one is the moment
// at which all is taken.
func (s *Store) takeAllKnown(now int64, charges []sluice.Charge, receipts []sluice.Receipt, ops []op, order []int32) bool {
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
		o.slot, o.word = o.find(o.tag)
		for o.slot != nil && !o.slot.word.CompareAndSwap(o.word, busy) {
			o.slot, o.word = o.find(o.tag)
		}
		if o.slot == nil {
			release(ops, order[:n])
			return false
		}
	}
	o := &ops[order[last]]
	for {
		o.slot, o.word = o.find(o.tag)
		if o.slot == nil || !stepKnown(s.at(now), charges, receipts, ops) {
			release(ops, order[:last])
			return false
		}
		if o.next == o.word || o.slot.word.CompareAndSwap(o.word, o.next) {
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
		ops[i].slot.word.Store(ops[i].word)
	}
}

// stepKnown works out receipts and the next words of ops, and reports whether it could.
func stepKnown(now int64, charges []sluice.Charge, receipts []sluice.Receipt, ops []op) bool {
	admitted := true
	for i := range ops {
		if !ops[i].stepKnown(now, charges[i].Cost, &receipts[i]) {
			return false
		}
		admitted = admitted && (receipts[i].Fits || charges[i].Shadow)
	}
	if admitted {
		return true
	}
	for i := range ops {
		if receipts[i].Fits {
			ops[i].stepKnown(now, 0, &receipts[i])
		}
	}
	return true
}

func (o *op) stepKnown(now, cost int64, r *sluice.Receipt) (ok bool) {
	o.next, ok = o.layout.step(o.word, o.tag, now, cost, r)
	return ok
}
