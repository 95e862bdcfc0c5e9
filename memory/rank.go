package memory

import (
	"math"
	"math/bits"

	"github.com/sluicehq/sluice"
)

// rank orders states by what is lost with them: first by how much of the limit is used, in
// steps of a factor of two, then by when they are empty, then by what is used within the step.
// So a limit of one a second, which a single request uses up, does not outweigh for a second
// what counts for an hour.
//
// From the highest bit: 4 of the step, 52 of the time in microseconds, 7 of the share.
type rank int64

const (
	vacant  rank = -1 // of a free slot
	drained rank = 0
	most    rank = math.MaxInt64 // of nothing, and of what must not go

	stepShift  = 59
	untilShift = 7
	untilMask  = 1<<(stepShift-untilShift) - 1

	// trifling is the highest rank of what has used an eighth of its limit at most. It may go
	// before all that could take its place have been looked at.
	trifling rank = 8<<stepShift - 1
	// spent is the least rank of what has used more than half of its limit.
	spent rank = 10 << stepShift
)

// rankOf ranks a state by a receipt for it.
func rankOf(p *sluice.Plan, r *sluice.Receipt) rank {
	d := p.Decide(0, *r)
	if d.ResetAfter == 0 {
		return drained
	}
	used := p.Capacity - d.Remaining
	share := min(max(1, used<<10/p.Capacity), 1<<10) - 1 // in 1024ths, from 0 to 1023
	step := bits.Len64(uint64(share))                    // from 0 to 10
	until := min(r.Now+d.ResetAfter.Microseconds(), untilMask)
	return rank(int64(step)<<stepShift | until<<untilShift | share<<(10-step)>>2&(1<<untilShift-1))
}

// until returns when a state of that rank is empty, in microseconds since the epoch.
func (r rank) until() int64 { return int64(r) >> untilShift & untilMask }

// at returns the rank if it is not empty by then.
func (r rank) at(now int64) rank {
	if r != most && r.until() <= now {
		return drained
	}
	return r
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
	return rankState(l.plan, l.unpack(mixed(word, tag), now), now)
}

func rankState(p *sluice.Plan, s sluice.State, now int64) rank {
	if p.EmptyAt(s) <= now {
		return drained
	}
	var r sluice.Receipt
	p.Step(s, now, 0, &r)
	return rankOf(p, &r)
}
