// Package memory is the store of one process: bounded, exact, and cheap.
//
// A [Store] keeps what meters and windows need in 16 bytes a key, in tables without
// pointers, and starts small: it grows with the keys that are in use, up to its bound. A
// state that has drained is room for the next key, so there is no sweeper, and nothing to
// close. When the bound is reached, a new key takes the place of one that is nearly
// empty. Who is being limited stays limited, whatever a flood of new keys does, as long
// as the states that are nearly full are not themselves more than fit.
//
// Of a key only a hash is kept, 60 bits of it in a store of the default size, with a seed
// of its own. Of a million keys some two share a state with a probability of one in two
// million, and nobody outside can find out which.
package memory

import (
	"context"
	"errors"
	"hash/maphash"
	"math/bits"
	"slices"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/sluicehq/sluice"
)

const (
	defaultBytes = 64 << 20
	minBytes     = 64 << 10
	maxStripes   = 1 << 16
	stripeBytes  = 8 << 10 // what a stripe's table may grow to, where that is not too many
)

// Store is a [sluice.Store] in memory. It is safe for concurrent use, has no goroutines
// and need not be closed. Make one with [New] or [NewSize].
type Store struct {
	base time.Time // when the store was made
	wall int64     // the same in microseconds since the epoch

	seed     maphash.Seed
	plans    plans
	stripes  []stripe
	shift    int // of a hash, for the number of its stripe
	maxLines int // of a stripe
	asides   asides
	evicted  atomic.Int64
}

var _ sluice.Store = (*Store)(nil)

// New returns a store that holds at most 64 MiB: some 1.8 million keys at a time, beside
// 32 MiB of logs.
func New() *Store { return NewSize(defaultBytes) }

// NewSize returns a store that holds at most maxBytes, or 64 KiB if that is more. Half of
// it is for meters and windows, 16 bytes each. The other half is for logs, of about 150
// bytes and 2 to 4 for each unit, or 250 in all above [sluice.FineLogCount], or 16 to 32 for
// each moment that an exact one remembers, and for the few meters and windows
// whose numbers are too large for 16 bytes. A log that is too large for its half is
// forgotten, so that its limit does not hold: allow for 32 bytes times the Count of an exact one.
func NewSize(maxBytes int64) *Store {
	half := max(minBytes, maxBytes) / 2
	n := min(maxStripes, 1<<(bits.Len64(uint64(half/stripeBytes))-1))
	now := time.Now()
	s := &Store{
		base:     now,
		wall:     now.UnixMicro(),
		seed:     maphash.MakeSeed(),
		stripes:  make([]stripe, n),
		shift:    64 - bits.Len(uint(n-1)),
		maxLines: int(min(1<<16, (half/int64(n)-int64(unsafe.Sizeof(stripe{})))/lineBytes)),
	}
	lines := make([]line, n*firstLines)
	for i := range s.stripes {
		s.stripes[i].lines = lines[i*firstLines:][:firstLines:firstLines]
	}
	s.asides.max = half
	return s
}

func (s *Store) headBytes() int64 { return int64(len(s.stripes)) * int64(unsafe.Sizeof(stripe{})) }

// Take implements [sluice.Store] on the store's own clock: the wall time at which the
// store was made and the time since then, so that steps of the wall clock change nothing. It
// does not block, ignores ctx, and fails only for arguments that break the contract.
func (s *Store) Take(_ context.Context, charges []sluice.Charge, receipts []sluice.Receipt) error {
	return s.take(s.now(), true, charges, receipts)
}

// now returns microseconds since the Unix epoch.
func (s *Store) now() int64 { return s.wall + int64(time.Since(s.base)/time.Microsecond) }

// TakeAt is Take at a time of the caller's, in microseconds since the Unix epoch: for
// replays, simulations and tests. The time may be anywhere from 1970 to 2112 and may go
// back. It does not go with Take on one store.
func (s *Store) TakeAt(_ context.Context, now int64, charges []sluice.Charge, receipts []sluice.Receipt) error {
	return s.take(now, false, charges, receipts)
}

// maxTime is the end of the times that a store accepts: where its packed numbers end.
const maxTime = 1 << 52

var (
	errTime = errors.New("memory: the time is not between 1970 and 2112, in microseconds since the Unix epoch")
	errPlan = errors.New("memory: a charge has a plan that was not made by sluice.NewPlan")
)

// take takes at now. If that is the store's own clock, it is no earlier than the last time
// in any of the stripes.
func (s *Store) take(now int64, own bool, charges []sluice.Charge, receipts []sluice.Receipt) error {
	if err := sluice.CheckCharges(charges, receipts); err != nil {
		return err
	}
	if now < 0 || now >= maxTime {
		return errTime
	}
	for i := range charges {
		if charges[i].Plan.Tick < 1 {
			return errPlan
		}
	}
	switch n := len(charges); {
	case n == 1:
		s.takeOne(now, own, &charges[0], &receipts[0])
	case n <= 8:
		var ops [8]op
		var order [8]uint32
		s.takeAll(now, own, charges, receipts, ops[:n], order[:n])
	default:
		s.takeAll(now, own, charges, receipts, make([]op, n), make([]uint32, n))
	}
	if s.asides.full() {
		s.shed(now)
	}
	return nil
}

