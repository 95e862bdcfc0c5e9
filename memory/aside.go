package memory

import (
	"strings"
	"sync/atomic"
	"unsafe"

	"github.com/sluicehq/sluice"
)

// aside is what does not fit a slot: a log, or a state whose numbers are too large.
type aside struct {
	plan  *sluice.Plan
	state sluice.State
	log   sluice.Log
	key   string // in a verified store
}

// asides bounds what all stripes have aside.
type asides struct {
	max      int64
	bytes    atomic.Int64
	hand     atomic.Uint64 // which outline is looked at first
	outlines []outline     // of each stripe

	crowdedUntil atomic.Int64 // see crowded
}

// What is counted beside the bytes of a log and a key: for an aside itself, for what the
// allocator rounds up of a key and a log, and for a stripe that has any.
const (
	asideBytes       = int64(unsafe.Sizeof(aside{}))
	keyRounded       = 15
	logRounded       = 8
	entryBytes       = int64(unsafe.Sizeof(entry{}))
	stripeAsideBytes = 48
)

func (as *asides) full() bool { return as.bytes.Load() > as.max }

func (a *aside) bytes() int64 {
	bytes := asideBytes
	if a.plan.Kernel.Log() {
		bytes += int64(a.log.Bytes()) + logRounded
	}
	if a.key != "" {
		bytes += keyRounded + int64(len(a.key))
	}
	return bytes
}

func (a *aside) rank(now int64) (_ rank, until int64) {
	if !a.plan.Kernel.Log() {
		return rankState(a.plan, a.state, now)
	}
	r := a.log.Look(a.plan, now, 0)
	return rankOf(a.plan, &r, 0)
}

// findAside returns what is aside for an op, or nil. Without a key the hash is enough.
func (s *Store) findAside(o *op, p *sluice.Plan) *aside {
	sa := o.asides
	for i := sa.home(o.hash); sa.entries[i].aside != nil; i = sa.next(i) {
		a := sa.entries[i].aside
		if sa.entries[i].hash == o.hash && (!s.verified || a.key == o.key && a.plan.Fingerprint == p.Fingerprint) {
			return a
		}
	}
	return nil
}

// setLog keeps the log of an op, which has been stepped and answered with r.
func (s *Store) setLog(o *op, p *sluice.Plan, cost int64, r *sluice.Receipt) {
	if same := o.aside.plan == p; same && (cost == 0 || !r.Fits) {
		return
	}
	empty := o.aside.log.EmptyAt(p) == 0
	o.aside.plan = p
	switch {
	case o.held == 0 && !empty:
		s.addAside(o, p, r)
	case o.held > 0 && empty:
		s.removeAside(o)
	case o.held > 0:
		s.asides.bytes.Add(o.aside.bytes() - o.held)
		s.rerank(o, p, r)
	}
}

// setState keeps the state of an op, which fits no slot.
func (s *Store) setState(o *op, p *sluice.Plan, r *sluice.Receipt) {
	if o.held > 0 {
		o.aside.plan, o.aside.state = p, o.new
		s.rerank(o, p, r)
		return
	}
	o.aside = &aside{plan: p, state: o.new}
	s.addAside(o, p, r)
}

func (s *Store) rerank(o *op, p *sluice.Plan, r *sluice.Receipt) {
	e := &o.asides.entries[o.asides.find(o.hash, o.aside)]
	e.rank, e.until = rankOf(p, r, r.Now)
	s.outline(o.hash).add(o.asides.n, e.rank, e.until)
}

func (s *Store) addAside(o *op, p *sluice.Plan, r *sluice.Receipt) {
	bytes := int64(0)
	if o.asides == nil {
		o.asides = newStripeAsides()
		bytes = stripeAsideBytes + o.asides.bytes()
	}
	if s.verified {
		o.aside.key = strings.Clone(o.key)
	}
	before := o.asides.bytes()
	rank, until := rankOf(p, r, r.Now)
	o.asides.add(entry{o.hash, rank, until, o.aside})
	s.asides.bytes.Add(bytes + o.asides.bytes() - before + o.aside.bytes())
	s.outline(o.hash).add(o.asides.n, rank, until)
}

func (s *Store) removeAside(o *op) {
	s.removeAt(o.asides, o.asides.find(o.hash, o.aside), o.held)
}

// removeAt removes what is at a place, and has so many bytes.
func (s *Store) removeAt(sa *stripeAsides, at int, bytes int64) {
	before := sa.bytes()
	sa.remove(at)
	s.asides.bytes.Add(sa.bytes() - before - bytes)
}

// sweep forgets what has drained. It comes once each time that the number of asides has
// doubled, so that it costs each of them little. No op may be under way in the stripe, which
// could hold what is forgotten.
func (s *Store) sweep(st *stripe, now int64) {
	sa := st.asides
	if sa == nil || sa.n < sa.sweep {
		return
	}
	bytes := -sa.bytes()
	old := sa.entries
	sa.entries, sa.n = nil, 0
	for i := range old {
		switch e := &old[i]; {
		case e.aside == nil:
		case e.at(now) == drained:
			bytes -= e.aside.bytes()
		default:
			old[sa.n] = *e
			sa.n++
		}
	}
	sa.rebuild(old[:sa.n], sa.n)
	sa.sweep = max(leastSweep, 2*sa.n)
	s.asides.bytes.Add(bytes + sa.bytes())
}
