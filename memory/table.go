package memory

import (
	"math"
	"slices"
	"sync"

	"github.com/sluicehq/sluice"
)

const (
	lineBytes  = 64
	firstLines = 2
)

// slot is a state and whose it is: 48 bits of the hash and 16 of the plan that it was
// packed by. A state of 0 is a free slot, and one that has drained is as good as free.
type slot struct{ state, tag uint64 }

// line is what a processor reads at once.
type line [4]slot

// stripe is a table of its own with a lock of its own. A key has two lines where it can
// be, given by its tag, so that a slot can be moved without knowing the key.
type stripe struct {
	mu     sync.Mutex
	lines  []line
	packed bool  // there is no use in shifting
	latest int64 // see Store.latest
	asides *stripeAsides
	_      [8]byte // to the end of a line of the processor
}

// pair returns the two lines of a tag.
func (st *stripe) pair(tag uint64) (a, b int) {
	n := uint64(len(st.lines))
	first := tag >> 48 * n >> 16
	second := first + 1 + tag>>32&0xffff*(n-1)>>16
	if second >= n {
		second -= n
	}
	return int(first), int(second)
}

func (st *stripe) both(tag uint64) [2]*line {
	a, b := st.pair(tag)
	return [2]*line{&st.lines[a], &st.lines[b]}
}

// find returns the slot of a hash, or nil. It looks at both lines in turn, so that the
// processor fetches both at once.
func (st *stripe) find(hash uint64) *slot {
	tag := hash << 16
	a, b := st.pair(tag)
	first, second := &st.lines[a], &st.lines[b]
	for i := range first {
		if sl := &first[i]; (sl.tag^tag)>>16 == 0 && sl.state != 0 {
			return sl
		}
		if sl := &second[i]; (sl.tag^tag)>>16 == 0 && sl.state != 0 {
			return sl
		}
	}
	return nil
}

// insert keeps the state of an op that has no slot, in one or aside.
func (s *Store) insert(o *op, now int64, c *sluice.Charge) {
	if c.Plan.Kernel == sluice.Units {
		s.setLog(o, c.Plan)
		return
	}
	if o.next == o.old {
		return
	}
	word, ok := o.layout.pack(o.next)
	if !ok {
		s.setState(o, c.Plan)
		return
	}
	if o.aside != nil {
		s.removeAside(o.stripe, o.hash, o.held)
	}
	if word != 0 {
		tag := o.hash<<16 | o.layout.index
		*s.room(o.stripe, tag, now) = slot{word, tag}
	}
}

var drained = rank{}

// rank orders states by how little is lost with them: what is used of the capacity in
// 1024ths, then the time at which they are empty. Free is -1, drained 0, all else above.
type rank struct{ used, until int64 }

func (r rank) less(o rank) bool {
	return r.used < o.used || r.used == o.used && r.until < o.until
}

func (s *Store) rank(sl *slot, now int64) rank {
	if sl.state == 0 {
		return rank{used: -1}
	}
	l := s.layoutOf(sl, never)
	return rankOf(l.plan, l.unpack(sl.state, now), now)
}

func rankOf(p *sluice.Plan, s sluice.State, now int64) rank {
	until := p.EmptyAt(s)
	if until <= now {
		return drained
	}
	var r sluice.Receipt
	p.Step(s, now, 0, &r)
	return rank{used(p, r), until}
}

// used returns what is used of a plan in 1024ths of its capacity, and at least 1.
func used(p *sluice.Plan, r sluice.Receipt) int64 {
	if p.Kernel == sluice.Meter {
		return max(1, r.Used<<10/p.Size)
	}
	return max(1, (p.Capacity-p.Decide(0, r).Remaining)<<10/p.Capacity)
}

// room returns the slot in which a new tag may be written: a free one, else one that has
// drained, else one of a larger table, else that of the state that matters least.
func (s *Store) room(st *stripe, tag uint64, now int64) *slot {
	for {
		if sl := st.free(tag); sl != nil {
			return sl
		}
		if sl := st.shift(tag); sl != nil {
			return sl
		}
		at, r := s.least(st, tag, now)
		if r.used <= 0 {
			return at.clear()
		}
		if !st.grow(s.maxLines) {
			s.evicted.Add(1)
			return at.clear()
		}
	}
}

