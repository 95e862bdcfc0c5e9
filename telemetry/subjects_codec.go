package telemetry

import (
	"encoding/binary"
	"math"
	"math/bits"
	"time"

	"github.com/axiomhq/hyperloglog"
)

// A summary is encoded as its time (Unix milliseconds), total, floor, the number of its entries, the entries (the
// largest first), and the number of its keys. This number is encoded in one of three ways: as allHere, if all keys have
// entries; as bySketch and a sketch; or as atLeast and a lower bound, without a sketch or without room for it.
//
// An entry is encoded as its key, low, over, blocked, the age of last, the time from first to last, the minutes (bit i:
// i minutes ago), the steps (a mask of those with a count, and the counts), the count and microseconds of the limit,
// and the spelling. A key is encoded as the length of the prefix that it shares with the previous key, followed by the
// rest. A spelling is encoded in the same way, relative to its key.
const (
	allHere = iota
	bySketch
	atLeast
)

// maxCount is the largest number in a summary, so that sums of many numbers do not overflow.
const maxCount = 1<<53 - 1

// encode appends the summary with its k largest entries, or with fewer if it would take more than room bytes. It
// removes all other entries from the summary.
func (s *summary) encode(dst []byte, at int64, room int) []byte {
	for s.trim(s.k); ; {
		out := s.append(dst, at, room/2)
		size := len(out) - len(dst)
		if size <= room || len(s.entries) == 0 {
			return out
		}
		s.trim(max(min(len(s.entries)*room/size, len(s.entries)-1), 0))
	}
}

// append appends all entries. It also appends the sketch of the keys, unless the sketch has more bytes than the
// parameter sketch.
func (s *summary) append(dst []byte, at int64, sketch int) []byte {
	for _, n := range []uint64{uint64(at), s.total, s.floor, uint64(len(s.entries))} {
		dst = binary.AppendUvarint(dst, n)
	}
	before := ""
	for _, e := range s.largest() {
		dst = e.append(dst, before, at)
		before = e.key
	}
	switch {
	case s.distinct == nil && s.known == 0 && s.floor == 0:
		return append(dst, allHere)
	case s.distinct == nil || sketchBytes > sketch:
		return binary.AppendUvarint(append(dst, atLeast), s.subjects())
	}
	registers, _ := s.distinct.MarshalBinary() // never fails for a sketch of NewSketch
	return append(binary.AppendUvarint(append(dst, bySketch), uint64(len(registers))), registers...)
}

func (e *entry) append(dst []byte, before string, at int64) []byte {
	dst = appendKey(dst, before, e.key)
	for _, n := range []uint64{e.low, e.over, e.blocked} {
		dst = binary.AppendUvarint(dst, n)
	}
	dst = binary.AppendVarint(dst, at-e.last)
	dst = binary.AppendUvarint(dst, uint64(e.last-e.first))
	dst = binary.AppendUvarint(dst, ago(e.minutes, at))
	dst = e.steps.append(dst)
	dst = binary.AppendUvarint(dst, uint64(e.limit.count))
	dst = binary.AppendUvarint(dst, uint64(e.limit.period.Microseconds()))
	if e.sent == "" {
		return appendKey(dst, e.key, e.key)
	}
	return appendKey(dst, e.key, e.sent)
}

func (s *subjectSteps) append(dst []byte) []byte {
	if s == nil {
		return append(dst, 0)
	}
	which := uint64(0)
	for i, n := range s {
		if n != 0 {
			which |= 1 << i
		}
	}
	dst = binary.AppendUvarint(dst, which)
	for _, n := range s {
		if n != 0 {
			dst = binary.AppendUvarint(dst, n)
		}
	}
	return dst
}

// ago converts between two forms of minutes, in either direction. In one form, bit i stands for the minute that is
// i modulo 64 since the epoch; in the other, for the minute that is i minutes before the time at.
func ago(minutes uint64, at int64) uint64 {
	return bits.RotateLeft64(bits.Reverse64(minutes), int(at/60_000%64)+1)
}

func appendKey(dst []byte, before, key string) []byte {
	common := 0
	for common < min(len(before), len(key)) && before[common] == key[common] {
		common++
	}
	dst = binary.AppendUvarint(dst, uint64(common))
	return appendText(dst, key[common:])
}

// key reads a key. The parameter is the key that was encoded before it.
func (d *decoder) key(before string) string {
	common := d.uvarint(uint64(len(before)))
	rest := d.bytes(d.uvarint(maxKey - common))
	if len(rest) == 0 {
		return before[:common]
	}
	return before[:common] + string(rest)
}

// merge adds a summary that encode or append has encoded.
func (s *summary) merge(d *decoder) {
	at, total, floor := int64(d.uvarint(maxCount)), d.uvarint(maxCount), d.uvarint(maxCount)
	key := ""
	for n := d.uvarint(maxCount); n > 0 && !d.failed; n-- {
		key = d.key(key)
		e := d.entry(at)
		sent := d.key(key)
		if sent == key {
			sent = ""
		}
		if e.low > e.over+floor || e.blocked > e.low {
			d.fail()
		}
		if !d.failed {
			s.add(key, sent, &e)
		}
	}
	s.mergeDistinct(d)
	if !d.failed {
		s.floor += floor
		s.total += total
	}
}

// entry reads an entry without its key and spelling.
func (d *decoder) entry(at int64) (e entry) {
	e.low, e.over, e.blocked = d.uvarint(maxCount), d.uvarint(maxCount), d.uvarint(maxCount)
	e.last = at - d.varint(maxCount)
	e.first = e.last - int64(d.uvarint(maxCount))
	e.minutes = ago(d.uvarint(math.MaxUint64), at)
	if which := d.uvarint(1<<stepPlaces - 1); which != 0 {
		e.steps = new(subjectSteps)
		for ; which != 0; which &= which - 1 {
			e.steps[bits.TrailingZeros64(which)] = d.uvarint(maxCount)
		}
	}
	e.limit.count = int64(d.uvarint(math.MaxInt64))
	e.limit.period = time.Duration(d.uvarint(maxCount)) * time.Microsecond
	return e
}

// mergeDistinct reads the number of keys of another summary, and updates that of s. The entries must be merged first.
func (s *summary) mergeDistinct(d *decoder) {
	switch d.byte() {
	case allHere:
	case bySketch:
		var other hyperloglog.Sketch
		if other.UnmarshalBinary(d.bytes(d.uvarint(sketchBytes))) != nil {
			d.fail()
			return
		}
		if s.sketch(); s.distinct != nil && s.distinct.Merge(&other) != nil {
			d.fail() // the sketch has another precision
		}
	case atLeast:
		s.known = max(s.known, d.uvarint(maxCount))
	default:
		d.fail()
	}
}
