package memory

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"
)

const (
	bucketBytes  = 64
	firstBuckets = 2
)

// stripe is a table of its own with a lock of its own, for all but the states of known keys:
// see slot. A key has two lines where it can be, given by its tag, so that a slot can be moved
// without knowing the key.
type stripe struct {
	mu sync.Mutex
	// The first line and how many there are. Tables only grow, and the line is written
	// before the number: who reads the number first never reads beyond the table.
	first    atomic.Pointer[bucket]
	n        atomic.Uint32
	stuck    bool // there is no use in shifting
	overflow *overflowTable
}

func (st *stripe) table() []bucket {
	n := st.n.Load()
	return unsafe.Slice(st.first.Load(), n)
}

func (st *stripe) setTable(table []bucket) {
	st.first.Store(&table[0])
	st.n.Store(uint32(len(table)))
}

// both returns the two lines of a tag.
func (st *stripe) buckets(tag uint64) (first, second *bucket) {
	n := uint64(st.n.Load())
	a := tag >> 48 * n >> 16
	b := a + 1 + tag>>32&0xffff*(n-1)>>16
	if b >= n {
		b -= n
	}
	table := unsafe.Pointer(st.first.Load())
	return (*bucket)(unsafe.Add(table, a*bucketBytes)), (*bucket)(unsafe.Add(table, b*bucketBytes))
}

// touch reads the lines of a hash, for the processor to fetch them while others are looked for.
func (o *op) prefetch() {
	first, second := o.buckets(o.hash << 16)
	o.tag, o.word = first[0].tag.Load(), second[0].tag.Load()
}

// find returns the slot of a tag and its word, or nil. It needs no lock. The second line is read
// only for what is not in the first, which is where it is put if there is room.
func (st *stripe) find(tag uint64) (*cell, uint64) {
	first, second := st.buckets(tag)
	for _, b := range [...]*bucket{first, second} {
		for i := range b {
			if c := &b[i]; c.tag.Load() == tag {
				// The tag is still the same: so it was when the word was read.
				if w := c.load(); w != free && c.tag.Load() == tag {
					return c, w
				}
			}
		}
	}
	return nil, free
}

// findHash returns the slot of a hash, whatever plan packed its state, or nil. The caller has
// the lock.
func (st *stripe) findHash(hash uint64) *cell {
	tag := hash << 16
	first, second := st.buckets(tag)
	for _, b := range [...]*bucket{first, second} {
		for i := range b {
			if c := &b[i]; (c.tag.Load()^tag)>>16 == 0 && c.load() != free {
				return c
			}
		}
	}
	return nil
}

// room returns the slot in which a new tag may be put: a free one, else one that has drained,
// else one of a larger table, else that of the state that matters least. It returns nil where
// that one is spent, and the store is not to forget such states for new ones.
func (s *Store) cellFor(st *stripe, tag uint64, now int64) *cell {
	for {
		if c := st.freeCell(tag); c != nil {
			return c
		}
		if c := st.displace(tag); c != nil {
			return c
		}
		at, r := s.victim(st, tag, now)
		switch {
		case r > drained && st.grow(s.maxBuckets):
		case at.cell == nil: // all are busy, which does not last
			runtime.Gosched()
		case r >= overHalf && s.refuse:
			return nil
		case at.evict():
			s.countEvicted(r)
			return at.makeWay()
		}
	}
}

// full reports whether room would have to forget a state that is spent.
func (s *Store) full(st *stripe, tag uint64, now int64) bool {
	if int(st.n.Load()) < s.maxBuckets || st.freeCell(tag) != nil || st.displace(tag) != nil {
		return false
	}
	_, r := s.victim(st, tag, now)
	return r >= overHalf && r != unevictable
}

// place is a slot that a new tag may have, and its word when it was chosen. What is in via,
// if that is not nil, moves on to make it so: what is in via[0] to via[1], or if that is nil
// to slot, and what is in via[1] to slot.
type victim struct {
	cell *cell
	word uint64
	via  [2]*cell
}

// evict makes slot free, unless its state has changed.
func (v victim) evict() bool { return v.cell.word.CompareAndSwap(v.word, free) }

// clear returns the slot that is free then.
func (v victim) makeWay() *cell {
	for _, from := range [...]*cell{v.via[1], v.via[0]} {
		if from != nil {
			from.move(v.cell)
			v.cell = from
		}
	}
	return v.cell
}

