// Package memory has a store for one process: bounded, exact, and cheap. Package failover also uses it as its fallback.
// Package memory imports package sluice.
//
// A [Store] keeps a bucket or a window in 16 bytes a key, in tables without pointers. It starts small and grows
// with the keys in use, up to its bound. Once the tables have a sixteenth of their largest size, new keys replace
// states that have drained. So a Store needs no background work, and need not be closed.
//
// At the bound, a new key evicts another one: a key that has used about the smallest fraction of its limit. Keys may
// count as equal if their fractions differ by less than a factor of two. Of equal keys, the one that was least recently
// used is evicted, if the store knows which one this is. Keys that have used more than half of their limit are evicted
// last, in the order in which they drain. So a flood of new keys, under any limits, never evicts a key that is being
// limited, unless limited keys fill seven tenths of the space for their kind of state (see MaxBytes in [Config]). If
// they do, [Stats] counts the evicted keys; with RefuseNew in [Config], new keys are refused instead. A client that
// sends enough new keys to fill the store makes it forget keys that have used hardly anything. So if clients can invent
// keys, limit by address as well.
//
// A Store keeps only a hash of each key, with a random seed: 58 bits in a store of the default size. The
// probability that any two of a million keys share a state is one in 500,000, and clients cannot find out which
// keys do. Storing whole keys was tried. With whole keys, a Take of a hot key costs 2.5 times as much, a Take of
// one of a million keys costs five times as much, and each key takes 140 bytes plus its length.
package memory

import (
	"cmp"
	"context"
	"errors"
	"hash/maphash"
	"math/bits"
	"slices"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/kernel"
)

const (
	defaultBytes = 64 << 20
	minBytes     = 64 << 10
	maxStripes   = 1 << 16
	// stripeBytes is the maximum size of a stripe's table, unless that makes too many stripes. With few stripes,
	// the fullest one is hardly fuller than the others. That matters because planes are sized for the fullest.
	stripeBytes = 32 << 10
)

// Store is a [sluice.Store] in memory. It is safe for concurrent use, has no goroutines
// and need not be closed. Make one with [New], [NewSize] or [Config.New].
type Store struct {
	base time.Time // when the store was made
	wall int64     // base in microseconds since the epoch

	seed     maphash.Seed
	plans    plans
	tables   tables
	stripes  []stripe
	overflow overflow
	limited  limited
	refuse   bool // refuse new keys, rather than evict states that have used more than half

	evicted, freed, refused atomic.Int64
}

var _ sluice.OneTaker = (*Store)(nil)

// Config configures a [Store]. Its zero value is what [New] uses.
type Config struct {
	// MaxBytes bounds the memory of the store, and is at least 64 KiB. Zero means 64 MiB.
	//
	// Half of the memory is for buckets and windows, 16 bytes each. The other half is for all other states: for the few
	// buckets and windows that do not fit in 16 bytes, for penalties, for permits in flight, and for logs. These other
	// states take about the following numbers of bytes, including the space in the store's tables:
	//
	//   - up to eight permits of a key: 400, and 42 for each further permit
	//   - a log: 150, and 2 to 4 for each unit
	//   - a log of more than [kernel.FineLogCount] units: 250
	//   - an exact log: 150, and 16 to 32 for each moment in which units were taken
	//
	// A log that outgrows this half is forgotten, and then its limit is not enforced. So for an exact log, the half
	// needs room for 32 bytes times the Count.
	MaxBytes int64
	// RefuseNew makes the store refuse a new key, as if it had used up its limit, rather than evict a key that has used
	// more than half of its limit. So a flood of keys frees no limited key, but locks out new clients while it lasts.
	// This is right for limits against password guessing, and wrong for limits that keep a site reachable. Even with
	// RefuseNew, a penalty can evict a key that has used more than half of its limit. A log of a key that is already in
	// the store can do so when it grows, but only if the half for logs is full. New keys leave the last sixteenth of
	// this half free for such growth.
	RefuseNew bool
}

// New returns a store that holds at most 64 MiB: some 2 million keys at a time, and
// 32 MiB of logs.
func New() *Store { return Config{}.New() }

// NewSize returns a store that holds at most maxBytes, or 64 KiB if that is more.
func NewSize(maxBytes int64) *Store { return Config{MaxBytes: max(minBytes, maxBytes)}.New() }

