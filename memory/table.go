package memory

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"
)

const (
	lineBytes  = 64
	firstLines = 2
)

// stripe is a table of its own with a lock of its own, for all but the states of known keys:
// see slot. A key has two lines where it can be, given by its tag, so that a slot can be moved
// without knowing the key.
type stripe struct {
	mu sync.Mutex
	// The first line and how many there are. Tables only grow, and the line is written
	// before the number: who reads the number first never reads beyond the table.
	first  atomic.Pointer[line]
	n      atomic.Uint32
	packed bool // there is no use in shifting
	asides *stripeAsides
}

func (st *stripe) lines() []line {
	n := st.n.Load()
	return unsafe.Slice(st.first.Load(), n)
}

func (st *stripe) setLines(lines []line) {
	st.first.Store(&lines[0])
	st.n.Store(uint32(len(lines)))
}

// both returns the two lines of a tag.
func (st *stripe) both(tag uint64) (first, second *line) {
	n := uint64(st.n.Load())
	a := tag >> 48 * n >> 16
	b := a + 1 + tag>>32&0xffff*(n-1)>>16
	if b >= n {
		b -= n
	}
	lines := unsafe.Pointer(st.first.Load())
	return (*line)(unsafe.Add(lines, a*lineBytes)), (*line)(unsafe.Add(lines, b*lineBytes))
}

// touch reads the lines of a hash, for the processor to fetch them while others are looked for.
func (o *op) touch() {
	first, second := o.both(o.hash << 16)
	o.tag, o.word = first[0].tag.Load(), second[0].tag.Load()
}

// find returns the slot of a tag and its word, or nil. It needs no lock. The second line is read
// only for what is not in the first, which is where it is put if there is room.
func (st *stripe) find(tag uint64) (*slot, uint64) {
	first, second := st.both(tag)
	for _, ln := range [...]*line{first, second} {
		for i := range ln {
			if sl := &ln[i]; sl.tag.Load() == tag {
				// The tag is still the same: so it was when the word was read.
				if w := sl.load(); w != free && sl.tag.Load() == tag {
					return sl, w
				}
			}
		}
	}
	return nil, free
}

// findHash returns the slot of a hash, whatever plan packed its state, or nil. The caller has
// the lock.
func (st *stripe) findHash(hash uint64) *slot {
	tag := hash << 16
	first, second := st.both(tag)
	for _, ln := range [...]*line{first, second} {
		for i := range ln {
			if sl := &ln[i]; (sl.tag.Load()^tag)>>16 == 0 && sl.load() != free {
				return sl
			}
		}
	}
	return nil
}

// room returns the slot in which a new tag may be put: a free one, else one that has drained,
// else one of a larger table, else that of the state that matters least. It returns nil where
// that one is spent, and the store is not to forget such states for new ones.
func (s *Store) room(st *stripe, tag uint64, now int64) *slot {
	for {
		if sl := st.free(tag); sl != nil {
			return sl
		}
		if sl := st.shift(tag); sl != nil {
			return sl
		}
		at, r := s.least(st, tag, now)
		switch {
		case r > drained && st.grow(s.maxLines):
		case at.slot == nil: // all are busy, which does not last
			runtime.Gosched()
		case r >= spent && s.refuse:
			return nil
		case at.evict():
			s.forgot(r)
			return at.clear()
		}
	}
}

// full reports whether room would have to forget a state that is spent.
func (s *Store) full(st *stripe, tag uint64, now int64) bool {
	if int(st.n.Load()) < s.maxLines || st.free(tag) != nil || st.shift(tag) != nil {
		return false
	}
	_, r := s.least(st, tag, now)
	return r >= spent && r != most
}

// place is a slot that a new tag may have, and its word when it was chosen. What is in via,
// if that is not nil, moves on to make it so: what is in via[0] to via[1], or if that is nil
// to slot, and what is in via[1] to slot.
type place struct {
	slot *slot
	word uint64
	via  [2]*slot
}

// evict makes slot free, unless its state has changed.
func (p place) evict() bool { return p.slot.word.CompareAndSwap(p.word, free) }

// clear returns the slot that is free then.
func (p place) clear() *slot {
	for _, from := range [...]*slot{p.via[1], p.via[0]} {
		if from != nil {
			from.move(p.slot)
			p.slot = from
		}
	}
	return p.slot
}

