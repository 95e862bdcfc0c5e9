package kernel

import (
	"slices"
	"sort"
	"unsafe"
)

// stamps is a [history] that keeps two bytes for each unit: the low bits of the unit's tick. The newest tick is
// kept in full. All others are less than 2^16 ticks before it, because spans are shorter than 2^16 ticks.
type stamps struct {
	last   int64
	stamps []uint16
	head   int // number of dropped units, which are still in the slice
}

func (s *stamps) newest() (int64, bool) { return s.last, len(s.stamps) > 0 }

func (s *stamps) since(tick int64) (first int, n int64) {
	young := s.last - tick
	first = s.head + sort.Search(len(s.stamps)-s.head, func(i int) bool { return s.age(s.head+i) < young })
	return first, int64(len(s.stamps) - first)
}

// age returns the number of ticks by which stamp i is older than the newest.
func (s *stamps) age(i int) int64 { return int64(uint16(s.last) - s.stamps[i]) }

func (s *stamps) tick(first int, n int64) int64 { return s.last - s.age(first+int(n)-1) }

func (s *stamps) drop(first int) {
	if s.head = first; s.head == len(s.stamps) {
		s.stamps, s.head = s.stamps[:0], 0
	}
}

func (s *stamps) push(tick, n int64) {
	if len(s.stamps)+int(n) > cap(s.stamps) && worthMoving(s.head, len(s.stamps)) {
		s.stamps = slices.Delete(s.stamps, 0, s.head)
		s.head = 0
	}
	s.stamps = slices.Grow(s.stamps, int(n))
	for range n {
		s.stamps = append(s.stamps, uint16(tick))
	}
	s.last = tick
}

func (s *stamps) pop(n int64) {
	left := len(s.stamps) - int(min(n, int64(len(s.stamps)-s.head)))
	if left > s.head {
		s.last -= s.age(left - 1)
	}
	s.stamps = s.stamps[:left]
	s.drop(s.head)
}

func (s *stamps) shift(by int64) {
	s.last += by
	for i := range s.stamps {
		s.stamps[i] += uint16(by)
	}
}

func (s *stamps) bytes() int { return int(unsafe.Sizeof(*s)) + 2*cap(s.stamps) }
