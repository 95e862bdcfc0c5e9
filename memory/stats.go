package memory

// Stats are the numbers of keys in a store.
type Stats struct {
	// Keys is the number of states that are not empty.
	Keys int
	// Bytes is what tables and logs take, at most what the store was made for.
	Bytes int64
	Losses
}

// Losses count what did not fit since a store was made.
type Losses struct {
	// Evicted is how many states that were not empty were evicted. If it grows, the store is too
	// small for its keys.
	Evicted int64
	// Freed is how many of these had used more than half of their limit. If it grows, more keys
	// are being limited than fit, and clients can get a fresh limit by bringing new keys.
	Freed int64
	// Refused is how many charges of new keys were refused instead; see [Config.RefuseNew].
	Refused int64
}

// Losses returns the losses of [Stats], without looking at every state.
func (s *Store) Losses() Losses {
	return Losses{Evicted: s.evicted.Load(), Freed: s.freed.Load(), Refused: s.refused.Load()}
}

func (s *Store) countEvicted(r priority) {
	if r > drained {
		s.evicted.Add(1)
	}
	if r >= overHalf {
		s.freed.Add(1)
	}
}

// Stats counts what the store holds, by its own clock. It looks at every state, one stripe at a
// time, which takes some milliseconds for a million: it is for people and metrics.
func (s *Store) Stats() Stats { return s.StatsAt(s.now()) }

// StatsAt is Stats for a store that is used with TakeAt.
func (s *Store) StatsAt(now int64) Stats {
	st := Stats{Bytes: s.overflow.bytes.Load() + s.tables.bytes() + s.headBytes(), Losses: s.Losses()}
	for i := range s.stripes {
		s.stripes[i].count(s, now, &st)
	}
	return st
}

func (st *stripe) count(s *Store, now int64, sum *Stats) {
	st.mu.Lock()
	defer st.mu.Unlock()
	for i := range st.size() {
		b := st.tables.bucket(uint64(st.number), i)
		for j := range b {
			if s.priority(b[j].word.Load(), b[j].tag.Load(), now) > drained {
				sum.Keys++
			}
		}
	}
	for a := range st.eachRecord() {
		if r, _ := a.priority(now); r != drained {
			sum.Keys++
		}
	}
}
