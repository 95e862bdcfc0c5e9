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

// stripe is a bucketized cuckoo hash table. A key may be in either of two buckets, which follow
// from its tag, so that a state can move without its key being known. The lock is for everything
// but the states of known keys: see cell.
type stripe struct {
	mu sync.Mutex
	// The first bucket and their number. Tables only grow, and the pointer is written before
	// the number, so a reader that loads the number first never reads beyond the table.
	first    atomic.Pointer[bucket]
	n        atomic.Uint32
	stuck    bool // displacing found no free cell, and will not until the table grows
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

// buckets returns the two buckets of a tag.
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

// prefetch reads the buckets of a hash, so that the processor fetches those of all charges at once.
func (o *op) prefetch() {
	first, second := o.buckets(o.hash << 16)
	o.tag, o.word = first[0].tag.Load(), second[0].tag.Load()
}

// find returns the cell of a tag and its word, or nil. It needs no lock. A state is put into its
// first bucket where there is room, so the second is read only if it is not there.
func (st *stripe) find(tag uint64) (*cell, uint64) {
	first, second := st.buckets(tag)
	for _, b := range [...]*bucket{first, second} {
		for i := range b {
			if c := &b[i]; c.tag.Load() == tag {
				// The tag has not changed, so the word is that tag's.
				if w := c.load(); w != free && c.tag.Load() == tag {
					return c, w
				}
			}
		}
	}
	return nil, free
}

// findHash returns the cell of a hash, whichever plan packed its state, or nil. The caller has
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

// cellFor returns a cell for a new tag: a free one, else one that has drained, else one of a
// larger table, else the victim's. It returns nil if the victim has used more than half of its
// limit and the store refuses new keys instead.
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

// full reports whether cellFor would have to evict a state that has used more than half. It moves
// nothing, since the caller has claimed cells, and to move one waits for the end of its claim.
func (s *Store) full(st *stripe, tag uint64, now int64) bool {
	if int(st.n.Load()) < s.maxBuckets || st.freeCell(tag) != nil {
		return false
	}
	_, r := s.victim(st, tag, now)
	return r >= overHalf && r != unevictable
}

// victim is a cell to evict, and its word when it was chosen. It may be one or two moves away from
// the new key: then the state in via[1] moves to cell, and that in via[0] to via[1], or to cell
// if via[1] is nil.
type victim struct {
	cell *cell
	word uint64
	via  [2]*cell
}

// evict frees the cell, unless its state has changed.
func (v victim) evict() bool { return v.cell.word.CompareAndSwap(v.word, free) }

// makeWay makes the moves, and returns the cell that is free for the new key.
func (v victim) makeWay() *cell {
	for _, from := range [...]*cell{v.via[1], v.via[0]} {
		if from != nil {
			from.move(v.cell)
			v.cell = from
		}
	}
	return v.cell
}

// victim returns the state of lowest priority that could give way to a tag: in its own two
// buckets; if nothing there may go at once, in the buckets that their states could move to; and
// if all of these have used more than half, in those one move further, some 170 cells in all. So
// nothing that has used more than half is evicted while such states fill three quarters of a
// store, and hardly any while they fill nine tenths.
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

// search is the victim so far. Each bucket is searched from another cell on, so that of equals
// any may go.
type search struct {
	victim
	priority priority
	from     int
	now      int64
}

// consider looks for a lower priority in a bucket.
func (s *Store) consider(l *search, b *bucket, via [2]*cell) {
	for i := range b {
		c := &b[(l.from+i)&(len(b)-1)]
		word := c.word.Load() // the one that evict compares with: it must not be busy
		if r := s.priority(word, c.tag.Load(), l.now); r < l.priority {
			l.victim, l.priority = victim{c, word, via}, r
		}
	}
}

// alternate returns the other bucket of the state in a cell of a bucket.
func (st *stripe) alternate(c *cell, in *bucket) *bucket {
	a, b := st.buckets(c.tag.Load())
	if in == a {
		return b
	}
	return a
}

// grow makes the table larger, by a fifth or as much as it takes, and reports whether it could
// within maxBuckets.
func (st *stripe) grow(maxBuckets int) bool {
	old := st.table()
	for n := len(old); n < maxBuckets; {
		if n < 16 {
			n *= 2
		} else {
			n += n / 5
		}
		// The allocator rounds up, and it is ours.
		table := slices.Grow([]bucket(nil), min(n, maxBuckets))
		n = min(cap(table), maxBuckets)
		clear(table[:n])
		var larger stripe
		larger.setTable(table[:n])
		if larger.adopt(old) {
			st.setTable(table[:n])
			st.stuck = false
			return true
		}
	}
	return false
}

// adopt moves all states of another table into an empty one that nobody else has yet, and reports
// whether there was room: else they are back where they were. Whoever looks for them meanwhile waits
// for the lock.
func (st *stripe) adopt(table []bucket) bool {
	for i := range table {
		for j := range table[i] {
			c := &table[i][j]
			w := c.take()
			if w == free {
				continue
			}
			tag := c.tag.Load()
			to := st.freeCell(tag)
			if to == nil {
				to = st.displace(tag)
			}
			if to == nil {
				c.word.Store(w)
				st.giveBack(table)
				return false
			}
			to.put(w, tag)
		}
	}
	return true
}

// giveBack moves the states that came from another table back into it. Of two cells with the tag
// of a state, which it has moved between, either will do.
func (st *stripe) giveBack(table []bucket) {
	for i := range table {
		for j := range table[i] {
			c := &table[i][j]
			if c.word.Load() != free {
				continue
			}
			if from, w := st.find(c.tag.Load()); from != nil {
				from.take()
				c.word.Store(w)
			}
		}
	}
}

// freeCell returns a free cell of a tag, or nil.
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

// displace frees a cell of a tag by moving its state to its alternate bucket, after another there
// if need be, and returns the cell, or nil. Once that has failed it is not tried again until the
// table grows. It looks at what takes one move first: the buckets to look at are then known at
// once, and the processor fetches them together.
func (st *stripe) displace(tag uint64) *cell {
	if st.stuck {
		return nil
	}
	first, second := st.buckets(tag)
	own := [...]*bucket{first, second}
	for _, b := range own {
		for i := range b {
			if to := st.alternate(&b[i], b).freeCell(); to != nil {
				b[i].move(to)
				return &b[i]
			}
		}
	}
	for _, b := range own {
		for i := range b {
			if via := st.vacate(st.alternate(&b[i], b)); via != nil {
				b[i].move(via)
				return &b[i]
			}
		}
	}
	st.stuck = true
	return nil
}

// vacate frees a cell of a bucket with one move, and returns it or nil.
func (st *stripe) vacate(b *bucket) *cell {
	for i := range b {
		if to := st.alternate(&b[i], b).freeCell(); to != nil {
			b[i].move(to)
			return &b[i]
		}
	}
	return nil
}
