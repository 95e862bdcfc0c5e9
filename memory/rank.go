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
// From the highest bit: 4 of the step, 52 of that time in microseconds, 7 of the share.
type rank int64

const (
	vacant  rank = -1 // of a free slot
	drained rank = 0
	most    rank = math.MaxInt64 // of nothing, and of what must not go

	stepShift = 59
	timeShift = 7
	latest    = 1<<(stepShift-timeShift) - 1

	// trifling is the highest rank of what has used an eighth of its limit at most. It may go
	// before all that could take its place have been looked at.
	trifling rank = 8<<stepShift - 1
	// spent is the least rank of what has used more than half of its limit.
	spent rank = 10 << stepShift
)

// rankOf ranks a state by a receipt for it and when it was last asked for, and says when it is
// empty.
func rankOf(p *sluice.Plan, r *sluice.Receipt, asked int64) (_ rank, until int64) {
	d := p.Decide(0, *r)
	if d.ResetAfter == 0 {
		return drained, 0
	}
	until = min(r.Now+d.ResetAfter.Microseconds(), latest)
	return newRank(p.Capacity-d.Remaining, p.Capacity, asked, until), until
}

// newRank ranks what has so many units used of a capacity.
func newRank(used, capacity, asked, until int64) rank {
	share := min(max(1, used<<10/capacity), 1<<10) - 1 // in 1024ths, from 0 to 1023
	step := bits.Len64(uint64(share))                  // from 0 to 10
	if rank(step)<<stepShift >= spent {
		asked = min(until, latest)
	}
	return max(1, rank(int64(step)<<stepShift|asked<<timeShift|share<<(10-step)>>2&(1<<timeShift-1)))
}

// rank ranks a word of a slot. One that is busy is in use, and ranks highest of all.
func (s *Store) rank(word, tag uint64, now int64) rank {
	switch word {
	case free:
		return vacant
	case busy:
		return most
	}
	l := s.layoutOf(tag, never)
	p, state := l.plan, l.unpack(mixed(word, tag), now)
	if p.Kernel == sluice.Meter && state.Used > 0 { // its level is that of now
		return newRank((min(state.Used, p.Size)+p.Unit-1)/p.Unit, p.Capacity, 0, p.EmptyAt(state))
	}
	r, _ := rankState(p, state, now)
	return r
}

func rankState(p *sluice.Plan, s sluice.State, now int64) (_ rank, until int64) {
	if p.EmptyAt(s) <= now {
		return drained, 0
	}
	var r sluice.Receipt
	p.Step(s, now, 0, &r)
	return rankOf(p, &r, 0)
}
