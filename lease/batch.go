package lease

import (
	"sync/atomic"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/kernel"
)

// batch is a grant that is being spent. Spending changes only atomic counters, so it needs no lock.
type batch struct {
	next    atomic.Int64 // the number of the first unspent unit; n or more if the batch is used up
	low     atomic.Int64 // when the field next passes this unit, the pool reserves more units
	skipped atomic.Int64 // units that expired before they could be spent

	grant
	// level is the level of a meter after the reservation, or the number of units of a window that were then no
	// longer available.
	level int64
	// The server granted the batch between these two times. They are in microseconds, by the clock of the Store.
	sent, back int64
}

// granted returns the batch of n units that a receipt grants. The times at which the call was sent and its receipt came
// back are by the clock of the Store.
func granted(p *sluice.Plan, n, others int64, r *sluice.Receipt, sent, back int64) *batch {
	b := &batch{grant: newGrant(p, n, others, r), level: r.Used, sent: sent - 1, back: back}
	if p.Kernel != kernel.Meter {
		b.level = p.Capacity - p.Decide(0, *r).Remaining
	}
	return b
}

// latest returns the latest time that the server's clock can show when the clock of the Store shows the given time.
func (b *batch) latest(at int64) int64 {
	e := max(at, b.back) - b.sent
	return b.now + e + e>>9 + 2 // e>>9: clocks differ in speed; 2: clocks count whole microseconds
}

// spend spends cost units. The time now is by the server's clock, and may be an upper bound of the present time. The
// result ok reports whether the batch had enough units. The result low reports whether the batch has just passed the
// mark at which more units are reserved.
func (b *batch) spend(cost, now int64) (first int64, low, ok bool) {
	for {
		next := b.next.Load()
		first = next
		if now > b.end || !b.deep {
			first = max(next, b.first(now))
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

// left returns how many units can be spent if the server's clock shows the given time.
func (b *batch) left(to int64) int64 { return max(0, b.n-max(b.next.Load(), b.first(to))) }

// spent returns how many units were spent.
func (b *batch) spent() int64 { return min(b.n, b.next.Load()) - b.skipped.Load() }

// close ends the batch. It returns how many units were spent, and the number of the first unspent unit.
func (b *batch) close() (spent, first int64) {
	first = min(b.n, b.next.Swap(b.n+1))
	return first - b.skipped.Load(), first
}

// unspend undoes the spending of cost units, starting with the given unit. If further units were spent after them,
// it changes nothing and returns false.
func (b *batch) unspend(first, cost int64) bool {
	return b.next.CompareAndSwap(first+cost, first)
}

// part returns a new batch of cost units that were taken from b, starting with the given unit.
func (b *batch) part(first, cost int64) *batch {
	p := &batch{grant: b.grant, level: b.level, sent: b.sent, back: b.back}
	p.n = first + cost
	p.next.Store(first)
	p.low.Store(p.n)
	p.skipped.Store(first) // these units never belonged to the new batch
	return p
}

// admit writes the receipt of a charge that was spent when the server's clock showed the time now. After the charge,
// the given number of units remains in this process.
func (b *batch) admit(r *sluice.Receipt, now, remaining int64) {
	b.admitted(r, now, remaining, b.level)
}
