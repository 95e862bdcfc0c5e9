// Package networks finds whether an address is in a set of networks.
package networks

import (
	"cmp"
	"encoding/binary"
	"math/bits"
	"net/netip"
	"slices"
)

// Set is a set of networks. The zero value is empty. The time of a lookup is proportional to the logarithm of the
// number of networks. Each network takes 32 bytes. A Set never changes, and is safe for concurrent use.
type Set struct {
	four, six ranges
}

// ranges has sorted spans of addresses that do not overlap.
type ranges struct {
	first, last []number
	pages       []number // every 32nd element of first: see page
}

// page is the number of ranges for each entry of the index (pages). The index is small enough for the first cache of
// the processor.
const page = 32

// number is an address as a number.
type number struct{ high, low uint64 }

// New returns a set of networks, which must be valid. IPv4 networks in IPv6 form count as IPv6.
func New(all []netip.Prefix) *Set {
	var four, six []span
	for _, p := range all {
		if p.Addr().Is4() {
			four = append(four, spanOf(p))
		} else {
			six = append(six, spanOf(p))
		}
	}
	return &Set{merge(four), merge(six)}
}

// Contains reports whether a network of the set contains the address. Zones are ignored.
func (s *Set) Contains(a netip.Addr) bool {
	switch {
	case a.Is4():
		return s.four.contain(numberOf(a))
	case a.Is6():
		return s.six.contain(numberOf(a))
	}
	return false
}

type span struct{ first, last number }

func spanOf(p netip.Prefix) span {
	first := numberOf(p.Masked().Addr())
	last, free := first, p.Addr().BitLen()-p.Bits()
	if free > 64 {
		last.high |= 1<<(free-64) - 1
	}
	last.low |= 1<<min(free, 64) - 1
	return span{first, last}
}

func numberOf(a netip.Addr) number {
	if a.Is4() {
		b := a.As4()
		return number{0, uint64(binary.BigEndian.Uint32(b[:]))}
	}
	b := a.As16()
	return number{binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])}
}

func merge(all []span) (r ranges) {
	slices.SortFunc(all, func(a, b span) int {
		return cmp.Or(cmp.Compare(a.first.high, b.first.high), cmp.Compare(a.first.low, b.first.low))
	})
	for _, s := range all {
		n := len(r.first)
		switch {
		case n == 0 || r.last[n-1].below(s.first) == 1:
			r.first, r.last = append(r.first, s.first), append(r.last, s.last)
		case r.last[n-1].below(s.last) == 1:
			r.last[n-1] = s.last
		}
	}
	for i := 0; i < len(r.first); i += page {
		r.pages = append(r.pages, r.first[i])
	}
	return r
}

// contain reports whether one of the ranges contains the number a. It finds the last range that starts at or before
// a: first its page, and then the range in the page.
func (r *ranges) contain(a number) bool {
	if len(r.first) == 0 {
		return false
	}
	from := page * last(r.pages, a)
	at := from + last(r.first[from:min(from+page, len(r.first))], a)
	return a.below(r.first[at]) == 0 && r.last[at].below(a) == 0
}

// last returns the index of the last number in the list that is at most a, or 0 if all are greater. No branch depends
// on a, because a processor would mispredict half of them.
func last(all []number, a number) (at int) {
	for n := len(all); n > 1; {
		half := n / 2
		at += half & (int(a.below(all[at+half])) - 1)
		n -= half
	}
	return at
}

// below returns 1 if n is less than o, and otherwise 0.
func (n number) below(o number) uint64 {
	_, borrow := bits.Sub64(n.low, o.low, 0)
	_, borrow = bits.Sub64(n.high, o.high, borrow)
	return borrow
}
