package memory

import (
	"math"
	"math/rand/v2"
	"strings"
	"sync/atomic"

	"github.com/sluicehq/sluice"
)

// aside is what does not fit a slot: a log, or a state whose numbers are too large.
type aside struct {
	plan  *sluice.Plan
	state sluice.State
	log   sluice.Log
	kept  *kept // in a verified store, else nil
}

// kept is the key of an aside, and the next aside of the same hash.
type kept struct {
	key  string
	next *aside
}

// stripeAsides are the asides of a stripe, under its lock.
type stripeAsides struct {
	byHash map[uint64]*aside
	sweep  int // the length at which those that have drained are looked for
}

// asides bounds what all stripes have aside.
type asides struct {
	max   int64
	bytes atomic.Int64
}

// What is counted beside the bytes of a log: for an aside, itself, its share of a map
// that is half full, and what the allocator rounds up; for a stripe, a map with nothing in it.
const (
	asideBytes       = 64 + 58
	keptBytes        = 24 + 15 // beside the key, which the allocator rounds up
	stripeAsideBytes = 200
)

// leastSweep is how many asides a stripe has before it is worth looking at them.
const leastSweep = 8

func (as *asides) full() bool { return as.bytes.Load() > as.max }

func (a *aside) bytes() int64 {
	bytes := asideBytes + int64(a.log.Bytes())
	if a.kept != nil {
		bytes += keptBytes + int64(len(a.kept.key))
	}
	return bytes
}

func (a *aside) next() *aside {
	if a.kept == nil {
		return nil
	}
	return a.kept.next
}

// chain yields the asides of one hash, the first of which is a.
func (a *aside) chain(yield func(*aside) bool) {
	for a != nil {
		next := a.next() // a may be removed meanwhile
		if !yield(a) {
			return
		}
		a = next
	}
}

func (a *aside) rank(now int64) rank {
	if a.plan.Kernel != sluice.Units {
		return rankOf(a.plan, a.state, now)
	}
	until := a.log.EmptyAt(a.plan)
	if until <= now {
		return drained
	}
	return rank{used(a.plan, a.log.Look(a.plan, now, 0)), until}
}

// findAside returns what is aside for an op, or nil. Without a key the hash is enough.
func (o *op) findAside(p *sluice.Plan) *aside {
	for a := o.asidesByHash()[o.hash]; a != nil; a = a.next() {
		if a.kept == nil || a.kept.key == o.key && a.plan.Fingerprint == p.Fingerprint {
			return a
		}
	}
	return nil
}

// asidesByHash returns a nil map where there are none.
func (st *stripe) asidesByHash() map[uint64]*aside {
	if st.asides == nil {
		return nil
	}
	return st.asides.byHash
}

// setLog keeps the log of an op, which has been stepped.
func (s *Store) setLog(o *op, p *sluice.Plan) {
	empty := o.aside.log.EmptyAt(p) == 0
	o.aside.plan = p
	switch {
	case o.held == 0 && !empty:
		s.addAside(o)
	case o.held > 0 && empty:
		s.removeAside(o.stripe, o.hash, o.aside, o.held)
	case o.held > 0:
		s.asides.bytes.Add(o.aside.bytes() - o.held)
	}
}

// setState keeps the state of an op, which fits no slot.
func (s *Store) setState(o *op, p *sluice.Plan) {
	if o.aside == nil {
		o.aside = &aside{}
		defer s.addAside(o)
	}
	o.aside.plan, o.aside.state = p, o.new
}

func (s *Store) addAside(o *op) {
	if o.asides == nil {
		o.asides = &stripeAsides{byHash: map[uint64]*aside{}, sweep: leastSweep}
		s.asides.bytes.Add(stripeAsideBytes)
	}
	if s.verified {
		o.aside.kept = &kept{strings.Clone(o.key), o.asides.byHash[o.hash]}
	}
	o.asides.byHash[o.hash] = o.aside
	s.asides.bytes.Add(o.aside.bytes())
}

func (s *Store) removeAside(st *stripe, hash uint64, a *aside, bytes int64) {
	s.asides.bytes.Add(-bytes)
	switch first := st.asides.byHash[hash]; {
	case first != a:
		for first.kept.next != a {
			first = first.kept.next
		}
		first.kept.next = a.kept.next
	case a.next() != nil:
		st.asides.byHash[hash] = a.kept.next
	default:
		delete(st.asides.byHash, hash)
	}
}

// sweep forgets what has drained. It comes once each time that the number of asides has
// doubled, so that it costs each of them little, and moves to a new map, because a map does not
// shrink. No op may be under way in the stripe, which could hold what is forgotten.
func (s *Store) sweep(st *stripe, now int64) {
	sa := st.asides
	if sa == nil || len(sa.byHash) < sa.sweep {
		return
	}
	kept := make(map[uint64]*aside, len(sa.byHash))
	for hash, first := range sa.byHash {
		for a := range first.chain {
			if a.rank(now) == drained {
				s.asides.bytes.Add(-a.bytes())
				continue
			}
			if a.kept != nil {
				a.kept.next = kept[hash]
			}
			kept[hash] = a
		}
	}
	sa.byHash, sa.sweep = kept, max(leastSweep, 2*len(kept))
}

// shed evicts asides until they are within their bound. The caller has no stripe locked.
func (s *Store) shed(now int64) {
	for s.asides.full() {
		st, hash, lowest := s.leastAside(now)
		if st == nil {
			return
		}
		st.mu.Lock()
		if a := st.asidesByHash()[hash]; a != nil {
			s.removeAside(st, hash, a, a.bytes())
			if lowest != drained {
				s.evicted.Add(1)
			}
		}
		st.mu.Unlock()
	}
}

// samples is among how many asides at least the one to evict is chosen. A stripe has
// about as many when the store is full of them.
const samples = 64

// leastAside returns the stripe and the hash of what matters least in some stripes that
// follow each other. The stripe is nil if there are none.
func (s *Store) leastAside(now int64) (of *stripe, hash uint64, lowest rank) {
	lowest.used = math.MaxInt64
	seen, first := 0, rand.IntN(len(s.stripes))
	for i := 0; i < len(s.stripes) && seen < samples; i++ {
		st := &s.stripes[(first+i)%len(s.stripes)]
		st.mu.Lock()
		for h, a := range st.asidesByHash() {
			seen++
			r := a.rank(now)
			// Of equals any may go. If it was the first, small stripes would lose as much
			// as large ones, and in the end what should stay.
			if r.less(lowest) || r == lowest && rand.IntN(seen) == 0 {
				of, hash, lowest = st, h, r
			}
		}
		st.mu.Unlock()
	}
	return of, hash, lowest
}
