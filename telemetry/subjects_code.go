package telemetry

import (
	"encoding/binary"
	"math"
	"math/bits"
)

// A summary is written as: its time (unix milliseconds), total, floor, the number of its entries,
// the entries, the largest first, and how many there were: a 0 if these are all, 1 and registers, or 2
// and a number where there is no room for registers. An entry is: how much of the key before it its key
// begins with, the length of the rest, the rest, low, over, how long ago last was, how long before
// that first was, the minutes, bit i for i minutes ago, and in the same way which steps there are, with a byte for
// each; only the entries that can be listed have steps. Behind that is which of three more things there are, and
// these: how many a block refused; the last limit, its count and its microseconds; and how the key was
// spelled, as the key is written, against the key itself.
const (
	allHere = iota
	byRegisters
	atLeast
)

// maxCount is the most that any number of a summary may be, so that sums of many do not overflow.
const maxCount = 1<<53 - 1

// headBytes is the most that a summary takes without entries and registers.
const headBytes = 5*binary.MaxVarintLen64 + 1

// encode appends the most-th largest entries at most, in at most room bytes with all else, which are
// at least headBytes. What does not fit is in the floor.
func (s *summary) encode(dst []byte, at int64, most, room int) []byte {
	order := s.largest()
	most, room = min(most, len(order)), room-headBytes
	distinct := s.distinct
	fits := 0
	if distinct == nil {
		if fits = s.fitting(order, at, most, room); fits < len(order) && s.floor == 0 {
			distinct = make(registers, registerCount)
			for i := range s.entries {
				distinct.add(s.key(&s.entries[i]))
			}
		}
	}
	how := []byte{allHere}
	if distinct != nil {
		if how = distinct.encode([]byte{byRegisters}); len(how) > room/2 {
			how = binary.AppendUvarint([]byte{atLeast}, max(s.known, distinct.estimate()))
		}
		fits = s.fitting(order, at, most, room-len(how))
	}
	cut := uint64(0)
	if fits < len(order) {
		cut = s.entries[order[fits]].over
	}
	dst = binary.AppendUvarint(dst, uint64(at))
	dst = binary.AppendUvarint(dst, s.total)
	dst = binary.AppendUvarint(dst, s.floor+cut)
	dst = binary.AppendUvarint(dst, uint64(fits))
	var before []byte
	for n, i := range order[:fits] {
		dst = s.entries[i].encode(dst, before, s.key(&s.entries[i]), s.spelled(&s.entries[i]), at, cut, n < mostItems)
		before = s.key(&s.entries[i])
	}
	return append(dst, how...)
}

// fitting returns how many of the first most entries take at most room bytes.
func (s *summary) fitting(order []int, at int64, most, room int) int {
	var buffer [2*maxKey + 128]byte
	var before []byte
	for n, i := range order[:most] {
		key := s.key(&s.entries[i])
		if room -= len(s.entries[i].encode(buffer[:0], before, key, s.spelled(&s.entries[i]), at, 0, n < mostItems)); room < 0 {
			return n
		}
		before = key
	}
	return most
}

// appendKey appends a key against the one before it.
func appendKey(dst, before, key []byte) []byte {
	shared := 0
	for shared < min(len(before), len(key)) && before[shared] == key[shared] {
		shared++
	}
	dst = binary.AppendUvarint(dst, uint64(shared))
	dst = binary.AppendUvarint(dst, uint64(len(key)-shared))
	return append(dst, key[shared:]...)
}

// key reads into buffer a key against the one before it, which may be the first length bytes of buffer.
func (d *decoder) key(before, buffer []byte) (key []byte) {
	shared := d.uvarint(uint64(len(before)))
	rest := d.bytes(d.uvarint(maxKey - shared))
	return append(append(buffer[:0], before[:shared]...), rest...)
}

// What more an entry can have.
const (
	hasBlocked = 1 << iota
	hasLimit
	hasSpelling
	hasAll = 1<<iota - 1
)

