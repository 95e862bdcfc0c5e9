package telemetry

import (
	"bytes"
	"cmp"
	"hash/maphash"
	"math"
	"math/bits"
	"slices"
	"time"
	"unsafe"

	"github.com/sluicehq/sluice"
)

// summary counts by key in bounded memory, in such a way that summaries of parts add up to one of
// the whole: the Space-Saving of Metwally, Agrawal and El Abbadi 2005, kept as the "frequent"
// summary of which Agarwal, Cormode, Huang, Phillips, Wei and Yi 2012 show that it is the same, and
// that it can be merged.
//
// For a key that is here, low ≤ true ≤ over+floor; for any other, true ≤ floor. A new key comes with
// low = over = 1. When there is no more room, those with the largest over stay, at least k of
// them; where the largest of the others is c, floor rises by c and each over falls by it, and so
// no bound is broken. Each such step takes c from at least k+1 keys, and what is in all over was
// counted once:
//
//	floor·(k+1) ≤ total − Σ over,   so   floor ≤ total/(k+1)
//
// To merge two is to add their entries, floors and totals, which keeps the bounds and that sum.
// Room is twice k, so that a step is needed once in k new keys.
type summary struct {
	entries []entry  // in the order of their text
	index   []uint16 // by hash: 1 + the place in entries. A power of two, at least twice as many
	text    []byte   // of all keys
	floor   uint64
	total   uint64
	// distinct is of all keys that ever were here, once the entries are not all of them.
	distinct registers
	spare    registers // to be used for it
	known    uint64    // how many there were at least, as others say
}

// entry is what is known of a key.
type entry struct {
	hash        uint64
	low, over   uint64
	first, last int64  // unix milliseconds
	minutes     uint64 // bit i: in a minute that is i modulo 60 since the epoch
	at, size    uint32 // in text
	pulse       pulse  // of the last hour, where that is merged
	blocked     uint32 // of low, by a block
	limit       limit  // the last
	sent        uint16 // bytes behind the key in text: how it was spelled, if otherwise
}

// limit is a number of units in a time, as near as people need it. The zero value is unknown.
type limit struct {
	count   uint32
	seconds float32
}

// limit returns it for people.
func (l limit) limit() sluice.Limit {
	return sluice.Limit{Count: int64(l.count), Period: time.Duration(float64(l.seconds) * float64(time.Second))}
}

// limitOf returns the limit of a plan, unless it counts requests in flight.
func limitOf(p *sluice.Plan) limit {
	if p == nil || p.Limit.Period <= 0 || p.Limit.Count < 1 {
		return limit{}
	}
	return limit{uint32(min(p.Limit.Count, math.MaxUint32)), float32(p.Limit.Period.Seconds())}
}

const (
	entryBytes  = int(unsafe.Sizeof(entry{}))
	mostEntries = 256      // k, where there is memory for it
	leastRoom   = 8        // entries
	mostText    = 64 << 10 // bytes of keys
	maxKey      = 4 << 10  // bytes: eight parts of a key, and the name of its rule. Longer ones are lost
)

var seed = maphash.MakeSeed()

// bytes returns how much memory the summary takes.
func (s *summary) bytes() int {
	return cap(s.entries)*entryBytes + cap(s.index)*2 + cap(s.text) + cap(s.distinct) + cap(s.spare)
}

func (s *summary) key(e *entry) []byte { return s.text[e.at : e.at+e.size] }

// spelled returns the key as it was sent, if it was sent otherwise: one spelling of those that there were.
func (s *summary) spelled(e *entry) []byte { return s.text[e.at+e.size:][:e.sent] }

// reset empties it, and keeps its memory.
func (s *summary) reset() {
	if s.distinct != nil {
		s.spare, s.distinct = s.distinct, nil
	}
	s.entries, s.text = s.entries[:0], s.text[:0]
	clear(s.index)
	s.floor, s.total, s.known = 0, 0, 0
}

// find returns the place in index of a key, or where it would be.
func (s *summary) find(hash uint64, key []byte) (place int, found bool) {
	mask := len(s.index) - 1
	for place = int(hash) & mask; s.index[place] != 0; place = (place + 1) & mask {
		if e := &s.entries[s.index[place]-1]; e.hash == hash && bytes.Equal(s.key(e), key) {
			return place, true
		}
	}
	return place, false
}

// get returns the entry of a key, or nil.
func (s *summary) get(key []byte) *entry {
	if len(s.entries) == 0 {
		return nil
	}
	if place, found := s.find(maphash.Bytes(seed, key), key); found {
		return &s.entries[s.index[place]-1]
	}
	return nil
}

// add adds what is said of a key and how it was spelled, but not to total. It keeps at least k entries if a has memory
// for them; it reports false if a has none at all, and then has added nothing.
func (s *summary) add(key, sent []byte, said *entry, k int, a *account) bool {
	hash := maphash.Bytes(seed, key)
	if len(s.entries) > 0 {
		if place, found := s.find(hash, key); found {
			e := &s.entries[s.index[place]-1]
			e.low += said.low
			e.over += said.over
			if said.limit != (limit{}) && (said.last >= e.last || e.limit == (limit{})) {
				e.limit = said.limit
			}
			e.blocked = addUpTo(e.blocked, said.blocked)
			e.first, e.last = min(e.first, said.first), max(e.last, said.last)
			e.minutes |= said.minutes
			if said.pulse != (pulse{}) {
				e.pulse.add(&said.pulse)
			}
			return true
		}
	}
	if len(sent) > maxKey {
		sent = nil
	}
	if !s.makeRoom(len(key), len(sent), k, a) {
		return false
	}
	if s.distinct != nil {
		s.distinct.add(key)
	}
	e := *said
	e.hash, e.at, e.size, e.sent = hash, uint32(len(s.text)), uint32(len(key)), uint16(len(sent))
	s.text = append(append(s.text, key...), sent...)
	s.entries = append(s.entries, e)
	place, _ := s.find(hash, key)
	s.index[place] = uint16(len(s.entries))
	return true
}

