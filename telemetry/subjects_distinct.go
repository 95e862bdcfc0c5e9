package telemetry

import (
	"encoding/binary"
	"math"
	"math/bits"
)

// registers is a HyperLogLog (Flajolet, Fusy, Gandouet and Meunier 2007) of 64-bit hashes, as of
// Heule, Nunkesser and Hall 2013, with the estimator of Ertl 2017, which needs no table of
// corrections: 2^11 registers, so a standard error of 1.04/sqrt(2048) = 2.3 %. All instances hash
// alike, so that the union of two is the larger of each register. Nil is none.
//
// The hash is no secret, so somebody who can choose keys can make an estimate wrong, as they can by
// sending many keys. Nothing but the number shown depends on it.
type registers []uint8

const (
	precision     = 11
	registerCount = 1 << precision
	maxRank       = 64 - precision + 1
)

// spread returns the hash of a key, the same on all instances: FNV-1a, and behind it the
// finalizer of MurmurHash3, since FNV alone leaves the upper bits uneven.
func spread(key []byte) uint64 {
	h := uint64(14695981039346656037)
	for _, c := range key {
		h = (h ^ uint64(c)) * 1099511628211
	}
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}

func (r registers) add(key []byte) {
	h := spread(key)
	rank := uint8(min(bits.LeadingZeros64(h<<precision), 64-precision) + 1)
	if at := h >> (64 - precision); r[at] < rank {
		r[at] = rank
	}
}

func (r registers) union(o registers) {
	for i, v := range o {
		r[i] = max(r[i], v)
	}
}

// estimate is that of Ertl, "New cardinality estimation algorithms for HyperLogLog sketches".
func (r registers) estimate() uint64 {
	var histogram [maxRank + 1]int
	for _, v := range r {
		histogram[v]++
	}
	const m = float64(registerCount)
	z := m * tau(1-float64(histogram[maxRank])/m)
	for rank := maxRank - 1; rank >= 1; rank-- {
		z = (z + float64(histogram[rank])) / 2
	}
	z += m * sigma(float64(histogram[0])/m)
	return uint64(m*m/(2*math.Ln2)/z + 0.5)
}

func sigma(x float64) float64 {
	if x == 1 {
		return math.Inf(1)
	}
	for y, z := 1.0, x; ; {
		x *= x
		before := z
		z += x * y
		y += y
		if z == before {
			return z
		}
	}
}

func tau(x float64) float64 {
	if x == 0 || x == 1 {
		return 0
	}
	for y, z := 1.0, 1-x; ; {
		x = math.Sqrt(x)
		before := z
		y /= 2
		z -= (1 - x) * (1 - x) * y
		if z == before {
			return z / 3
		}
	}
}

// Registers are written as those that are not zero while these are few, and else as four bits
// each above the least, with a list of the few that need more.
const (
	fewRegisters = iota
	manyRegisters
)

const nibble = 15

func (r registers) encode(dst []byte) []byte {
	least, set := uint8(maxRank), 0
	for _, v := range r {
		least = min(least, v)
		if v != 0 {
			set++
		}
	}
	if set < registerCount/6 {
		dst = binary.AppendUvarint(append(dst, fewRegisters), uint64(set))
		before := 0
		for i, v := range r {
			if v != 0 {
				dst = append(binary.AppendUvarint(dst, uint64(i-before)), v)
				before = i
			}
		}
		return dst
	}
	dst = append(dst, manyRegisters, least)
	large := 0
	for i := 0; i < len(r); i += 2 {
		a, b := min(r[i]-least, nibble), min(r[i+1]-least, nibble)
		dst = append(dst, a<<4|b)
		if a == nibble {
			large++
		}
		if b == nibble {
			large++
		}
	}
	dst = binary.AppendUvarint(dst, uint64(large))
	for i, v := range r {
		if v-least >= nibble {
			dst = append(binary.AppendUvarint(dst, uint64(i)), v)
		}
	}
	return dst
}

// union makes the union of r with what encode has written.
func (d *decoder) union(r registers) {
	switch kind := d.byte(); kind {
	case fewRegisters:
		at := uint64(0)
		for n := d.uvarint(registerCount); n > 0 && d.ok(); n-- {
			at += d.uvarint(registerCount)
			d.raise(r, at, d.byte())
		}
	case manyRegisters:
		least := d.byte()
		for i, v := range d.bytes(registerCount / 2) {
			d.raise(r, uint64(2*i), least+v>>4)
			d.raise(r, uint64(2*i+1), least+v&nibble)
		}
		for n := d.uvarint(registerCount); n > 0 && d.ok(); n-- {
			at := d.uvarint(registerCount)
			d.raise(r, at, d.byte())
		}
	default:
		d.fail()
	}
}

func (d *decoder) raise(r registers, at uint64, v uint8) {
	if at >= registerCount || v > maxRank {
		d.fail()
		return
	}
	r[at] = max(r[at], v)
}
