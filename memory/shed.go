package memory

import "sync/atomic"

// outline is what can be known of a stripe's asides without its lock: how many there are, that no
// rank is less than least, and that none is empty before soonest, but for those that have become
// less by themselves.
type outline struct{ n, least, soonest atomic.Int64 }

func (s *Store) outline(hash uint64) *outline { return &s.asides.outlines[hash>>s.shift] }

func (o *outline) set(n int, least rank, soonest int64) {
	o.n.Store(int64(n))
	o.least.Store(int64(least))
	o.soonest.Store(soonest)
}

// add has an outline cover a rank. The caller has the lock of the stripe.
func (o *outline) add(n int, r rank, until int64) {
	o.n.Store(int64(n))
	if int64(r) < o.least.Load() {
		o.least.Store(int64(r))
	}
	if until < o.soonest.Load() {
		o.soonest.Store(until)
	}
}

// shed evicts asides below a rank until no more than so many bytes are taken, and reports
// whether it could. The caller has no stripe locked.
func (s *Store) shed(bytes int64, below rank, now int64) bool {
	for s.asides.bytes.Load() > bytes {
		i, r := s.leastStripe(now)
		if r >= below || !s.evictAside(i, r, below, now) {
			return false
		}
	}
	return true
}

// inReach is in how many outlines the least is looked for, as long as that is not spent.
const inReach = 64

// leastStripe returns the stripe whose asides have the least rank, and that rank as it is known
// without locks. It looks at some stripes, and at all if it finds only what is spent: so what is
// spent goes last, wherever the others are.
func (s *Store) leastStripe(now int64) (at int, lowest rank) {
	outlines := s.asides.outlines
	first := int(s.asides.hand.Add(1) % uint64(len(outlines)))
	lowest = most
	for n := range outlines {
		i := first + n
		if i >= len(outlines) {
			i -= len(outlines)
		}
		r := rank(outlines[i].least.Load())
		if outlines[i].soonest.Load() <= now {
			r = drained
		}
		// Of equals the fullest stripe loses one, so that none grows without end.
		if r < lowest || r == lowest && outlines[i].n.Load() > outlines[at].n.Load() {
			at, lowest = i, r
		}
		if lowest == drained || lowest < spent && n >= inReach {
			return at, lowest
		}
	}
	if lowest < spent || lowest == most {
		return at, lowest
	}
	// Some may have become less since they were last looked at.
	for n := range 2 {
		i := (2*first + n) % len(outlines)
		if r := s.look(i, now); r < lowest {
			at, lowest = i, r
		}
	}
	return at, lowest
}

// look brings the outline of a stripe up to date, and returns the least rank.
func (s *Store) look(i int, now int64) rank {
	st := &s.stripes[i]
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.asides == nil {
		return most
	}
	_, r, soonest := st.asides.least(now)
	s.asides.outlines[i].set(st.asides.n, r, soonest)
	return r
}

// evictAside evicts the least of a stripe, which was expected to be of a rank, and reports
// false if it is not below another. If it is more than expected, it is left, because it may be
// another stripe's turn.
func (s *Store) evictAside(i int, expected, below rank, now int64) bool {
	st := &s.stripes[i]
	st.mu.Lock()
	defer st.mu.Unlock()
	at, r, soonest := st.asides.least(now)
	s.asides.outlines[i].set(st.asides.n, r, soonest)
	switch {
	case r == most || r > expected:
		return true
	case r >= below:
		return false
	}
	s.removeAt(st.asides, at, st.asides.entries[at].aside.bytes())
	s.forgot(r)
	_, r, soonest = st.asides.scan(now)
	s.asides.outlines[i].set(st.asides.n, r, soonest)
	return true
}
