package memory

import (
	"math/bits"
	"runtime"
	"sync"
)

// stripe is a bucketized cuckoo hash table. The state of a key is in one of two buckets, which follow from its tag.
// So a state can be moved without its key, which the store does not keep. The lock protects everything but the
// states of known keys: see cell.
type stripe struct {
	mu       sync.Mutex
	tables   *tables // contain the buckets
	overflow *overflowTable
	number   uint32
	stuck    bool // displace found no free cell, and does not search again until the table grows
}

func (st *stripe) size() uint32 { return st.tables.size(uint64(st.number)).buckets() }

// buckets returns the two buckets of a tag.
func (st *stripe) buckets(tag uint64) (first, second *bucket) {
	return st.tables.buckets(uint64(st.number), tag)
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

// cellFor returns a cell for a new tag. In this order, it uses a free cell, a cell with a drained state, a cell of
// a larger table, or the victim's cell. While tables are small, it makes a larger table before it uses a drained
// cell. It returns nil if the victim has used more than half of its limit and the store refuses new keys instead.
func (s *Store) cellFor(st *stripe, tag uint64, now int64) *cell {
	for {
		if c := st.freeCell(tag); c != nil {
			return c
		}
		if st.grow() {
			continue
		}
		if c := st.displace(tag); c != nil {
			return c
		}
		if st.tables.small(st.size()) && st.tables.add(st.size()) {
			continue
		}
		at, r := s.victim(st, tag, now)
		switch {
		case r > drained && st.tables.add(st.size()):
		case at.cell == nil: // all cells are busy, for a short time
			runtime.Gosched()
		case r >= overHalf && s.refuse:
			return nil
		case at.evict():
			s.countEvicted(r)
			return at.makeWay()
		}
	}
}

// full reports whether cellFor would have to evict a state that has used more than half of its limit. It moves no
// states: the caller has claimed cells, and to move a claimed cell, full would have to wait for the end of the
// claim.
func (s *Store) full(st *stripe, tag uint64, now int64) bool {
	if !st.tables.full(st.size()) || st.freeCell(tag) != nil {
		return false
	}
	_, r := s.victim(st, tag, now)
	return r >= overHalf && r != unevictable
}

// victim is a cell to evict, and its word when it was chosen. It can be one or two moves away from the new key:
// then the state in via[1] moves to cell, and the state in via[0] moves to via[1], or to cell if via[1] is nil.
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

// victim returns the state of lowest priority that could give way to a tag. It searches the tag's own two buckets.
// If they have no state that can be evicted at once, it also searches the buckets that their states could move to.
// If all of these states have used more than half of their limits, it also searches the buckets one move further,
// some 170 cells in all. So no state that has used more than half is evicted while such states fill up to seven
// tenths of a store (eight tenths of a large one), and few are evicted while they fill nine tenths.
func (s *Store) victim(st *stripe, tag uint64, now int64) (victim, priority) {
	first, second := st.buckets(tag)
	l := search{priority: unevictable, from: int(tag >> 16), now: now}
	enough := drained
	if st.tables.full(st.size()) {
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

// search is the best victim so far. In each bucket, the search starts at a cell that depends on the tag, so that of
// several states with the same priority, any can be the victim.
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
		word := c.word.Load() // evict compares with this word: it must not be busy
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

// grow makes the table use all allocated planes, and reports false if it already did.
func (st *stripe) grow() bool {
	size, made := st.size(), st.tables.made.Load()
	for n := size; n < made; n++ {
		st.split(n)
	}
	st.stuck = st.stuck && size == made
	return size < made
}

// split adds bucket n, and moves the states that belong in it from the one bucket that contains all of them.
// Meanwhile, calls for a state in either bucket wait for the lock.
func (st *stripe) split(n uint32) {
	t, stripe := st.tables, uint64(st.number)
	from := uint32(1)<<(bits.Len32(n)-1) ^ n
	size := sizeOf(n + 1)
	t.sizes[stripe].Store(uint32(size))
	old, added := t.bucket(stripe, from), t.bucket(stripe, n)
	for i := range old {
		c := &old[i]
		if c.word.Load() == free {
			continue
		}
		if a, b := size.places(c.tag.Load()); a != from && b != from {
			c.move(&added[i])
		}
	}
}

// freeCell returns a free cell for a tag, or nil.
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

// displace frees a cell for a tag, and returns it, or nil. It moves the cell's state to its alternate bucket; if
// that bucket is full, it first moves a state out of it. After a failure, it does not try again until the table
// grows. It looks for a single move first: the buckets for that are known at once, so the processor fetches them
// together.
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

// vacate frees a cell of a bucket with one move, and returns the cell, or nil.
func (st *stripe) vacate(b *bucket) *cell {
	for i := range b {
		if to := st.alternate(&b[i], b).freeCell(); to != nil {
			b[i].move(to)
			return &b[i]
		}
	}
	return nil
}
