package kernel

import "unsafe"

// maxCounts is the longest span of counts, in ticks.
const maxCounts = coarseParts + 1

// counts is a [history] for spans of few ticks: it keeps the number of units of each tick. A position is an index
// of n.
type counts struct {
	last int64
	n    [maxCounts]uint32 // the units of the last ticks, the newest tick last; the newest tick has units, unless the log is empty
}

func (c *counts) newest() (int64, bool) { return c.last, c.n[maxCounts-1] > 0 }

func (c *counts) since(tick int64) (first int, n int64) {
	first = maxCounts - int(min(max(c.last-tick, 0), maxCounts))
	for _, k := range c.n[first:] {
		n += int64(k)
	}
	return first, n
}

func (c *counts) tick(first int, n int64) int64 {
	for n -= int64(c.n[first]); n > 0; n -= int64(c.n[first]) {
		first++
	}
	return c.last - int64(maxCounts-1-first)
}

func (c *counts) drop(first int) { clear(c.n[:first]) }

func (c *counts) push(tick, n int64) {
	by := min(max(tick-c.last, 0), maxCounts) // if the log is empty, tick may be before last
	copy(c.n[:], c.n[by:])
	clear(c.n[maxCounts-by:])
	c.n[maxCounts-1] += uint32(n)
	c.last = tick
}

func (c *counts) pop(n int64) {
	i := maxCounts - 1
	for ; i >= 0 && int64(c.n[i]) <= n; i-- {
		n -= int64(c.n[i])
		c.n[i] = 0
	}
	if i < 0 {
		return
	}
	c.n[i] -= uint32(n)
	by := maxCounts - 1 - i
	copy(c.n[by:], c.n[:])
	clear(c.n[:by])
	c.last -= int64(by)
}

func (c *counts) shift(by int64) { c.last += by }

func (c *counts) bytes() int { return int(unsafe.Sizeof(*c)) }
