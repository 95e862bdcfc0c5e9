package memory

import (
	"math/bits"
	"sync"
	"sync/atomic"
	"unsafe"
)

const (
	bucketBytes   = 64
	planeBytes    = 8 // what a plane takes in addition to its buckets
	firstBuckets  = 2
	growthBuckets = 16 // the largest number of planes that are added at once
	smallShare    = 16 // below 1/smallShare of its maximum, a table grows rather than forget drained states
)

// tables are the tables of all stripes. They lie in planes: the first plane has the first bucket of every table,
// the second plane the second, and so on. So a table grows in place, by linear hashing: each added bucket takes
// over some states of one other bucket. The address of a bucket follows from the size of its table. So a look-up
// reads only the bucket, and data that fits in the processor's first-level cache.
type tables struct {
	sizes  []atomic.Uint32          // of each table: see size
	planes []atomic.Pointer[bucket] // one for each bucket that a table can have; nil until allocated

	grow sync.Mutex
	made atomic.Uint32 // number of allocated planes
}

func (t *tables) init(n, maxBuckets int) {
	t.sizes, t.planes = make([]atomic.Uint32, n), make([]atomic.Pointer[bucket], maxBuckets)
	t.add(0)
	for i := range t.sizes {
		t.sizes[i].Store(uint32(sizeOf(firstBuckets)))
	}
}

// size is how many buckets a table uses. The low 16 bits are the index of the last bucket. The high 16 bits are the
// mask for a hash: the lowest mask of consecutive bits that covers the last bucket.
type size uint32

func sizeOf(buckets uint32) size {
	last := buckets - 1
	return size(last | (1<<bits.Len32(last)-1)<<16)
}

func (z size) buckets() uint32 { return uint32(z&0xffff) + 1 }

// place returns the bucket for a hash, as in linear hashing. If that bucket does not exist yet, place returns the
// bucket from which it will be split.
func (z size) place(hash uint32) uint32 {
	i := hash & uint32(z>>16)
	if i > uint32(z&0xffff) {
		i &= uint32(z >> 17)
	}
	return i
}

// places returns the numbers of the two buckets of a tag. One number is even and the other odd, so they always
// differ.
func (z size) places(tag uint64) (first, second uint32) {
	a, b := uint32(tag>>48), uint32(tag>>32)&0xffff
	return z.place(a), z.place(b&^1 | a&1 ^ 1)
}

// add allocates more planes, unless there are already more than n. It reports false if the tables have reached
// their maximum.
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

// full reports whether a table of the given size cannot grow.
func (t *tables) full(size uint32) bool { return int(size) == len(t.planes) }

// small reports whether a table of the given size grows rather than forget a drained state. The key of a drained
// state is usually charged again. Inserting its state again takes locks, and several times as long as finding it.
func (t *tables) small(size uint32) bool { return int(size) < len(t.planes)/smallShare }

func (t *tables) bytes() int64 { return int64(t.made.Load()) * int64(len(t.sizes)) * bucketBytes }

// bucket returns a bucket that the table of a stripe uses.
func (t *tables) bucket(stripe uint64, i uint32) *bucket {
	return (*bucket)(unsafe.Add(unsafe.Pointer(t.planes[i].Load()), stripe*bucketBytes))
}

func (t *tables) size(stripe uint64) size { return size(t.sizes[stripe].Load()) }

// buckets returns the two buckets of a tag.
func (t *tables) buckets(stripe, tag uint64) (first, second *bucket) {
	a, b := t.size(stripe).places(tag)
	return t.bucket(stripe, a), t.bucket(stripe, b)
}

// find returns the cell of a tag and its word, or nil. It needs no lock. A new state is put into its first bucket
// if there is room, so the second bucket is read only if the state is not in the first.
func (t *tables) find(stripe, tag uint64) (*cell, uint64) {
	i, second := t.size(stripe).places(tag)
	for {
		b := t.bucket(stripe, i)
		for j := range b {
			if c := &b[j]; c.tag.Load() == tag {
				// If the tag has not changed, the word belongs to it.
				if w := c.load(); w != free && c.tag.Load() == tag {
					return c, w
				}
			}
		}
		if i == second {
			return nil, free
		}
		i = second
	}
}
