package memory

import (
	"runtime"
	"sync/atomic"
)

// slot is a state and whose it is: the tag is 48 bits of the hash and 16 of the plan that the
// state was packed by, the word is the packed state, mixed with the tag.
//
// A word is free, or busy while a take that has charges in other slots has claimed it, and
// else changes by compare-and-swap only. Free words and all tags belong to who has the lock of
// the stripe. So the states of known keys need no lock.
type cell struct{ word, tag atomic.Uint64 }

const (
	free = 0
	busy = 1
)

// line is what a processor reads at once.
type bucket [4]cell

// at returns the slot of a tag, or any if it is in none. It does not branch: where in a line a
// state is cannot be predicted.
func (b *bucket) at(tag uint64) *cell {
	return &b[(b[1].has(tag)|2*b[2].has(tag)|3*b[3].has(tag))&3]
}

// has returns 1 if that is the tag, else 0.
func (c *cell) has(tag uint64) (n int) {
	if c.tag.Load() == tag {
		n = 1
	}
	return n
}

// mixed turns a packed state into the word of a tag and back. Thereby no two tags have one
// word in a slot, and a compare-and-swap that is late cannot take for the state that it has
// read that of another key, which has come to the slot since. They would have to agree in all
// 64 bits.
func mixed(word, tag uint64) uint64 { return word ^ tag*0x9e3779b97f4a7c15 }

// load returns the word once it is not busy.
func (c *cell) load() uint64 {
	if w := c.word.Load(); w != busy {
		return w
	}
	return c.wait()
}

// wait waits for the end of a claim. That comes with the end of a decision, unless who
// decides has lost the processor: then it is better to leave it to them.
func (c *cell) wait() uint64 {
	for {
		runtime.Gosched()
		if w := c.word.Load(); w != busy {
			return w
		}
	}
}

// claim makes the word busy and returns what it was, or free if it is that.
func (c *cell) claim() uint64 { return c.exchange(busy) }

// take makes the slot free and returns what its word was.
func (c *cell) take() uint64 { return c.exchange(free) }

func (c *cell) exchange(to uint64) uint64 {
	for {
		if w := c.load(); w == free || c.word.CompareAndSwap(w, to) {
			return w
		}
	}
}

// put fills a slot that is free. The caller has the lock of the stripe.
func (c *cell) put(word, tag uint64) {
	c.tag.Store(tag)
	c.word.Store(word)
}

// move moves what is in a slot to a free one. While it is in neither, those who look for it
// wait for the lock, which the caller has.
func (c *cell) move(to *cell) {
	if w := c.take(); w != free {
		to.put(w, c.tag.Load())
	}
}
