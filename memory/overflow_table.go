package memory

import (
	"iter"
	"slices"
)

// entry is a record with copies of the fields that searches read, so that a search reads one stretch of memory.
type entry struct {
	hash     uint64
	priority priority // as of the record's last change; the present priority can only be lower
	until    int64    // when the record will be empty, in microseconds since the epoch
	record   *record
}

// at returns the priority at a time: drained if the record has drained by then, the next higher priority if the
// record is a penalty that has ended, and otherwise the stored priority.
func (e *entry) at(now int64) priority {
	switch {
	case e.until <= now:
		return drained
	case e.priority >= overHalf && e.priority.time() <= now:
		return drained + 1
	}
	return e.priority
}

// overflowTable contains the records of a stripe, under the stripe's lock. It is a hash table with linear probing,
// without tombstones: a removal moves later entries up.
type overflowTable struct {
	entries []entry // an entry without a record is free
	n       int     // number of entries in use
	sweep   int     // the n at which Store.sweep searches for drained records
}

const (
	minEntries = 4
	minSweep   = 8 // the smallest number of records worth a sweep
)

func newOverflowTable() *overflowTable {
	sa := &overflowTable{sweep: minSweep}
	sa.rebuild(nil, 0)
	return sa
}

func (sa *overflowTable) bytes() int64 { return int64(cap(sa.entries)) * entryBytes }

// home returns the index at which the search for a hash starts. The higher bits have already chosen the stripe.
func (sa *overflowTable) home(hash uint64) int {
	return int(uint64(uint32(hash)) * uint64(len(sa.entries)) >> 32)
}

func (sa *overflowTable) next(i int) int {
	if i++; i < len(sa.entries) {
		return i
	}
	return 0
}

// add adds an entry. At most four fifths of the table are used.
func (sa *overflowTable) add(e entry) {
	if 5*(sa.n+1) > 4*len(sa.entries) {
		sa.rebuild(sa.entries, sa.n+1)
	}
	sa.put(e)
	sa.n++
}

func (sa *overflowTable) put(e entry) {
	i := sa.home(e.hash)
	for sa.entries[i].record != nil {
		i = sa.next(i)
	}
	sa.entries[i] = e
}

// find returns the index of a record, which must be in the table.
func (sa *overflowTable) find(hash uint64, a *record) int {
	i := sa.home(hash)
	for sa.entries[i].record != a {
		i = sa.next(i)
	}
	return i
}

// rebuild makes a table of the given entries, with room for n and half as many again.
func (sa *overflowTable) rebuild(entries []entry, n int) {
	larger := slices.Grow([]entry(nil), max(minEntries, n+n/2+1))
	sa.entries = larger[:cap(larger)] // use all that the allocator has rounded up to
	clear(sa.entries)
	for _, e := range entries {
		if e.record != nil {
			sa.put(e)
		}
	}
}

// remove removes the entry at an index. A table that is nearly empty becomes smaller.
func (sa *overflowTable) remove(at int) {
	for i := sa.next(at); sa.entries[i].record != nil; i = sa.next(i) {
		// The entry at index i can move to index at, unless its home is after at.
		home := sa.home(sa.entries[i].hash)
		behind := at < home && home <= i
		if i < at {
			behind = at < home || home <= i
		}
		if !behind {
			sa.entries[at], at = sa.entries[i], i
		}
	}
	sa.entries[at] = entry{}
	sa.n--
	if len(sa.entries) > 4*minEntries && 5*sa.n < len(sa.entries) {
		sa.rebuild(sa.entries, sa.n)
	}
}

// victim returns the index of the record with the lowest priority, that priority, and when the first record drains.
// If all records had used more than half of their limits when they were last changed, it updates their priorities
// first.
func (sa *overflowTable) victim(now int64) (at int, r priority, soonest int64) {
	at, r, soonest = sa.scan(now)
	if r < overHalf || r == unevictable {
		return at, r, soonest
	}
	for i := range sa.entries {
		if e := &sa.entries[i]; e.record != nil {
			e.priority, e.until = e.record.priority(now)
		}
	}
	return sa.scan(now)
}

func (sa *overflowTable) scan(now int64) (at int, lowest priority, soonest int64) {
	lowest, soonest = unevictable, latest
	for i := range sa.entries {
		e := &sa.entries[i]
		if e.record == nil {
			continue
		}
		soonest = min(soonest, e.until)
		if r := e.at(now); r < lowest {
			at, lowest = i, r
		}
	}
	return at, lowest, soonest
}

// eachRecord yields the records of a stripe. The caller has the lock.
func (st *stripe) eachRecord() iter.Seq[*record] {
	return func(yield func(*record) bool) {
		if st.overflow == nil {
			return
		}
		for _, e := range st.overflow.entries {
			if e.record != nil && !yield(e.record) {
				return
			}
		}
	}
}
