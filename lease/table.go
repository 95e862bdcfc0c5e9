package lease

import (
	"hash/maphash"
	"slices"
	"sync/atomic"

	"github.com/sluicehq/sluice"
)

const (
	sets     = 2048
	ways     = 4
	maxPools = 4096
	counters = 1 << 14
	// worth is the fewest units of a key that must be requested in countFor before the key is leased.
	worth    = 8
	countFor = 250_000 // µs
)

// table has the pools, by a hash of the key and the plan's fingerprint.
type table [sets][ways]atomic.Pointer[pool]

func (s *Store) hash(c *sluice.Charge) uint64 {
	return maphash.String(s.seed, c.Key) ^ c.Plan.Fingerprint
}

// find returns the pool of a charge, or nil.
func (s *Store) find(hash uint64, c *sluice.Charge) *pool {
	set := &s.pools[hash%sets]
	for i := range set {
		if p := set[i].Load(); p != nil && p.hash == hash && p.counts(c) {
			return p
		}
	}
	return nil
}

// insert adds a pool, unless the table is full or contains it.
func (s *Store) insert(p *pool) {
	s.inserting.Lock()
	defer s.inserting.Unlock()
	if s.closed.Load() || len(s.held) >= maxPools {
		return
	}
	set := &s.pools[p.hash%sets]
	free := -1
	for i := range set {
		switch old := set[i].Load(); {
		case old == nil:
			free = i
		case old.hash == p.hash && old.key == p.key && old.plan.Fingerprint == p.plan.Fingerprint:
			return
		}
	}
	if free < 0 {
		return
	}
	set[free].Store(p)
	if s.held = append(s.held, p); len(s.held) == 1 {
		s.sweepLater()
	}
}

// remove takes a pool out of the table.
func (s *Store) remove(p *pool) {
	s.inserting.Lock()
	defer s.inserting.Unlock()
	set := &s.pools[p.hash%sets]
	for i := range set {
		if set[i].CompareAndSwap(p, nil) {
			s.held = slices.DeleteFunc(s.held, func(h *pool) bool { return h == p })
		}
	}
}

// all returns the pools.
func (s *Store) all() []*pool {
	s.inserting.Lock()
	defer s.inserting.Unlock()
	return slices.Clone(s.held)
}

// enough returns how many units of a key must be requested in countFor before the key is leased. With fewer than
// three units in a horizon, most reserved units would be lost.
func enough(p *sluice.Plan) int64 { return max(worth, 3*countFor/max(shortest, horizon(p))) }

// demanded counts requested units of a key without a pool, and reports whether enough were requested. A counter
// belongs to one key at a time. If two keys have the same counter, the key that is requested more often eventually
// takes it over.
//
// A counter is 24 bits of a hash, 24 bits of the time, and 16 bits of units.
func (s *Store) demanded(hash uint64, cost, enough, at int64) bool {
	counter := &s.counters[hash%counters]
	tag, turn := hash>>40, uint64(at/countFor)&(1<<24-1)
	for {
		old := counter.Load()
		n := int64(old & (1<<16 - 1))
		own := tag
		switch {
		case old>>16&(1<<24-1) != turn:
			n = min(cost, enough)
		case old>>40 == tag:
			n = min(n+cost, enough)
		case n > cost:
			n, own = n-cost, old>>40
		default:
			n = min(cost, enough)
		}
		if counter.CompareAndSwap(old, own<<40|turn<<16|uint64(n)) {
			return own == tag && n >= enough
		}
	}
}