func (e *entry) encode(dst, before, key, sent []byte, at int64, cut uint64, stepped bool) []byte {
	dst = e.encodeSteps(e.encodeCounts(appendKey(dst, before, key), at, cut), at, stepped)
	more := len(dst)
	dst = append(dst, 0)
	if e.blocked > 0 {
		dst[more] |= hasBlocked
		dst = binary.AppendUvarint(dst, uint64(e.blocked))
	}
	if e.limit.count > 0 {
		dst[more] |= hasLimit
		dst = binary.AppendUvarint(dst, uint64(e.limit.count))
		dst = binary.AppendUvarint(dst, uint64(float64(e.limit.seconds)*1e6))
	}
	if len(sent) > 0 {
		dst[more] |= hasSpelling
		dst = appendKey(dst, key, sent)
	}
	return dst
}

func (e *entry) encodeCounts(dst []byte, at int64, cut uint64) []byte {
	dst = binary.AppendUvarint(dst, e.low)
	dst = binary.AppendUvarint(dst, e.over-cut)
	dst = binary.AppendVarint(dst, at-e.last)
	dst = binary.AppendUvarint(dst, uint64(e.last-e.first))
	return binary.AppendUvarint(dst, ago(e.minutes, at))
}

func (e *entry) encodeSteps(dst []byte, at int64, stepped bool) []byte {
	if !stepped || e.pulse == (pulse{}) {
		return append(dst, 0)
	}
	ago, which := e.pulse.turned(at), uint64(0)
	for i, n := range ago {
		if n != 0 {
			which |= 1 << i
		}
	}
	dst = binary.AppendUvarint(dst, which)
	for _, n := range ago {
		if n != 0 {
			dst = append(dst, n)
		}
	}
	return dst
}

// ago turns minutes by their number modulo 60 into such by how long ago they were, and back.
func ago(minutes uint64, at int64) (turned uint64) {
	now := int(at / 60_000 % 60)
	for ; minutes != 0; minutes &= minutes - 1 {
		turned |= 1 << ((now - bits.TrailingZeros64(minutes) + 60) % 60)
	}
	return turned
}

// head returns what the first two are.
func (d *decoder) head() (at int64, total uint64) {
	return int64(d.uvarint(maxCount)), d.uvarint(maxCount)
}

// merge adds what encode has written.
func (s *summary) merge(d *decoder, k int, a *account) bool {
	at, total := d.head()
	floor := d.uvarint(maxCount)
	var buffer, spelling [maxKey]byte
	key, sent := buffer[:0], spelling[:0]
	for n := d.uvarint(maxCount); n > 0 && d.ok(); n-- {
		key = d.key(key, buffer[:])
		e := entry{low: d.uvarint(maxCount), over: d.uvarint(maxCount)}
		e.last = at - d.varint(maxCount)
		e.first = e.last - int64(d.uvarint(maxCount))
		e.minutes = ago(d.uvarint(1<<60-1), at)
		for which := d.uvarint(1<<stepPlaces - 1); which != 0; which &= which - 1 {
			e.pulse[bits.TrailingZeros64(which)] = d.byte()
		}
		if e.pulse != (pulse{}) {
			e.pulse = e.pulse.turned(at)
		} else if d.stepped {
			e.pulse[e.last/stepMillis&(stepPlaces-1)] = small(e.low)
		}
		if sent = sent[:0]; !d.older {
			sent = d.more(&e, key, sent)
		}
		if e.low > e.over+floor || uint64(e.blocked) > e.low {
			d.fail()
		}
		if d.ok() && !s.add(key, sent, &e, k, a) {
			floor += e.over // as if it had been here alone, and had to go
		}
	}
	switch d.byte() {
	case allHere:
	case byRegisters:
		var all [registerCount]uint8
		d.union(all[:])
		if s.know(a); s.distinct != nil && d.ok() {
			s.distinct.union(all[:])
		}
	case atLeast:
		s.known = max(s.known, d.uvarint(maxCount))
	default:
		d.fail()
	}
	if d.ok() {
		s.floor += floor
		s.total += total
	}
	return d.ok()
}

// more reads what more an entry has, and returns how its key was spelled, if otherwise.
func (d *decoder) more(e *entry, key, buffer []byte) (sent []byte) {
	which := d.byte()
	if which > hasAll {
		d.fail()
	}
	if which&hasBlocked != 0 {
		e.blocked = uint32(d.uvarint(math.MaxUint32))
	}
	if which&hasLimit != 0 {
		e.limit.count = uint32(d.uvarint(math.MaxUint32))
		e.limit.seconds = float32(float64(d.uvarint(maxCount)) / 1e6)
	}
	if which&hasSpelling != 0 {
		return d.key(key, buffer)
	}
	return buffer[:0]
}