// New returns a store configured by c.
func (c Config) New() *Store {
	size := int64(defaultBytes)
	if c.MaxBytes != 0 {
		size = max(minBytes, c.MaxBytes)
	}
	half := size / 2
	n := stripesFor(half)
	now := time.Now()
	s := &Store{
		base:    now,
		wall:    now.UnixMicro(),
		seed:    maphash.MakeSeed(),
		stripes: make([]stripe, n),
		limited: limitedFor(n),
		refuse:  c.RefuseNew,
	}
	s.tables.init(n, int(min(1<<16, (half-s.headBytes())/(int64(n)*bucketBytes+planeBytes))))
	s.overflow.summaries = make([]summary, n)
	for i := range s.stripes {
		s.stripes[i].tables, s.stripes[i].number = &s.tables, uint32(i)
		s.overflow.summaries[i].set(0, unevictable, latest)
	}
	s.overflow.max = half
	return s
}

// stripesFor returns the number of stripes for size bytes. With this number, the number of buckets of a table is
// just below a power of two: between powers of two, linear hashing fills tables less evenly.
func stripesFor(size int64) int {
	each := int64(stripeBytes)
	for size > each*maxStripes {
		each *= 2
	}
	n := int((size + each - 1) / each)
	step := 8 // so that a piece of the planes is a multiple of what the allocator rounds to
	if n <= 32 {
		step = 4
	}
	return (n + step - 1) &^ (step - 1)
}

// headBytes is the memory that a stripe takes in addition to its table.
const headBytes = int64(unsafe.Sizeof(stripe{}) + unsafe.Sizeof(summary{}) + unsafe.Sizeof(atomic.Uint32{}))

func (s *Store) headBytes() int64 {
	return int64(len(s.stripes))*headBytes + int64(len(s.limited))*latelyBytes + int64(len(s.tables.planes))*planeBytes
}

// Take implements [sluice.Store] by the store's own clock: the wall time at which the store was made plus the
// monotonic time since then, so that changes of the wall clock have no effect. Take does not block, ignores ctx,
// and fails only if its arguments break the contract.
func (s *Store) Take(_ context.Context, charges []sluice.Charge, receipts []sluice.Receipt) error {
	return s.take(own, charges, receipts)
}

// TakeOne implements [sluice.OneTaker].
func (s *Store) TakeOne(_ context.Context, key string, plan *sluice.Plan, cost int64) (r sluice.Receipt, err error) {
	err = s.takeOnly(own, &sluice.Charge{Key: key, Plan: plan, Cost: cost}, &r)
	return r, err
}

// now returns microseconds since the Unix epoch.
func (s *Store) now() int64 { return s.wall + int64(time.Since(s.base)/time.Microsecond) }

// TakeAt does what Take does at the time now, in microseconds since the Unix epoch, from 1970 to 2112. It is for
// replays, simulations and tests. The time may go back between calls. If it goes back to before the time at which a
// state has drained, the state is empty or has its earlier count. Do not use TakeAt and Take on the same store.
func (s *Store) TakeAt(_ context.Context, now int64, charges []sluice.Charge, receipts []sluice.Receipt) error {
	if now < 0 || now >= maxTime {
		return errTime
	}
	return s.take(now, charges, receipts)
}

// maxTime is the end of the times that a store accepts. Its packed numbers have no room for later times.
const maxTime = 1 << 52

var errTime = errors.New("memory: the time is not between 1970 and 2112, in microseconds since the Unix epoch")

// own stands for the time of the store's own clock. The clock is read after the states: if it were read before,
// states changed by faster goroutines would look as if the clock had stepped back. Only takeClockFirst reads the
// clock before the states.
const own = -1

// at returns now, or the time of the store's own clock if now is own.
func (s *Store) at(now int64) int64 {
	if now == own {
		return s.now()
	}
	return now
}

// take does a Take at the time now, which may be own.
func (s *Store) take(now int64, charges []sluice.Charge, receipts []sluice.Receipt) error {
	if len(charges) == 1 && len(receipts) == 1 {
		return s.takeOnly(now, &charges[0], &receipts[0])
	}
	if len(charges) == 2 && len(receipts) == 2 && s.takePair(now, &charges[0], &charges[1], &receipts[0], &receipts[1]) {
		return nil
	}
	return s.takeMany(now, charges, receipts)
}