// place is a slot that a new tag may have. If moved is not nil, that is the tag's own,
// and what is there goes to slot.
type place struct{ slot, moved *slot }

// clear returns the slot that is free then.
func (p place) clear() *slot {
	if p.moved == nil {
		return p.slot
	}
	*p.slot = *p.moved
	return p.moved
}

// trifling is a debt, in 1024ths, of a state that may be evicted before all that could
// take its place have been looked at.
const trifling = 128

// least returns the place of the lowest rank for a tag: in its own two lines, or, if
// these have nothing drained, in the lines that their slots could move to.
func (s *Store) least(st *stripe, tag uint64, now int64) (at place, lowest rank) {
	lowest.used = math.MaxInt64
	own, enough := st.both(tag), int64(0)
	if len(st.lines) == s.maxLines {
		enough = trifling
	}
	for _, ln := range own {
		for i := range ln {
			if r := s.rank(&ln[i], now); r.less(lowest) {
				at, lowest = place{slot: &ln[i]}, r
			}
		}
	}
	for _, ln := range own {
		for i := range ln {
			if lowest.used <= enough {
				return at, lowest
			}
			other := st.other(ln[i].tag, ln)
			for j := range other {
				if r := s.rank(&other[j], now); r.less(lowest) {
					at, lowest = place{slot: &other[j], moved: &ln[i]}, r
				}
			}
		}
	}
	return at, lowest
}

// other returns the line where what is in a line could be too.
func (st *stripe) other(tag uint64, in *line) *line {
	a, b := st.pair(tag)
	if in == &st.lines[a] {
		return &st.lines[b]
	}
	return &st.lines[a]
}

// grow makes the table larger, by a quarter or what it takes, and reports whether that
// was possible within maxLines.
func (st *stripe) grow(maxLines int) bool {
	for n := len(st.lines); n < maxLines; {
		if n < 16 {
			n *= 2
		} else {
			n += n / 4
		}
		// The allocator rounds up, and it is ours.
		lines := slices.Grow([]line(nil), min(n, maxLines))
		n = min(cap(lines), maxLines)
		larger := stripe{lines: lines[:n]}
		clear(larger.lines)
		if larger.fill(st.lines) {
			st.lines, st.packed = larger.lines, false
			return true
		}
	}
	return false
}

// fill puts what is in lines into an empty table, and reports whether there was room.
func (st *stripe) fill(lines []line) bool {
	for i := range lines {
		for _, sl := range lines[i] {
			if sl.state == 0 {
				continue
			}
			to := st.free(sl.tag)
			if to == nil {
				to = st.shift(sl.tag)
			}
			if to == nil {
				return false
			}
			*to = sl
		}
	}
	return true
}

// free returns a free slot of a tag, or nil.
func (st *stripe) free(tag uint64) *slot {
	for _, ln := range st.both(tag) {
		if sl := ln.free(); sl != nil {
			return sl
		}
	}
	return nil
}

func (ln *line) free() *slot {
	for i := range ln {
		if ln[i].state == 0 {
			return &ln[i]
		}
	}
	return nil
}

// shift returns a slot of a tag that it has made free by moving what is there to its
// other line, and what is there on, or nil. Once that has failed it is not tried again
// until the table grows.
func (st *stripe) shift(tag uint64) *slot {
	if st.packed {
		return nil
	}
	for _, ln := range st.both(tag) {
		if sl := st.vacate(ln, 3); sl != nil {
			return sl
		}
	}
	st.packed = true
	return nil
}

// vacate makes a slot of a line free with at most that many moves, and returns it or nil.
// Three moves are too few to come back to where they began.
func (st *stripe) vacate(ln *line, moves int) *slot {
	if sl := ln.free(); sl != nil || moves == 0 {
		return sl
	}
	for i := range ln {
		if to := st.vacate(st.other(ln[i].tag, ln), moves-1); to != nil {
			*to, ln[i] = ln[i], slot{}
			return &ln[i]
		}
	}
	return nil
}
