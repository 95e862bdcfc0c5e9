package memory

import (
	"math/bits"
	"sync"
	"sync/atomic"
	"unsafe"
)

const (
	bucketBytes   = 64
	planeBytes    = 8 // what a plane takes besides
	firstBuckets  = 2
	growthBuckets = 8 // by which the tables grow, once they have as many
)

// tables are those of all stripes. They lie in planes: the first buckets of all tables one after
// another, then the second ones, and so on. So a table grows where it is, by linear hashing: each
// bucket that is added takes over a part of one other. And the address of a bucket follows from
// the size of its table, so that what a look-up reads besides fits the processor's first cache.
type tables struct {
	sizes  []atomic.Uint32          // of each table: how many buckets it uses
	planes []atomic.Pointer[bucket] // as many as a table may have; nil where there is none yet

	grow sync.Mutex
	made atomic.Uint32 // how many planes there are
}

func newTables(n, maxBuckets int) *tables {
	t := &tables{sizes: make([]atomic.Uint32, n), planes: make([]atomic.Pointer[bucket], maxBuckets)}
	t.add(0)
	for i := range t.sizes {
		t.sizes[i].Store(firstBuckets)
	}
	return t
}

// add makes more planes, unless there are more than so many, and reports false if there may be
// no more.
func (t *tables) add(n uint32) bool {
	t.grow.Lock()
	defer t.grow.Unlock()
	if t.made.Load() > n {
		return true
	}
	more := min(max(firstBuckets, int(n)), growthBuckets, len(t.planes)-int(n))
	if more == 0 {
		return false
	}
	piece := make([]bucket, more*len(t.sizes))
	hugePages(unsafe.Pointer(&piece[0]), uintptr(len(piece))*bucketBytes)
	for i := range more {
		t.planes[int(n)+i].Store(&piece[i*len(t.sizes)])
	}
	t.made.Store(n + uint32(more))
	return true
}

// full reports whether a table of that size can grow no more.
func (t *tables) full(size uint32) bool { return int(size) == len(t.planes) }

func (t *tables) bytes() int64 { return int64(t.made.Load()) * int64(len(t.sizes)) * bucketBytes }

// bucket returns a bucket that the table of a stripe uses.
func (t *tables) bucket(stripe uint64, i uint32) *bucket {
	return (*bucket)(unsafe.Add(unsafe.Pointer(t.planes[i].Load()), stripe*bucketBytes))
}

// buckets returns the two buckets of a tag.
func (t *tables) buckets(stripe, tag uint64) (first, second *bucket) {
	a, b := places(tag, t.sizes[stripe].Load())
	return t.bucket(stripe, a), t.bucket(stripe, b)
}

// places returns the numbers of the two buckets of a tag in a table of a size. One is even and
// the other odd, so that they are never the same.
func places(tag uint64, size uint32) (first, second uint32) {
	a, b := uint32(tag>>48), uint32(tag>>32)&0xffff
	mask := uint32(1)<<bits.Len32(size-1) - 1
	return place(a, mask, size), place(b&^1|^a&1, mask, size)
}

// place is that of linear hashing: who would be in a bucket that the table does not have yet is
// in the one from which that will be split.
func place(hash, mask, size uint32) uint32 {
	i := hash & mask
	if i >= size {
		i &= mask >> 1
	}
	return i
}

// find returns the cell of a tag and its word, or nil. It needs no lock. A state is put into its
// first bucket where there is room, so the second is read only if it is not there.
func (t *tables) find(stripe, tag uint64) (*cell, uint64) {
	first, second := t.buckets(stripe, tag)
	for _, b := range [...]*bucket{first, second} {
		for i := range b {
			if c := &b[i]; c.tag.Load() == tag {
				// The tag has not changed, so the word is that tag's.
				if w := c.load(); w != free && c.tag.Load() == tag {
					return c, w
				}
			}
		}
	}
	return nil, free
}
