package memory

import (
	"iter"
	"slices"
)

// entry is an aside, with what is looked for in it, so that a search reads one stretch of memory.
type entry struct {
	hash  uint64
	rank  rank  // when it was last changed: since then it can only have become less
	until int64 // when it is empty, in microseconds since the epoch
	aside *aside
}

// at returns the rank, or that of what has drained by then.
func (e *entry) at(now int64) rank {
	if e.until <= now {
		return drained
	}
	return e.rank
}

// stripeAsides are the asides of a stripe, under its lock: a hash table with linear probing, in
// which what lies behind something that goes moves up.
type stripeAsides struct {
	entries []entry // those without an aside are free
	n       int     // how many are not
	sweep   int     // the n at which those that have drained are looked for
}

const (
	leastEntries = 4
	leastSweep   = 8 // how many asides are worth being looked at
)

func newStripeAsides() *stripeAsides {
	sa := &stripeAsides{sweep: leastSweep}
	sa.rebuild(nil, 0)
	return sa
}

func (sa *stripeAsides) bytes() int64 { return int64(cap(sa.entries)) * entryBytes }

// home returns where a hash is looked for first. The higher bits have chosen the stripe.
func (sa *stripeAsides) home(hash uint64) int {
	return int(uint64(uint32(hash)) * uint64(len(sa.entries)) >> 32)
}

func (sa *stripeAsides) next(i int) int {
	if i++; i < len(sa.entries) {
		return i
	}
	return 0
}

// add adds an entry. At most four of five places are used.
func (sa *stripeAsides) add(e entry) {
	if 5*(sa.n+1) > 4*len(sa.entries) {
		sa.rebuild(sa.entries, sa.n+1)
	}
	sa.put(e)
	sa.n++
}

func (sa *stripeAsides) put(e entry) {
	i := sa.home(e.hash)
	for sa.entries[i].aside != nil {
		i = sa.next(i)
	}
	sa.entries[i] = e
}

// find returns the place of an aside that is there.
func (sa *stripeAsides) find(hash uint64, a *aside) int {
	i := sa.home(hash)
	for sa.entries[i].aside != a {
		i = sa.next(i)
	}
	return i
}

// rebuild makes a table with room for n, and half as many again, of what is in entries.
func (sa *stripeAsides) rebuild(entries []entry, n int) {
	larger := slices.Grow([]entry(nil), max(leastEntries, n+n/2+1))
	sa.entries = larger[:cap(larger)] // the allocator rounds up, and it is ours
	clear(sa.entries)
	for _, e := range entries {
		if e.aside != nil {
			sa.put(e)
		}
	}
}

// remove removes the entry at a place. A table that is nearly empty becomes smaller.
func (sa *stripeAsides) remove(at int) {
	for i := sa.next(at); sa.entries[i].aside != nil; i = sa.next(i) {
		// What is at i may move to at unless its home is behind that.
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
	if len(sa.entries) > 4*leastEntries && 5*sa.n < len(sa.entries) {
		sa.rebuild(sa.entries, sa.n)
	}
}

// least returns the place of the least rank, that rank, and when the first is empty: of
// nothing, most. Where all were spent when they were last changed, it looks at what they are
// now.
func (sa *stripeAsides) least(now int64) (at int, r rank, soonest int64) {
	at, r, soonest = sa.scan(now)
	if r < spent || r == most {
		return at, r, soonest
	}
	for i := range sa.entries {
		if e := &sa.entries[i]; e.aside != nil {
			e.rank, e.until = e.aside.rank(now)
		}
	}
	return sa.scan(now)
}

func (sa *stripeAsides) scan(now int64) (at int, lowest rank, soonest int64) {
	lowest, soonest = most, latest
	for i := range sa.entries {
		e := &sa.entries[i]
		if e.aside == nil {
			continue
		}
		soonest = min(soonest, e.until)
		if r := e.at(now); r < lowest {
			at, lowest = i, r
		}
	}
	return at, lowest, soonest
}

// eachAside yields the asides of a stripe. The caller has the lock.
func (st *stripe) eachAside() iter.Seq[*aside] {
	return func(yield func(*aside) bool) {
		if st.asides == nil {
			return
		}
		for _, e := range st.asides.entries {
			if e.aside != nil && !yield(e.aside) {
				return
			}
		}
	}
}
