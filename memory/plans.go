package memory

import (
	"math"
	"math/bits"
	"sync"
	"sync/atomic"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/kernel"
)

// maxPlans is the number of plans that the 16 bits of a tag can distinguish.
const maxPlans = 1 << 16

// layout packs the states of a plan into words that are never 0. The word of a meter is tick·Drain + level. The
// word of a window has its number, the previous window's count, and its own count.
type layout struct {
	plan  *sluice.Plan
	index uint64
	fits  bool  // if false, no state is packed
	most  int64 // the largest cost that add accepts
	// For a window: the number of bits of each count, and of all counts in the word.
	bits, shift uint8

	siblings *siblings
	raised   atomic.Pointer[kernel.Plan] // see stepping
}

// siblings are the plans of one fingerprint, which share states.
type siblings struct{ most atomic.Int64 } // the largest Most of these plans

// stepping returns the plan to step with: l.plan, or for a meter l.plan raised to the largest Most of its siblings.
// Call it after the state has been read, so that a higher level written by a sibling is not cut.
func (l *layout) stepping() *kernel.Plan {
	if l.plan.Kernel != kernel.Meter {
		return &l.plan.Plan
	}
	p, most := l.raised.Load(), l.siblings.most.Load()
	if p.Most < most {
		if p = l.plan.Raised(most); p != &l.plan.Plan {
			l.raised.Store(p)
		}
	}
	return p
}

// never is the layout of plans that do not pack their states.
var never = &layout{}

func newLayout(p *sluice.Plan, index uint64) *layout {
	l := &layout{plan: p, index: index, siblings: new(siblings)}
	l.raised.Store(&p.Plan)
	if p.Kernel == kernel.Lock {
		return l // not packed, because few keys have a penalty
	}
	last := uint64(maxTime-1) / uint64(p.Tick)
	if p.Kernel == kernel.Meter {
		hi, lo := bits.Mul64(last, uint64(p.Drain))
		l.fits = hi == 0 && lo < math.MaxUint64-maxTime
		if p.Tick == 1 && l.fits {
			l.most = p.Capacity
		}
		return l
	}
	// If there are too few bits for the largest debt, states with debts are kept in the overflow.
	if !l.setBits(p.Most) {
		l.setBits(p.Capacity)
	}
	return l
}

// setBits divides the word of a window into bits for counts of up to count units, and reports whether the bits
// suffice.
func (l *layout) setBits(count int64) bool {
	l.bits = uint8(bits.Len64(uint64(count)))
	l.shift = l.bits
	if l.plan.Sliding {
		l.shift *= 2
	}
	lastWindow, _, _ := l.plan.WindowAt(maxTime - 1)
	l.fits = int(l.shift)+bits.Len64(uint64(lastWindow)) <= 64
	return l.fits
}

func (l *layout) pack(s kernel.State) (word uint64, ok bool) {
	switch {
	case s == kernel.State{}:
		return 0, true
	case !l.fits:
		return 0, false
	case l.plan.Kernel == kernel.Meter && s.Used > maxTime:
		return 0, false
	case l.plan.Kernel == kernel.Meter:
		return uint64(s.Tick)*uint64(l.plan.Drain) + uint64(s.Used), true
	case (s.Used|s.Prev)>>l.bits != 0: // Count was lowered, or more is owed
		return 0, false
	}
	return uint64(s.Tick)<<l.shift | uint64(s.Prev)<<l.bits | uint64(s.Used), true
}

// unpack returns the state in a word; for a meter, the state as of now. For [kernel.Plan.Step], this is equivalent,
// because the level and the tick of a meter are one number.
func (l *layout) unpack(word uint64, now int64) kernel.State {
	if l.plan.Kernel != kernel.Meter {
		return l.unpackWindow(word)
	}
	tick, made := now, int64(0)
	if l.plan.Tick != 1 {
		tick, made = now/l.plan.Tick, l.plan.Tick
	}
	drained := uint64(tick) * uint64(l.plan.Drain)
	if word <= drained {
		return kernel.State{}
	}
	// Step treats all levels above 2*maxTime alike.
	return kernel.State{Tick: tick, Used: int64(min(word-drained, 2*maxTime)), Prev: made}
}

func (l *layout) unpackWindow(word uint64) kernel.State {
	mask := uint64(1)<<l.bits - 1
	return kernel.State{
		Tick: int64(word >> l.shift),
		Used: int64(word & mask),
		Prev: int64(word >> l.bits & (1<<(l.shift-l.bits) - 1)),
	}
}

// tag returns the tag of a cell with a state of this plan.
func (l *layout) tag(hash uint64) uint64 { return hash<<16 | l.index }

// word packs a state into the word of a cell with that tag.
func (l *layout) word(s kernel.State, tag uint64) (word uint64, ok bool) {
	if word, ok = l.pack(s); word == 0 {
		return free, ok
	}
	if word = mixed(word, tag); word <= reserved {
		return free, false
	}
	return word, true
}