// takeOnly takes a charge that is the only one of its Take.
func (s *Store) takeOnly(now int64, c *sluice.Charge, r *sluice.Receipt) error {
	if c.Plan == nil || c.Plan.Tick < 1 {
		return sluice.CheckCharges(unsafe.Slice(c, 1), unsafe.Slice(r, 1))
	}
	if hash := s.hash(c); !s.takeFast(now, hash, c, r) {
		s.takeOne(now, hash, c, r)
	}
	return nil
}

func (s *Store) takeMany(now int64, charges []sluice.Charge, receipts []sluice.Receipt) error {
	if err := sluice.CheckCharges(charges, receipts); err != nil {
		return err
	}
	switch n := len(charges); {
	case n <= 4:
		var ops [4]op
		var order [4]int32
		s.takeAll(now, charges, receipts, s.hashed(charges, ops[:n]), order[:n])
	case n <= 8:
		var ops [8]op
		var order [8]int32
		s.takeAll(now, charges, receipts, s.hashed(charges, ops[:n]), order[:n])
	default:
		s.takeAll(now, charges, receipts, s.hashed(charges, make([]op, n)), make([]int32, n))
	}
	return nil
}

// takeOne takes one charge of any kind.
func (s *Store) takeOne(now int64, hash uint64, c *sluice.Charge, r *sluice.Receipt) {
	ops := [1]op{{hash: hash, stripe: s.stripe(hash)}}
	s.takeSlow(now, unsafe.Slice(c, 1), unsafe.Slice(r, 1), ops[:], []int32{0})
}

// hashed returns ops with the hashes of charges.
func (s *Store) hashed(charges []sluice.Charge, ops []op) []op {
	for i := range charges {
		ops[i].hash = s.hash(&charges[i])
		ops[i].stripe = s.stripe(ops[i].hash)
	}
	return ops
}

// takeAll takes charges. Their hashes are in ops.
func (s *Store) takeAll(now int64, charges []sluice.Charge, receipts []sluice.Receipt, ops []op, order []int32) {
	if len(ops) > 1 {
		for i := range ops {
			prefetch(s.tables.buckets(ops[i].hash>>stripeShift, ops[i].hash<<16))
		}
	}
	sortByHash(order, ops)
	if !s.takeAllFast(now, charges, receipts, ops, order) {
		s.takeSlow(now, charges, receipts, ops, order)
	}
}

// hash returns the identity of a charge's state: the number of its stripe, and in the lower 48 bits the hash that
// is kept in a cell.
func (s *Store) hash(c *sluice.Charge) uint64 {
	return s.placed(maphash.String(s.seed, c.Key) ^ c.Plan.Fingerprint)
}

// stripeShift is the position of the stripe's number in a hash.
const stripeShift = 48

// placed derives the number of the stripe from all bits of a hash. If only the 16 highest bits were used and there
// were many stripes, some would get twice as many keys as others.
func (s *Store) placed(hash uint64) uint64 {
	stripe, _ := bits.Mul64(hash, uint64(len(s.stripes)))
	return stripe<<stripeShift | hash&(1<<stripeShift-1)
}

func (s *Store) stripe(hash uint64) *stripe { return &s.stripes[hash>>stripeShift] }

// find returns the cell of a hash and a tag and its word, or nil.
func (s *Store) find(hash, tag uint64) (*cell, uint64) {
	return s.tables.find(hash>>stripeShift, tag)
}

// op is a charge in progress.
type op struct {
	*stripe
	hash      uint64
	layout    *layout
	cell      *cell   // contains the state, unless record does
	record    *record // contains the state; both are nil for a new key
	tag, word uint64  // tag and word of cell
	next      uint64  // the next word, if taken without a lock
	held      int64   // the bytes of record; 0 if it is not stored yet
	old, new  kernel.State
	twin      bool // another op has the same hash
	full      bool // for permits: a new key has no room, so all its permits count as taken
}

// sortByHash sorts the indexes of ops by hash, an order that is the same for all callers.
func sortByHash(order []int32, ops []op) {
	if len(order) > 8 {
		for i := range order {
			order[i] = int32(i)
		}
		slices.SortFunc(order, func(a, b int32) int { return cmp.Compare(ops[a].hash, ops[b].hash) })
		return
	}
	for i := range order {
		at := i
		for ; at > 0 && ops[order[at-1]].hash > ops[i].hash; at-- {
			order[at] = order[at-1]
		}
		order[at] = int32(i)
	}
}
