package memory

import "sync/atomic"

// outline is what can be known of a stripe's asides without its lock: how many there are, that no
// rank is less than least, and that none is empty before soonest, but for those that have become
// less by themselves.
type summary struct{ n, lowest, soonest atomic.Int64 }

func (s *Store) summary(hash uint64) *summary { return &s.overflow.summaries[hash>>s.stripeShift] }

func (sm *summary) set(n int, lowest priority, soonest int64) {
	sm.n.Store(int64(n))
	sm.lowest.Store(int64(lowest))
	sm.soonest.Store(soonest)
}

// add has an outline cover a rank. The caller has the lock of the stripe.
func (sm *summary) add(n int, r priority, until int64) {
	sm.n.Store(int64(n))
	if int64(r) < sm.lowest.Load() {
		sm.lowest.Store(int64(r))
	}
	if until < sm.soonest.Load() {
		sm.soonest.Store(until)
	}
}

// shed evicts asides below a rank until no more than so many bytes are taken, and reports
// whether it could. The caller has no stripe locked.
func (s *Store) evictOverflow(bytes int64, below priority, now int64) bool {
	for s.overflow.bytes.Load() > bytes {
		i, r := s.victimStripe(now)
		if r >= below || !s.evictRecord(i, r, below, now) {
			return false
		}
	}
	return true
}

// inReach is in how many outlines the least is looked for, as long as that is not spent.
const sampleSize = 64

// leastStripe returns the stripe whose asides have the least rank, and that rank as it is known
// without locks. It looks at some stripes, and at all if it finds only what is spent: so what is
// spent goes last, wherever the others are.
func (s *Store) victimStripe(now int64) (at int, lowest priority) {
	summaries := s.overflow.summaries
	first := int(s.overflow.hand.Add(1) % uint64(len(summaries)))
	lowest = unevictable
	for n := range summaries {
		i := first + n
		if i >= len(summaries) {
			i -= len(summaries)
		}
		r := priority(summaries[i].lowest.Load())
		if summaries[i].soonest.Load() <= now {
			r = drained
		}
		// Of equals the fullest stripe loses one, so that none grows without end.
		if r < lowest || r == lowest && summaries[i].n.Load() > summaries[at].n.Load() {
			at, lowest = i, r
		}
		if lowest == drained || lowest < overHalf && n >= sampleSize {
			return at, lowest
		}
	}
	if lowest < overHalf || lowest == unevictable {
		return at, lowest
	}
	// Some may have become less since they were last looked at.
	for n := range 2 {
		i := (2*first + n) % len(summaries)
		if r := s.refresh(i, now); r < lowest {
			at, lowest = i, r
		}
	}
	return at, lowest
}

// look brings the outline of a stripe up to date, and returns the least rank.
func (s *Store) refresh(i int, now int64) priority {
	st := &s.stripes[i]
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.overflow == nil {
		return unevictable
	}
	_, r, soonest := st.overflow.victim(now)
	s.overflow.summaries[i].set(st.overflow.n, r, soonest)
	return r
}

// evictAside evicts the least of a stripe, which was expected to be of a rank, and reports
// false if it is not below another. If it is more than expected, it is left, because it may be
// another stripe's turn.
func (s *Store) evictRecord(i int, expected, below priority, now int64) bool {
	st := &s.stripes[i]
	st.mu.Lock()
	defer st.mu.Unlock()
	at, r, soonest := st.overflow.victim(now)
	s.overflow.summaries[i].set(st.overflow.n, r, soonest)
	switch {
	case r == unevictable || r > expected:
		return true
	case r >= below:
		return false
	}
	s.removeAt(st.overflow, at, st.overflow.entries[at].record.bytes())
	s.countEvicted(r)
	_, r, soonest = st.overflow.scan(now)
	s.overflow.summaries[i].set(st.overflow.n, r, soonest)
	return true
}
