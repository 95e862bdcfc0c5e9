package memory

import (
	"runtime"
	"sync/atomic"
)

// cell has a state and the tag of its owner. The tag has 48 bits of the key's hash, and 16 bits for the plan that
// packed the state. The word is the packed state, mixed with the tag.
//
// The word of a cell without a state is free. A word is busy while a Take of several charges has claimed the cell.
// All other words change only by compare-and-swap, so a Take from the state of a known key needs no lock. Only the
// holder of the stripe's lock changes free words and tags.
type cell struct{ word, tag atomic.Uint64 }

const (
	free = 0
	busy = 1

	reserved = busy // words up to this value are not states
)

// bucket is a cache line: what a processor reads at once.
type bucket [4]cell

// at returns the cell of a tag in either of two buckets, or any cell if the tag has none. It reads both buckets and
// does not branch: the processor cannot predict which bucket has the state, and would wait for the first before it
// fetches the second.
func at(first, second *bucket, tag uint64) *cell {
	i, j := first.index(tag), second.index(tag)
	if j != 0 {
		first = second
	}
	return &first[(i|j)&3]
}

// index returns 4 plus the index of the tag's cell, or 0 if the tag has no cell.
func (b *bucket) index(tag uint64) int {
	return 4*b[0].has(tag) | 5*b[1].has(tag) | 6*b[2].has(tag) | 7*b[3].has(tag)
}

// has returns 1 if the cell has the tag, else 0.
func (c *cell) has(tag uint64) (n int) {
	if c.tag.Load() == tag {
		n = 1
	}
	return n
}

// mixed turns a packed state into the word of a cell with the given tag, and back. If states were not mixed, a late
// compare-and-swap could succeed on an equal state of another key that has moved into the cell. With mixed states,
// it succeeds only if the two words agree in all 64 bits by chance.
func mixed(word, tag uint64) uint64 { return word ^ tag*0x9e3779b97f4a7c15 }

// load returns the word. If the word is busy, it waits until it is not.
func (c *cell) load() uint64 {
	if w := c.word.Load(); w != busy {
		return w
	}
	return c.wait()
}

// wait waits until the call that has claimed the cell releases it, and returns the word. It yields, because the
// goroutine of that call may be waiting for this processor.
func (c *cell) wait() uint64 {
	for {
		runtime.Gosched()
		if w := c.word.Load(); w != busy {
			return w
		}
	}
}

// claim sets the word to busy, and returns the previous word. A free cell stays free, and claim returns free.
func (c *cell) claim() uint64 { return c.exchange(busy) }

// take makes the cell free, and returns the previous word.
func (c *cell) take() uint64 { return c.exchange(free) }

func (c *cell) exchange(to uint64) uint64 {
	for {
		if w := c.load(); w == free || c.word.CompareAndSwap(w, to) {
			return w
		}
	}
}

// commit replaces word by next if the cell contains word, and reports whether it did.
func (c *cell) commit(word, next uint64) bool {
	if next == word {
		return c.word.Load() == word
	}
	return c.word.CompareAndSwap(word, next)
}

// put fills a free cell. The caller has the lock of the stripe.
func (c *cell) put(word, tag uint64) {
	c.tag.Store(tag)
	c.word.Store(word)
}

// move moves the state in a cell to a free one. While the state is in neither cell, its readers wait for the lock
// of the stripe, which the caller holds.
func (c *cell) move(to *cell) {
	if w := c.take(); w != free {
		to.put(w, c.tag.Load())
	}
}
