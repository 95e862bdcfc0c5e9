package memory

import (
	"math"
	"math/bits"

	"github.com/sluicehq/sluice"
)

// rank orders states by what is lost with them: first by how much of the limit is used, in
// steps of a factor of two. Of those that have used more than half, the one goes first that is
// empty first: so a limit of one a second, which a single request uses up, does not outweigh for
// a second what counts for an hour. Of the others, the one that has not been asked for longest,
// where that is known, so that whoever goes on asking comes to be worth more in time.
//
// From the unevictable bit: 4 of the step, 52 of that time in microseconds, 7 of the share.
type priority int64

const (
	vacant      priority = -1 // of a free slot
	drained     priority = 0
	unevictable priority = math.MaxInt64 // of nothing, and of what must not go

	stepShift = 59
	timeShift = 7
	latest    = 1<<(stepShift-timeShift) - 1

	// trifling is the unevictable rank of what has used an eighth of its limit at most. It may go
	// before all that could take its place have been looked at.
	negligible priority = 8<<stepShift - 1
	// spent is the least rank of what has used more than half of its limit.
	overHalf priority = 10 << stepShift
)

// rankOf ranks a state by a receipt for it and when it was last asked for, and says when it is
// empty.
func priorityOf(p *sluice.Plan, r *sluice.Receipt, asked int64) (_ priority, until int64) {
	d := p.Decide(0, *r)
	if d.ResetAfter == 0 {
		return drained, 0
	}
	until = min(r.Now+d.ResetAfter.Microseconds(), latest)
	return newPriority(p.Capacity-d.Remaining, p.Capacity, asked, until), until
}

// newRank ranks what has so many units used of a capacity.
func newPriority(used, capacity, asked, until int64) priority {
	share := min(max(1, used<<10/capacity), 1<<10) - 1 // in 1024ths, from 0 to 1023
	step := bits.Len64(uint64(share))                  // from 0 to 10
	if priority(step)<<stepShift >= overHalf {
		asked = min(until, latest)
	}
	return max(1, priority(int64(step)<<stepShift|asked<<timeShift|share<<(10-step)>>2&(1<<timeShift-1)))
}

// rank ranks a word of a slot. One that is busy is in use, and ranks unevictable of all.
func (s *Store) priority(word, tag uint64, now int64) priority {
	switch word {
	case free:
		return vacant
	case busy:
		return unevictable
	}
	l := s.layoutOf(tag, never)
	p, state := l.plan, l.unpack(mixed(word, tag), now)
	if p.Kernel == sluice.Meter && state.Used > 0 { // its level is that of now
		return newPriority((min(state.Used, p.Size)+p.Unit-1)/p.Unit, p.Capacity, 0, p.EmptyAt(state))
	}
	r, _ := priorityOfState(p, state, now)
	return r
}

func priorityOfState(p *sluice.Plan, s sluice.State, now int64) (_ priority, until int64) {
	if p.EmptyAt(s) <= now {
		return drained, 0
	}
	var r sluice.Receipt
	p.Step(s, now, 0, &r)
	return priorityOf(p, &r, 0)
}
