package kernel

import (
	"slices"
	"unsafe"
)

// runs is a [history] for spans of any length. It takes 16 bytes for each tick with units.
type runs struct {
	runs []run // ticks and sums increase from run to run
	head int   // number of dropped runs, which are still in the slice
}

// run has the units of one tick: its sum minus the sum of the previous run.
type run struct{ at, sum int64 }

func (r *runs) newest() (int64, bool) {
	if len(r.runs) == 0 {
		return 0, false
	}
	return r.runs[len(r.runs)-1].at, true
}

func (r *runs) since(tick int64) (first int, n int64) {
	i, _ := slices.BinarySearchFunc(r.runs[r.head:], tick+1, func(r run, tick int64) int {
		return int(min(max(r.at-tick, -1), 1))
	})
	first = r.head + i
	return first, r.before(len(r.runs)) - r.before(first)
}

func (r *runs) tick(first int, n int64) int64 {
	i, _ := slices.BinarySearchFunc(r.runs[first:], r.before(first)+n, func(r run, sum int64) int {
		return int(min(max(r.sum-sum, -1), 1))
	})
	return r.runs[first+i].at
}

// before returns the sum of all runs before run i.
func (r *runs) before(i int) int64 {
	if i == 0 {
		return 0
	}
	return r.runs[i-1].sum
}

func (r *runs) drop(first int) {
	if r.head = first; r.head == len(r.runs) {
		r.runs, r.head = r.runs[:0], 0
	}
}

func (r *runs) push(tick, n int64) {
	last := len(r.runs) - 1
	if last >= 0 && r.runs[last].at == tick {
		r.runs[last].sum += n
		return
	}
	sum := r.before(last+1) + n
	// The last dropped run stays, because its sum is needed.
	if spare := r.head - 1; len(r.runs) == cap(r.runs) && worthMoving(spare, len(r.runs)) {
		r.runs = slices.Delete(r.runs, 0, spare)
		r.head = 1
	}
	r.runs = append(r.runs, run{tick, sum})
}

// few is the number of elements up to which moving them is faster than allocating more memory.
const few = 256

// worthMoving reports whether a full slice should move its elements over the dropped ones at its beginning. The
// parameter spare is the number of dropped elements, and all is the number of all elements. If few were dropped,
// the slice grows instead, because many elements would have to move to gain little room. So the cost of a push does
// not depend on the length of the log, and the log takes at most twice the memory that its largest contents need.
func worthMoving(spare, all int) bool { return spare > max(0, (all-few)/8) }

func (r *runs) pop(n int64) {
	for last := len(r.runs) - 1; last >= r.head && n > 0; last-- {
		has := r.runs[last].sum - r.before(last)
		if has > n {
			r.runs[last].sum -= n
			return
		}
		n -= has
		r.runs = r.runs[:last]
	}
	r.drop(r.head)
}

func (r *runs) shift(by int64) {
	for i := range r.runs {
		r.runs[i].at += by
	}
}

func (r *runs) bytes() int { return int(unsafe.Sizeof(*r)) + cap(r.runs)*int(unsafe.Sizeof(run{})) }
