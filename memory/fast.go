package memory

import (
	"math/bits"
	"sync/atomic"
	"unsafe"

	"github.com/sluicehq/sluice"
)

// takeFast takes one charge from a state in a cell, without the lock. It does nothing and reports false if no cell has
// the state, if the next state does not fit in a cell, if the cost depends on the time, or if the cost is owed.
func (s *Store) takeFast(now int64, hash uint64, c *sluice.Charge, r *sluice.Receipt) bool {
	cost := c.Cost
	l := s.plans.find(c.Plan)
	if l == nil || !l.fits || cost < 0 && c.Until != 0 || c.Owe {
		return false
	}
	stripe, tag := hash>>stripeShift, l.tag(hash)
	if s.tables.size(stripe).buckets() < manyBuckets || cost <= 0 || cost > l.most {
		return s.takeStateFirst(now, stripe, l, tag, cost, r)
	}
	limited := s.limited.at(hash)
	if !limited.holds(hash) {
		first, second := s.tables.buckets(stripe, tag)
		prefetch(first, second)
		if s.takeClockFirst(s.at(now), first, second, l, tag, cost, r) {
			return true
		}
	}
	taken := s.takeStateFirst(now, stripe, l, tag, cost, r)
	if taken && !r.Fits {
		limited.put(hash)
	}
	return taken
}

// limited remembers some of the hashes that were denied last. Its length is a power of two. A denied key is usually
// denied again, and takeClockFirst cannot deny, so takeFast does not call it for these hashes. If the keys follow
// Zipf's law and two thirds of the requests are denied, the useless calls would take a quarter of the time. A wrong
// guess costs at most as much as a useless call.
type limited []lately

type lately struct{ hash atomic.Uint32 }

const (
	latelyBytes = int64(unsafe.Sizeof(lately{}))
	mostLimited = 1024
)

// limitedFor returns an empty limited for a store with the given number of stripes.
func limitedFor(stripes int) limited {
	return make(limited, min(mostLimited, 16<<bits.Len(uint(stripes-1))))
}

func (l limited) at(hash uint64) *lately { return &l[hash&uint64(len(l)-1)] }

func (l *lately) holds(hash uint64) bool { return l.hash.Load() == uint32(hash>>16) }

func (l *lately) put(hash uint64) { l.hash.Store(uint32(hash >> 16)) }

// takeStateFirst takes a charge from a state in a cell. If now is own, it reads the clock after the state. It
// reports false if the state is missing, or if the next state does not fit in a cell.
func (s *Store) takeStateFirst(now int64, stripe uint64, l *layout, tag uint64, cost int64, r *sluice.Receipt) bool {
	for {
		c, word := s.tables.find(stripe, tag)
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

// manyBuckets is the smallest size of a stripe's table for which takeClockFirst is faster: with so many keys, a
// state is seldom in the processor's caches.
const manyBuckets = 16

// takeClockFirst takes from a meter at a time that was read before its state. Reading the clock waits for all
// earlier reads, but not for a prefetch. In this order, the processor fetches the state while it reads the clock,
// and while it goes on to the next key. Other goroutines may have taken units meanwhile, at later times: a cost
// that fits at this time also fits at theirs, but a denial has to be decided again at a time that is read after the
// state. In that case, and in all rare cases, takeClockFirst reports false.
func (s *Store) takeClockFirst(now int64, first, second *bucket, l *layout, tag uint64, cost int64, r *sluice.Receipt) bool {
	c := at(first, second, tag)
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

// takeAllFast is takeFast for several charges. In the order of their hashes, which prevents deadlocks, it claims
// the cells of all charges but the last. The write to the last cell commits all charges.
func (s *Store) takeAllFast(now int64, charges []sluice.Charge, receipts []sluice.Receipt, ops []op, order []int32) bool {
	for i := range ops {
		o := &ops[i]
		if o.layout = s.plans.find(charges[i].Plan); o.layout == nil || !o.layout.fits || charges[i].Owe {
			return false
		}
		o.tag = o.layout.tag(o.hash)
	}
	last := len(order) - 1
	if last < 0 {
		return true
	}
	// If a state is missing, mostly because its key is new, give up before anything is claimed.
	for n, i := range order {
		o := &ops[i]
		if n < last && o.hash == ops[order[n+1]].hash {
			return false
		}
		if o.cell, o.word = s.find(o.hash, o.tag); o.cell == nil {
			return false
		}
	}
	for n, i := range order[:last] {
		o := &ops[i]
		for o.cell != nil && !o.cell.word.CompareAndSwap(o.word, busy) {
			o.cell, o.word = s.find(o.hash, o.tag)
		}
		if o.cell == nil {
			release(ops, order[:n])
			return false
		}
	}
	for o := &ops[order[last]]; ; {
		if !stepFast(s.at(now), charges, receipts, ops) {
			release(ops, order[:last])
			return false
		}
		if o.cell.commit(o.word, o.next) {
			break
		}
		if o.cell, o.word = s.find(o.hash, o.tag); o.cell == nil {
			release(ops, order[:last])
			return false
		}
	}
	for _, i := range order[:last] {
		ops[i].word = ops[i].next
	}
	release(ops, order[:last])
	return true
}

// release ends the claims on the cells of ops.
func release(ops []op, order []int32) {
	for _, i := range order {
		ops[i].cell.word.Store(ops[i].word)
	}
}

// stepFast computes the receipts and the next words of ops. It reports false if a next state does not fit in a
// cell.
func stepFast(now int64, charges []sluice.Charge, receipts []sluice.Receipt, ops []op) bool {
	admitted := true
	for i := range ops {
		if !ops[i].stepFast(now, charges[i].CostAt(now), &receipts[i]) {
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
