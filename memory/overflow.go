package memory

import (
	"sync/atomic"
	"unsafe"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/kernel"
)

// record is a state that does not fit a cell: a log, permits, or one with numbers that are too large.
type record struct {
	plan  *sluice.Plan
	state kernel.State
	log   kernel.Log
	held  *kernel.Permits // nil except for permits
}

// changes reports whether states of p are changed in place. Such states are never in a cell.
func changes(p *sluice.Plan) bool { return p.Kernel.Log() || p.Kernel.Permits() }

func (a *record) permits() *kernel.Permits {
	if a.held == nil {
		a.held = new(kernel.Permits)
	}
	return a.held
}

// empty reports whether a state that changes in place is empty.
func (a *record) empty() bool {
	if a.plan.Kernel.Permits() {
		return a.permits().EmptyAt() == 0
	}
	return a.log.EmptyAt(&a.plan.Plan) == 0
}

// overflow bounds the memory of all records.
type overflow struct {
	max       int64
	bytes     atomic.Int64
	hand      atomic.Uint64 // chooses the first summary to read
	summaries []summary     // one for each stripe

	crowdedUntil atomic.Int64 // see crowded
}

// Bytes that are counted in addition to the bytes of a log: the record itself, rounding by the allocator, and the
// table of a stripe with records.
const (
	recordBytes        = int64(unsafe.Sizeof(record{})+15) &^ 15
	permitsBytes       = int64(unsafe.Sizeof(kernel.Permits{})+15) &^ 15
	logRounded         = 8
	entryBytes         = int64(unsafe.Sizeof(entry{}))
	overflowTableBytes = 48
)

func (as *overflow) full() bool { return as.bytes.Load() > as.max }

func (a *record) bytes() int64 {
	bytes := recordBytes
	if a.held != nil {
		bytes += permitsBytes + int64(a.held.Bytes())
	}
	if a.plan.Kernel.Log() {
		bytes += int64(a.log.Bytes()) + logRounded
	}
	return bytes
}

func (a *record) priority(now int64) (_ priority, until int64) {
	var r sluice.Receipt
	switch {
	case a.plan.Kernel.Log():
		r.Receipt = a.log.Look(&a.plan.Plan, now, 0)
	case a.plan.Kernel.Permits():
		r.Receipt = a.permits().Look(&a.plan.Plan, now, 0, 0)
	default:
		return priorityOfState(a.plan, a.state, now)
	}
	return priorityOf(a.plan, &r, 0)
}

// findRecord returns the record of an op, or nil.
func (o *op) findRecord() *record {
	sa := o.overflow
	for i := sa.home(o.hash); sa.entries[i].record != nil; i = sa.next(i) {
		if sa.entries[i].hash == o.hash {
			return sa.entries[i].record
		}
	}
	return nil
}

// setRecord stores the record of an op after its state has changed in place. r is the op's receipt.
func (s *Store) setRecord(o *op, c *sluice.Charge, r *sluice.Receipt) {
	if o.full {
		return
	}
	p := c.Plan
	if same := o.record.plan == p; same && (c.Cost == 0 || !r.Fits && !c.Owe) {
		return
	}
	o.record.plan = p
	empty := o.record.empty()
	switch {
	case o.held == 0 && !empty:
		s.addRecord(o, p, r)
	case o.held > 0 && empty:
		s.removeRecord(o)
	case o.held > 0:
		s.overflow.bytes.Add(o.record.bytes() - o.held)
		s.updatePriority(o, p, r)
	}
}

// setState stores the new state of an op in a record, because it does not fit in a cell.
func (s *Store) setState(o *op, p *sluice.Plan, r *sluice.Receipt) {
	if o.held > 0 {
		o.record.plan, o.record.state = p, o.new
		s.updatePriority(o, p, r)
		return
	}
	o.record = &record{plan: p, state: o.new}
	s.addRecord(o, p, r)
}

func (s *Store) updatePriority(o *op, p *sluice.Plan, r *sluice.Receipt) {
	e := &o.overflow.entries[o.overflow.find(o.hash, o.record)]
	e.priority, e.until = priorityOf(p, r, r.Now)
	s.summary(o.hash).add(o.overflow.n, e.priority, e.until)
}

func (s *Store) addRecord(o *op, p *sluice.Plan, r *sluice.Receipt) {
	bytes := int64(0)
	if o.overflow == nil {
		o.overflow = newOverflowTable()
		bytes = overflowTableBytes + o.overflow.bytes()
	}
	before := o.overflow.bytes()
	priority, until := priorityOf(p, r, r.Now)
	o.overflow.add(entry{o.hash, priority, until, o.record})
	s.overflow.bytes.Add(bytes + o.overflow.bytes() - before + o.record.bytes())
	s.summary(o.hash).add(o.overflow.n, priority, until)
}

func (s *Store) removeRecord(o *op) {
	s.removeAt(o.overflow, o.overflow.find(o.hash, o.record), o.held)
}

// removeAt removes the record at an index. bytes is the record's size.
func (s *Store) removeAt(sa *overflowTable, at int, bytes int64) {
	before := sa.bytes()
	sa.remove(at)
	s.overflow.bytes.Add(sa.bytes() - before - bytes)
}

// sweep drops the records that have drained. It runs each time the number of records has doubled, so its cost per
// record is small. It must not run during an op in the stripe, because the op could use one of the records.
func (s *Store) sweep(st *stripe, now int64) {
	sa := st.overflow
	if sa == nil || sa.n < sa.sweep {
		return
	}
	bytes := -sa.bytes()
	old := sa.entries
	sa.entries, sa.n = nil, 0
	for i := range old {
		switch e := &old[i]; {
		case e.record == nil:
		case e.at(now) == drained:
			bytes -= e.record.bytes()
		default:
			old[sa.n] = *e
			sa.n++
		}
	}
	sa.rebuild(old[:sa.n], sa.n)
	sa.sweep = max(minSweep, 2*sa.n)
	s.overflow.bytes.Add(bytes + sa.bytes())
}