// least returns the place of the lowest rank for a tag: in its own two lines, or, if
// these have nothing drained, in the lines that their slots could move to. If all that are
// spent it goes on to where the slots of those lines could move to, which makes some 170 slots
// in all. So a spent state is not forgotten where three quarters of a store are spent, and
// seldom where nine tenths are.
func (s *Store) victim(st *stripe, tag uint64, now int64) (victim, priority) {
	first, second := st.buckets(tag)
	l := search{priority: unevictable, from: int(tag >> 16), now: now}
	enough := drained
	if int(st.n.Load()) == s.maxBuckets {
		enough = negligible
	}
	own := [...]*bucket{first, second}
	for _, b := range own {
		s.consider(&l, b, [2]*cell{})
	}
	for _, b := range own {
		for i := range b {
			if l.priority <= enough {
				return l.victim, l.priority
			}
			s.consider(&l, st.alternate(&b[i], b), [2]*cell{&b[i]})
		}
	}
	for _, b := range own {
		for i := 0; i < len(b) && l.priority >= overHalf; i++ {
			other := st.alternate(&b[i], b)
			for j := range other {
				s.consider(&l, st.alternate(&other[j], other), [2]*cell{&b[i], &other[j]})
			}
		}
	}
	return l.victim, l.priority
}

// lowest is the least that was found by now. In each line the search begins somewhere else, so
// that of equals any may go.
type search struct {
	victim
	priority priority
	from     int
	now      int64
}

// lower looks for a lower rank in a line.
func (s *Store) consider(l *search, b *bucket, via [2]*cell) {
	for i := range b {
		c := &b[(l.from+i)&(len(b)-1)]
		word := c.word.Load() // the one that evict compares with: it must not be busy
		if r := s.priority(word, c.tag.Load(), l.now); r < l.priority {
			l.victim, l.priority = victim{c, word, via}, r
		}
	}
}

// other returns the line where what is in a slot of a line could be too.
func (st *stripe) alternate(c *cell, in *bucket) *bucket {
	a, b := st.buckets(c.tag.Load())
	if in == a {
		return b
	}
	return a
}

// grow makes the table larger, by a quarter or what it takes, and reports whether that
// was possible within maxLines.
func (st *stripe) grow(maxBuckets int) bool {
	old := st.table()
	for n := len(old); n < maxBuckets; {
		if n < 16 {
			n *= 2
		} else {
			n += n / 4
		}
		// The allocator rounds up, and it is ours.
		table := slices.Grow([]bucket(nil), min(n, maxBuckets))
		n = min(cap(table), maxBuckets)
		clear(table[:n])
		var larger stripe
		larger.setTable(table[:n])
		if larger.reserve(old) {
			larger.adopt(old)
			st.setTable(table[:n])
			st.stuck = false
			return true
		}
	}
	return false
}

// reserved is the word of a slot for which there is a state to come.
const reserved = busy + 1

// reserve reserves slots for all that is in lines in an empty table that nobody else has, and
// reports whether there was room.
func (st *stripe) reserve(table []bucket) bool {
	for i := range table {
		for j := range table[i] {
			c := &table[i][j]
			if c.word.Load() == free {
				continue
			}
			tag := c.tag.Load()
			to := st.freeCell(tag)
			if to == nil {
				to = st.displace(tag)
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
func (st *stripe) adopt(table []bucket) {
	for i := range table {
		for j := range table[i] {
			if w := table[i][j].take(); w != free {
				to, _ := st.find(table[i][j].tag.Load())
				to.word.Store(w)
			}
		}
	}
	// What was given back since there was no need to reserve.
	all := st.table()
	for i := range all {
		for j := range all[i] {
			if c := &all[i][j]; c.word.Load() == reserved {
				c.word.Store(free)
			}
		}
	}
}

// free returns a free slot of a tag, or nil.
func (st *stripe) freeCell(tag uint64) *cell {
	first, second := st.buckets(tag)
	if c := first.freeCell(); c != nil {
		return c
	}
	return second.freeCell()
}

func (b *bucket) freeCell() *cell {
	for i := range b {
		if b[i].word.Load() == free {
			return &b[i]
		}
	}
	return nil
}

// shift returns a slot of a tag that it has made free by moving what is there to its
// other line, and what is there on, or nil. Once that has failed it is not tried again
// until the table grows.
func (st *stripe) displace(tag uint64) *cell {
	if st.stuck {
		return nil
	}
	first, second := st.buckets(tag)
	for _, b := range [...]*bucket{first, second} {
		if c := st.vacate(b, 3); c != nil {
			return c
		}
	}
	st.stuck = true
	return nil
}

// vacate makes a slot of a line free with at most that many moves, and returns it or nil.
// Three moves are too few to come back to where they began.
func (st *stripe) vacate(b *bucket, moves int) *cell {
	if c := b.freeCell(); c != nil || moves == 0 {
		return c
	}
	for i := range b {
		if to := st.vacate(st.alternate(&b[i], b), moves-1); to != nil {
			b[i].move(to)
			return &b[i]
		}
	}
	return nil
}
