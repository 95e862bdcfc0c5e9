package memory

import (
	"math"
	"math/bits"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/kernel"
)

// priority orders states by what their eviction would lose; the state with the lowest priority is evicted first.
// The first criterion is how much of the limit is used, in steps of a factor of two. Among states that have used
// more than half, the first to drain is evicted first. If it were not, the state of a limit of one unit a second,
// which a single request uses up, could outlast the state of a limit by the hour. Among the others, the least
// recently used is evicted first, if that is known.
//
// From the highest bit: 4 bits for the step, 52 for the time in microseconds, 7 for the fraction within the step.
type priority int64

const (
	vacant      priority = -1 // a free cell
	drained     priority = 0
	unevictable priority = math.MaxInt64 // a state that must stay, or no state

	stepShift = 59
	timeShift = 7
	latest    = 1<<(stepShift-timeShift) - 1

	// negligible is the highest priority of a state that has used at most an eighth of its limit. Such a state is
	// evicted without a search for a lower priority.
	negligible priority = 8<<stepShift - 1
	// overHalf is the lowest priority of a state that has used more than half of its limit.
	overHalf priority = 10 << stepShift
)

// time returns the time in a priority. If the priority is at least overHalf, this is the time when the state will
// be empty, or the end of a penalty.
func (p priority) time() int64 { return int64(p>>timeShift) & latest }

// priorityOf returns the priority of a state, and when it will be empty. r is a receipt for the state, and lastUsed is
// when it was last used.
func priorityOf(p *sluice.Plan, r *sluice.Receipt, lastUsed int64) (_ priority, until int64) {
	if p.Kernel == kernel.InFlight {
		return priorityOfPermits(p, r, lastUsed)
	}
	d := p.Decide(0, *r)
	if d.ResetAfter == 0 {
		return drained, 0
	}
	until = min(r.Now+d.ResetAfter.Microseconds(), latest)
	ends := until
	if p.Kernel == kernel.Lock { // an eviction loses the rest of the penalty
		ends = r.Tick
	}
	used := p.Capacity - d.Remaining
	if p.Once { // an eviction only means that a repeated request is charged again
		used = 0
	}
	return newPriority(used, p.Capacity, lastUsed, ends), until
}

// priorityOfPermits is priorityOf for permits. Their receipts do not contain when they expire.
func priorityOfPermits(p *sluice.Plan, r *sluice.Receipt, lastUsed int64) (_ priority, until int64) {
	if r.Used == 0 {
		return drained, 0
	}
	return newPriority(r.Used, p.Capacity, lastUsed, r.Now+p.Span), min(r.Now+p.Lifetime(), latest)
}

// newPriority returns the priority of a state with used units of a capacity, last used at a time and empty at
// until.
func newPriority(used, capacity, at, until int64) priority {
	share := min(max(1, used<<10/capacity), 1<<10) - 1 // in 1024ths, from 0 to 1023
	step := bits.Len64(uint64(share))                  // from 0 to 10
	if priority(step)<<stepShift >= overHalf {
		at = min(until, latest)
	}
	return max(1, priority(int64(step)<<stepShift|at<<timeShift|share<<(10-step)>>2&(1<<timeShift-1)))
}

// priority returns the priority of a word in a cell. A busy cell is in use, and must stay.
func (s *Store) priority(word, tag uint64, now int64) priority {
	switch word {
	case free:
		return vacant
	case busy:
		return unevictable
	}
	l := s.layoutOf(tag, never)
	p, state := l.plan, l.unpack(mixed(word, tag), now)
	if p.Kernel == kernel.Meter && state.Used > 0 && !p.Once { // unpack has returned its level as of now
		return newPriority((min(state.Used, p.Size)+p.Unit-1)/p.Unit, p.Capacity, 0, p.EmptyAt(state))
	}
	r, _ := priorityOfState(p, state, now)
	return r
}

func priorityOfState(p *sluice.Plan, s kernel.State, now int64) (_ priority, until int64) {
	if p.EmptyAt(s) <= now {
		return drained, 0
	}
	var r sluice.Receipt
	p.Step(s, now, 0, &r.Receipt)
	return priorityOf(p, &r, 0)
}
