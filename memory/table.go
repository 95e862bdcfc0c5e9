package memory

import (
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/sluicehq/sluice"
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

var drained = rank{}

// rank orders states by how little is lost with them: what is used of the capacity in
// 1024ths, then the time at which they are empty. Free is -1, drained 0, all else above.
type rank struct{ used, until int64 }

func (r rank) less(o rank) bool {
	return r.used < o.used || r.used == o.used && r.until < o.until
}

// most is the rank of nothing.
const most = math.MaxInt64

// rank ranks a word of a slot. One that is busy is in use, and ranks highest of all.
func (s *Store) rank(word, tag uint64, now int64) rank {
	switch word {
	case free:
		return rank{used: -1}
	case busy:
		return rank{used: most}
	}
	l := s.layoutOf(tag, never)
	return rankOf(l.plan, l.unpack(mixed(word, tag), now), now)
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

// room returns the slot in which a new tag may be put: a free one, else one that has drained,
// else one of a larger table, else that of the state that matters least.
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
		case r.used > 0 && st.grow(s.maxLines):
		case at.slot == nil: // all are busy, which does not last
			runtime.Gosched()
		case at.evict():
			if r.used > 0 {
				s.evicted.Add(1)
			}
			return at.clear()
		}
	}
}

// place is a slot that a new tag may have, and its word when it was chosen. If moved is not
// nil, that is the tag's own, and what is there goes to slot.
type place struct {
	slot, moved *slot
	word        uint64
}

// evict makes slot free, unless its state has changed.
func (p place) evict() bool { return p.slot.word.CompareAndSwap(p.word, free) }

// clear returns the slot that is free then.
func (p place) clear() *slot {
	if p.moved == nil {
		return p.slot
	}
	p.moved.move(p.slot)
	return p.moved
}

// trifling is a debt, in 1024ths, of a state that may be evicted before all that could
// take its place have been looked at.
const trifling = 128

// least returns the place of the lowest rank for a tag: in its own two lines, or, if
// these have nothing drained, in the lines that their slots could move to.
func (s *Store) least(st *stripe, tag uint64, now int64) (at place, lowest rank) {
	lowest.used = most
	enough := int64(0)
	if int(st.n.Load()) == s.maxLines {
		enough = trifling
	}
	first, second := st.both(tag)
	for _, ln := range [...]*line{first, second} {
		s.lower(&at, &lowest, ln, nil, now)
	}
	for _, ln := range [...]*line{first, second} {
		for i := range ln {
			if lowest.used <= enough {
				return at, lowest
			}
			s.lower(&at, &lowest, st.other(ln[i].tag.Load(), ln), &ln[i], now)
		}
	}
	return at, lowest
}

// lower moves at to a slot of a line that has a lower rank, if there is one.
func (s *Store) lower(at *place, lowest *rank, ln *line, moved *slot, now int64) {
	for i := range ln {
		word := ln[i].word.Load() // the one that evict compares with: it must not be busy
		if r := s.rank(word, ln[i].tag.Load(), now); r.less(*lowest) {
			*at, *lowest = place{&ln[i], moved, word}, r
		}
	}
}

// other returns the line where what is in a line could be too.
func (st *stripe) other(tag uint64, in *line) *line {
	a, b := st.both(tag)
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
		if to := st.vacate(st.other(ln[i].tag.Load(), ln), moves-1); to != nil {
			ln[i].move(to)
			return &ln[i]
		}
	}
	return nil
}
