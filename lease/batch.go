package lease

import (
	"sync/atomic"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/kernel"
)

// batch is a grant that is being spent. Only next changes, so that a unit is spent without a lock.
type batch struct {
	next    atomic.Int64 // the first unit that is not spent; n or more where the batch is over
	low     atomic.Int64 // behind which more units are to be reserved
	skipped atomic.Int64 // units that were too old when it was their turn

	grant
	// level is how full the state was, with these units, when they were reserved: that of a meter, or of
	// a window the units that there was no room for.
	level int64
	// The server has granted it between these times, by the clock of the Store in microseconds.
	sent, back int64
}

// granted returns the batch of n units that a receipt grants, which was asked for and heard at these
// times of the Store.
func granted(p *sluice.Plan, n, others int64, r *sluice.Receipt, sent, back int64) *batch {
	b := &batch{grant: newGrant(p, n, others, r), level: r.Used, sent: sent - 1, back: back}
	if p.Kernel != kernel.Meter {
		b.level = p.Capacity - p.Decide(0, *r).Remaining
	}
	return b
}

// latest returns the latest time, of the server, that it can be at a time of the Store.
func (b *batch) latest(at int64) int64 {
	e := max(at, b.back) - b.sent
	return b.now + e + e>>9 + 2 // clocks do not run alike, and count whole microseconds
}

// spend spends so many units at a time of the server, and reports whether there were as many, and
// whether it has passed the mark at which more are to be reserved.
func (b *batch) spend(cost, to int64) (first int64, low, ok bool) {
	for {
		next := b.next.Load()
		first = next
		if to > b.end || !b.deep {
			first = max(next, b.first(to))
		}
		if first+cost > b.n {
			return 0, false, false
		}
		if b.next.CompareAndSwap(next, first+cost) {
			if first > next {
				b.skipped.Add(first - next)
			}
			mark := b.low.Load()
			return first, next <= mark && mark < first+cost, true
		}
	}
}

// left returns how many units may be spent at a time of the server.
func (b *batch) left(to int64) int64 { return max(0, b.n-max(b.next.Load(), b.first(to))) }

// spent returns how many units were spent.
func (b *batch) spent() int64 { return min(b.n, b.next.Load()) - b.skipped.Load() }

// close ends the batch, and returns how many units were spent, and the first that was not.
func (b *batch) close() (spent, first int64) {
	first = min(b.n, b.next.Swap(b.n+1))
	return first - b.skipped.Load(), first
}

// unspend undoes the spending of units, and reports whether it could: only if no others were spent since.
func (b *batch) unspend(first, cost int64) bool {
	return b.next.CompareAndSwap(first+cost, first)
}

// part returns a batch of units of b that were spent, and are not.
func (b *batch) part(first, cost int64) *batch {
	p := &batch{grant: b.grant, level: b.level, sent: b.sent, back: b.back}
	p.n = first + cost
	p.next.Store(first)
	p.low.Store(p.n)
	p.skipped.Store(first) // none of which were this one's
	return p
}

// admit writes the receipt of a charge that was spent at a time of the server, when left units remain
// in this process.
func (b *batch) admit(r *sluice.Receipt, now, left int64) { b.admitted(r, now, left, b.level) }