// hash returns what stands for the state of a charge.
func (s *Store) hash(c *sluice.Charge) uint64 {
	return maphash.String(s.seed, c.Key) ^ c.Plan.Fingerprint
}

// op is a charge under way. Its stripe is locked.
type op struct {
	*stripe
	hash      uint64
	layout    *layout
	slot      *slot  // where the state is, or
	aside     *aside // where it is, or both nil
	held      int64  // the bytes of aside, 0 if it is not kept yet
	old, next sluice.State
}

func (s *Store) takeOne(now int64, own bool, c *sluice.Charge, r *sluice.Receipt) {
	h := s.hash(c)
	o := op{stripe: &s.stripes[h>>s.shift], hash: h}
	o.mu.Lock()
	if own {
		now = max(now, o.latest)
		o.latest = now
	}
	s.read(&o, now, c)
	s.step(&o, now, c, c.Cost, r)
	if o.slot != nil {
		s.replace(&o)
	}
	if o.slot == nil {
		s.insert(&o, now, c)
	}
	s.sweep(o.stripe, now)
	o.mu.Unlock()
}

func (s *Store) takeAll(now int64, own bool, charges []sluice.Charge, receipts []sluice.Receipt, ops []op, order []uint32) {
	for i := range charges {
		h := s.hash(&charges[i])
		order[i] = uint32(h >> s.shift)
		ops[i] = op{stripe: &s.stripes[order[i]], hash: h}
	}
	order = s.lock(order)
	if own {
		now = s.latest(now, order)
	}
	for i := range charges {
		s.read(&ops[i], now, &charges[i])
		s.try(&ops[i], now, &charges[i], &receipts[i])
	}
	admitted := sluice.Admitted(charges, receipts)
	for i := range charges {
		o, c := &ops[i], &charges[i]
		cost := c.Cost
		if !admitted && receipts[i].Fits {
			cost = 0
		}
		if cost != c.Cost || c.Plan.Kernel == sluice.Units {
			s.step(o, now, c, cost, &receipts[i])
		}
		if o.slot != nil {
			s.replace(o)
		}
	}
	// An insertion moves slots, so that from here on ops[i].slot says nothing.
	for i := range charges {
		if ops[i].slot == nil {
			s.insert(&ops[i], now, &charges[i])
		}
	}
	for _, i := range order {
		s.sweep(&s.stripes[i], now)
		s.stripes[i].mu.Unlock()
	}
}

// lock locks stripes, each once and everybody in the same order, so that nobody waits in a
// circle. It returns those that it has locked.
func (s *Store) lock(order []uint32) []uint32 {
	slices.Sort(order)
	order = slices.Compact(order)
	for _, i := range order {
		s.stripes[i].mu.Lock()
	}
	return order
}

// latest returns the latest time in stripes, or now, and makes that the latest of all. It
// is for the time that passes between reading the clock and having the locks: others may
// have been faster, and their states must not look as if the clock had stepped back.
func (s *Store) latest(now int64, order []uint32) int64 {
	for _, i := range order {
		now = max(now, s.stripes[i].latest)
	}
	for _, i := range order {
		s.stripes[i].latest = now
	}
	return now
}

// read finds the state of a charge.
func (s *Store) read(o *op, now int64, c *sluice.Charge) {
	if c.Plan.Kernel != sluice.Units {
		o.layout = s.plans.layout(c.Plan)
		if o.slot = o.find(o.hash); o.slot != nil {
			o.old = s.layoutOf(o.slot, o.layout).unpack(o.slot.state, now)
			return
		}
	}
	if o.asides == nil {
		return
	}
	if o.aside = o.stripe.aside(o.hash); o.aside != nil {
		o.old, o.held = o.aside.state, o.aside.bytes()
	}
}

// step asks for cost units: of a copy of the state, but of a log itself.
func (s *Store) step(o *op, now int64, c *sluice.Charge, cost int64, r *sluice.Receipt) {
	if c.Plan.Kernel != sluice.Units {
		o.next = c.Plan.Step(o.old, now, cost, r)
		return
	}
	if o.aside == nil {
		o.aside = &aside{plan: c.Plan}
	}
	*r = o.aside.log.Step(c.Plan, now, cost)
}

// try is step for a charge that might have to be undone: it leaves a log as it is.
func (s *Store) try(o *op, now int64, c *sluice.Charge, r *sluice.Receipt) {
	switch {
	case c.Plan.Kernel != sluice.Units:
		s.step(o, now, c, c.Cost, r)
	case o.aside == nil:
		var empty sluice.Log
		*r = empty.Look(c.Plan, now, c.Cost)
	default:
		*r = o.aside.log.Look(c.Plan, now, c.Cost)
	}
}

// replace writes the state of an op that has a slot. If it no longer fits the slot, op
// has none afterwards and is to be inserted.
func (s *Store) replace(o *op) {
	if o.next == o.old {
		return
	}
	word, ok := o.layout.pack(o.next)
	if !ok {
		*o.slot, o.slot = slot{}, nil
		return
	}
	*o.slot = slot{word, o.hash<<16 | o.layout.index}
}
