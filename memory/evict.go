package memory

import "sync/atomic"

// summary describes a stripe's overflow for readers that do not hold its lock. n is the number of records, lowest
// is a lower bound of their priorities as of their last changes, and soonest is a lower bound of the times when
// they drain.
type summary struct{ n, lowest, soonest atomic.Int64 }

func (s *Store) summary(hash uint64) *summary { return &s.overflow.summaries[hash>>stripeShift] }

func (sm *summary) set(n int, lowest priority, soonest int64) {
	sm.n.Store(int64(n))
	sm.lowest.Store(int64(lowest))
	sm.soonest.Store(soonest)
}

// add updates a summary for a new or changed record. The caller holds the lock of the stripe.
func (sm *summary) add(n int, r priority, until int64) {
	sm.n.Store(int64(n))
	if int64(r) < sm.lowest.Load() {
		sm.lowest.Store(int64(r))
	}
	if until < sm.soonest.Load() {
		sm.soonest.Store(until)
	}
}

// evictOverflow evicts records below a priority until the overflow takes no more than the given bytes, and reports
// whether it succeeded. The caller has no stripe locked.
func (s *Store) evictOverflow(bytes int64, below priority, now int64) bool {
	for s.overflow.bytes.Load() > bytes {
		i, r := s.victimStripe(now)
		if r >= below || !s.evictRecord(i, r, below, now) {
			return false
		}
	}
	return true
}

// sampleSize bounds a search. When it has read more than sampleSize summaries, it ends as soon as it knows a record with
// a priority below overHalf. A drained record ends it at once.
const sampleSize = 64

// victimStripe returns the stripe with the record of the lowest priority in its overflow, and that priority, as far
// as both are known without locks. It reads the summaries of some stripes. If all records of these stripes have
// used more than half of their limits, it reads further summaries until it finds another record, so that such records
// are evicted only if the store has no others.
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
		// Among equal priorities, the fullest stripe loses a record, so that no stripe grows without bound.
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
	// Some priorities may have become lower since the records were last changed.
	for n := range 2 {
		i := (2*first + n) % len(summaries)
		if r := s.refresh(i, now); r < lowest {
			at, lowest = i, r
		}
	}
	return at, lowest
}

// refresh brings the summary of a stripe up to date, and returns its lowest priority.
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

// evictRecord evicts a stripe's record of lowest priority. If that priority is higher than expected, it evicts nothing
// and reports true, because another stripe may now have a record of lower priority. Otherwise, if the priority is not
// lower than the bound, it evicts nothing and reports false.
func (s *Store) evictRecord(i int, expected, bound priority, now int64) bool {
	st := &s.stripes[i]
	st.mu.Lock()
	defer st.mu.Unlock()
	at, r, soonest := st.overflow.victim(now)
	s.overflow.summaries[i].set(st.overflow.n, r, soonest)
	switch {
	case r == unevictable || r > expected:
		return true
	case r >= bound:
		return false
	}
	s.removeAt(st.overflow, at, st.overflow.entries[at].record.bytes())
	s.countEvicted(r)
	_, r, soonest = st.overflow.scan(now)
	s.overflow.summaries[i].set(st.overflow.n, r, soonest)
	return true
}