// step is [kernel.Plan.Step] for packed states. It reports false if the next state does not fit in a word.
func (l *layout) step(word, tag uint64, now, cost int64, r *sluice.Receipt) (next uint64, ok bool) {
	if cost > 0 && cost <= l.most {
		if next := l.add(mixed(word, tag), now, cost, r); next != 0 {
			next = mixed(next, tag)
			return next, next > reserved
		}
	}
	old := l.unpack(mixed(word, tag), now)
	s := l.stepping().Step(old, now, cost, &r.Receipt)
	r.Origin = sluice.ByStore
	if s == old {
		return word, true
	}
	return l.word(s, tag)
}

// add is step for the most common case, a meter with a tick of a microsecond: one addition and one comparison,
// because the word of a meter is one number. It returns 0 in all other cases.
func (l *layout) add(word uint64, now, cost int64, r *sluice.Receipt) uint64 {
	p := l.plan
	drained := uint64(now) * uint64(p.Drain)
	from := max(word, drained)
	next := from + uint64(cost*p.Unit)
	full := drained + uint64(p.Size)
	switch {
	case next <= full:
		r.Receipt = kernel.Receipt{Now: now, Used: int64(next - drained), Fits: true}
		r.Origin = sluice.ByStore
		return next
	case from <= full:
		r.Receipt = kernel.Receipt{Now: now, Used: int64(from - drained)}
		r.Origin = sluice.ByStore
		return word
	}
	return 0
}

// plans assigns a layout to each plan that a store is used with. Plans that decide alike share a layout. Layouts
// are never removed, because a process has few plans. After maxPlans plans, the states of further plans are kept in
// the overflow.
type plans struct {
	mu       sync.Mutex
	siblings map[uint64]*siblings // by fingerprint
	// A hash table with linear probing, at most half full, replaced when it grows.
	table atomic.Pointer[[]atomic.Pointer[layout]]
	// All layouts, by index. Earlier lists share the array, but their readers read only up to the length of their
	// list.
	list atomic.Pointer[[]*layout]
}

func (ps *plans) layout(p *sluice.Plan) *layout {
	if l := ps.find(p); l != nil {
		return l
	}
	return ps.add(p)
}

// find returns the layout of a plan that is known, or nil.
func (ps *plans) find(p *sluice.Plan) *layout {
	if t := ps.table.Load(); t != nil {
		return probe(*t, p).Load()
	}
	return nil
}

// probe returns the slot of a plan, which is empty if the plan is not in the table.
func probe(table []atomic.Pointer[layout], p *sluice.Plan) *atomic.Pointer[layout] {
	mask := uint64(len(table) - 1)
	for i := p.Fingerprint + uint64(p.Capacity)*0x9e3779b97f4a7c15>>40; ; i++ {
		l := table[i&mask].Load()
		if l == nil || l.plan == p || alike(l.plan, p) {
			return &table[i&mask]
		}
	}
}

// alike reports whether two plans give the same receipts for the same states.
func alike(a, b *sluice.Plan) bool {
	return a.Fingerprint == b.Fingerprint && a.Capacity == b.Capacity && a.Most == b.Most && a.Fixed == b.Fixed && a.Tick == b.Tick
}

func (ps *plans) add(p *sluice.Plan) *layout {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	var list []*layout
	if old := ps.list.Load(); old != nil {
		list = *old
	}
	table := ps.grown(list)
	place := probe(*table, p)
	if l := place.Load(); l != nil {
		return l
	}
	if len(list) == maxPlans {
		return never
	}
	others := ps.siblings[p.Fingerprint]
	if others == nil {
		if ps.siblings == nil {
			ps.siblings = map[uint64]*siblings{}
		}
		others = new(siblings)
		ps.siblings[p.Fingerprint] = others
	}
	others.most.Store(max(others.most.Load(), p.Most))
	l := newLayout(p, uint64(len(list)))
	l.siblings = others
	list = append(list, l)
	ps.list.Store(&list)
	place.Store(l)
	return l
}

// grown returns a table with room for one more plan.
func (ps *plans) grown(list []*layout) *[]atomic.Pointer[layout] {
	t := ps.table.Load()
	if t != nil && 2*len(list) < len(*t) {
		return t
	}
	grown := make([]atomic.Pointer[layout], max(16, 4*len(list)))
	for _, l := range list {
		probe(grown, l.plan).Store(l)
	}
	ps.table.Store(&grown)
	return &grown
}

// layoutOf returns the layout of the state with a tag, which is most often l.
func (s *Store) layoutOf(tag uint64, l *layout) *layout {
	if i := tag & (maxPlans - 1); l == never || i != l.index {
		return (*s.plans.list.Load())[i]
	}
	return l
}