// least returns the place of the lowest rank for a tag: in its own two lines, or, if
// these have nothing drained, in the lines that their slots could move to. If all that are
// spent it goes on to where the slots of those lines could move to, which makes some 170 slots
// in all. So a spent state is not forgotten where three quarters of a store are spent, and
// seldom where nine tenths are.
func (s *Store) least(st *stripe, tag uint64, now int64) (place, rank) {
	first, second := st.both(tag)
	l := lowest{rank: most, from: int(tag >> 16), now: now}
	enough := drained
	if int(st.n.Load()) == s.maxLines {
		enough = trifling
	}
	own := [...]*line{first, second}
	for _, ln := range own {
		s.lower(&l, ln, [2]*slot{})
	}
	for _, ln := range own {
		for i := range ln {
			if l.rank <= enough {
				return l.place, l.rank
			}
			s.lower(&l, st.other(&ln[i], ln), [2]*slot{&ln[i]})
		}
	}
	for _, ln := range own {
		for i := 0; i < len(ln) && l.rank >= spent; i++ {
			other := st.other(&ln[i], ln)
			for j := range other {
				s.lower(&l, st.other(&other[j], other), [2]*slot{&ln[i], &other[j]})
			}
		}
	}
	return l.place, l.rank
}

// lowest is the least that was found by now. In each line the search begins somewhere else, so
// that of equals any may go.
type lowest struct {
	place
	rank rank
	from int
	now  int64
}

// lower looks for a lower rank in a line.
func (s *Store) lower(l *lowest, ln *line, via [2]*slot) {
	for i := range ln {
		sl := &ln[(l.from+i)&(len(ln)-1)]
		word := sl.word.Load() // the one that evict compares with: it must not be busy
		if r := s.rank(word, sl.tag.Load(), l.now); r < l.rank {
			l.place, l.rank = place{sl, word, via}, r
		}
	}
}

// other returns the line where what is in a slot of a line could be too.
func (st *stripe) other(sl *slot, in *line) *line {
	a, b := st.both(sl.tag.Load())
	if in == a {
		return b
	}
	return a
}

// grow makes the table larger, by a quarter or what it takes, and reports whether that
// was possible within maxLines.
func (st *stripe) grow(maxLines int) bool {
	old := st.lines()
	for n := len(old); n < maxLines; {
		if n < 16 {
			n *= 2
		} else {
			n += n / 4
		}
		// The allocator rounds up, and it is ours.
		lines := slices.Grow([]line(nil), min(n, maxLines))
		n = min(cap(lines), maxLines)
		clear(lines[:n])
		var larger stripe
		larger.setLines(lines[:n])
		if larger.reserve(old) {
			larger.adopt(old)
			st.setLines(lines[:n])
			st.packed = false
			return true
		}
	}
	return false
}

// reserved is the word of a slot for which there is a state to come.
const reserved = busy + 1

// reserve reserves slots for all that is in lines in an empty table that nobody else has, and
// reports whether there was room.
func (st *stripe) reserve(lines []line) bool {
	for i := range lines {
		for j := range lines[i] {
			sl := &lines[i][j]
			if sl.word.Load() == free {
				continue
			}
			tag := sl.tag.Load()
			to := st.free(tag)
			if to == nil {
				to = st.shift(tag)
			}
			if to == nil {
				return false
			}
			to.put(reserved, tag)
		}
	}
	return true
}

// adopt moves what is in lines to the slots that are reserved for it. Those who look for it
// wait for the lock meanwhile.
func (st *stripe) adopt(lines []line) {
	for i := range lines {
		for j := range lines[i] {
			if w := lines[i][j].take(); w != free {
				to, _ := st.find(lines[i][j].tag.Load())
				to.word.Store(w)
			}
		}
	}
	// What was given back since there was no need to reserve.
	all := st.lines()
	for i := range all {
		for j := range all[i] {
			if sl := &all[i][j]; sl.word.Load() == reserved {
				sl.word.Store(free)
			}
		}
	}
}

// free returns a free slot of a tag, or nil.
func (st *stripe) free(tag uint64) *slot {
	first, second := st.both(tag)
	if sl := first.free(); sl != nil {
		return sl
	}
	return second.free()
}

func (ln *line) free() *slot {
	for i := range ln {
		if ln[i].word.Load() == free {
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
	first, second := st.both(tag)
	for _, ln := range [...]*line{first, second} {
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
		if to := st.vacate(st.other(&ln[i], ln), moves-1); to != nil {
			ln[i].move(to)
			return &ln[i]
		}
	}
	return nil
}