// addUpTo adds two counts, up to what they can say.
func addUpTo(a, b uint32) uint32 { return uint32(min(uint64(a)+uint64(b), math.MaxUint32)) }

// makeRoom makes room for one more entry.
func (s *summary) makeRoom(key, sent, k int, a *account) bool {
	if k < 1 || key > maxKey {
		return false
	}
	size := key + sent
	for len(s.text)+size > cap(s.text) {
		more := min(max(2*cap(s.text), 32*leastRoom, len(s.text)+size), mostText)
		if more >= len(s.text)+size && a.take(more-cap(s.text)) {
			s.text = append(make([]byte, 0, more), s.text...)
		} else if len(s.entries) > 0 {
			s.trim(len(s.entries)/2, a)
		} else {
			return false
		}
	}
	if len(s.entries) < cap(s.entries) {
		return true
	}
	if cap(s.entries) < 2*k {
		more := min(max(2*cap(s.entries), leastRoom), 2*k)
		places := 2 << bits.Len(uint(more-1))
		if a.take((more-cap(s.entries))*entryBytes + 2*places - 2*cap(s.index)) {
			s.entries = append(make([]entry, 0, more), s.entries...)
			s.index = make([]uint16, places)
			s.reindex()
			return true
		}
	}
	s.trim(min(k, len(s.entries)/2), a)
	return len(s.entries) < cap(s.entries)
}

func (s *summary) reindex() {
	clear(s.index)
	mask := len(s.index) - 1
	for i := range s.entries {
		place := int(s.entries[i].hash) & mask
		for s.index[place] != 0 {
			place = (place + 1) & mask
		}
		s.index[place] = uint16(i + 1)
	}
}

// trim leaves the k largest.
func (s *summary) trim(k int, a *account) {
	if len(s.entries) <= k {
		return
	}
	s.know(a)
	var room [2 * mostEntries]uint64
	overs := room[:0]
	for i := range s.entries {
		overs = append(overs, s.entries[i].over)
	}
	cut := nth(overs, k)
	equal := k // how many of those with just cut stay
	for i := range s.entries {
		if s.entries[i].over > cut {
			equal--
		}
	}
	kept, text := s.entries[:0], s.text[:0]
	for _, e := range s.entries {
		if e.over < cut || e.over == cut && equal == 0 {
			continue
		}
		if e.over == cut {
			equal--
		}
		all := s.text[e.at:][:e.size+uint32(e.sent)]
		e.at = uint32(len(text))
		text = append(text, all...) // never overtakes what is still to be read
		e.over -= cut
		kept = append(kept, e)
	}
	s.entries, s.text = kept, text
	s.floor += cut
	s.reindex()
}

// nth returns what would be at place k if v were in descending order. It changes the order.
func nth(v []uint64, k int) uint64 {
	for {
		a, b, c := v[0], v[len(v)/2], v[len(v)-1]
		pivot := max(min(a, b), min(max(a, b), c))
		larger, equal := 0, 0 // v is: larger, equal, not yet seen or smaller
		for i, x := range v {
			switch {
			case x > pivot:
				v[i] = v[larger+equal]
				v[larger+equal] = v[larger]
				v[larger] = x
				larger++
			case x == pivot:
				v[i] = v[larger+equal]
				v[larger+equal] = x
				equal++
			}
		}
		switch {
		case k < larger:
			v = v[:larger]
		case k < larger+equal:
			return pivot
		default:
			v, k = v[larger+equal:], k-larger-equal
		}
	}
}

// know begins to tell keys apart by registers, since some entries are about to go.
func (s *summary) know(a *account) {
	if s.distinct != nil {
		return
	}
	if s.spare == nil {
		if !a.take(registerCount) {
			return
		}
		s.spare = make(registers, registerCount)
	}
	s.distinct, s.spare = s.spare, nil
	clear(s.distinct)
	for i := range s.entries {
		s.distinct.add(s.key(&s.entries[i]))
	}
}

// subjects returns how many keys there were: exactly, as long as all are here. Where there was no
// room for registers, it is what is known at least.
func (s *summary) subjects() uint64 {
	n := max(uint64(len(s.entries)), s.known)
	if s.distinct != nil {
		n = max(n, s.distinct.estimate())
	}
	return n
}

// most returns the most that any key can have.
func (s *summary) most() uint64 {
	over := uint64(0)
	for i := range s.entries {
		over = max(over, s.entries[i].over)
	}
	return over + s.floor
}

// largest returns the places of the entries, the largest first.
func (s *summary) largest() []int {
	order := make([]int, len(s.entries))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(i, j int) int {
		a, b := &s.entries[i], &s.entries[j]
		if a.over != b.over {
			return cmp.Compare(b.over, a.over)
		}
		return cmp.Or(cmp.Compare(b.low, a.low), cmp.Compare(b.last, a.last), bytes.Compare(s.key(a), s.key(b)))
	})
	return order
}
