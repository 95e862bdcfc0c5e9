package telemetry

import (
	"encoding/binary"
	"math/bits"
)

// A summary is written as: its time (unix milliseconds), total, floor, the number of its entries,
// the entries, the largest first, and how many there were: a 0 if these are all, 1 and registers, or 2
// and a number where there is no room for registers. An entry is: how much of the key before it its key
// begins with, the length of the rest, the rest, low, over, how long ago last was, how long before
// that first was, the minutes, bit i for i minutes ago, and in the same way which steps there are, with a byte for
// each; only the entries that can be listed have steps.
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
		dst = s.entries[i].encode(dst, before, s.key(&s.entries[i]), at, cut, n < mostItems)
		before = s.key(&s.entries[i])
	}
	return append(dst, how...)
}

// fitting returns how many of the first most entries take at most room bytes.
func (s *summary) fitting(order []int, at int64, most, room int) int {
	var buffer [maxKey + 96]byte
	var before []byte
	for n, i := range order[:most] {
		key := s.key(&s.entries[i])
		if room -= len(s.entries[i].encode(buffer[:0], before, key, at, 0, n < mostItems)); room < 0 {
			return n
		}
		before = key
	}
	return most
}

func (e *entry) encode(dst, before, key []byte, at int64, cut uint64, stepped bool) []byte {
	shared := 0
	for shared < min(len(before), len(key)) && before[shared] == key[shared] {
		shared++
	}
	dst = binary.AppendUvarint(dst, uint64(shared))
	dst = binary.AppendUvarint(dst, uint64(len(key)-shared))
	dst = append(dst, key[shared:]...)
	dst = binary.AppendUvarint(dst, e.low)
	dst = binary.AppendUvarint(dst, e.over-cut)
	dst = binary.AppendVarint(dst, at-e.last)
	dst = binary.AppendUvarint(dst, uint64(e.last-e.first))
	dst = binary.AppendUvarint(dst, ago(e.minutes, at))
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
	var buffer [maxKey]byte
	length := 0
	for n := d.uvarint(maxCount); n > 0 && d.ok(); n-- {
		shared := d.uvarint(uint64(length))
		rest := d.bytes(d.uvarint(maxKey - shared))
		length = int(shared) + copy(buffer[shared:], rest)
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
		if e.low > e.over+floor {
			d.fail()
		}
		if d.ok() && !s.add(buffer[:length], &e, k, a) {
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
