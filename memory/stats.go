package memory

// Stats has the size of a store and its losses.
type Stats struct {
	// Keys is the number of states that are not empty.
	Keys int
	// Bytes is the memory in use, at most [Config.MaxBytes].
	Bytes int64
	Losses
}

// Losses counts the states and charges that did not fit since the store was made.
type Losses struct {
	// Evicted is the number of states that were evicted although they were not empty. If it grows, the store is too
	// small for its keys.
	Evicted int64
	// Freed is the number of evicted states that had used more than half of their limit. If it grows, more keys are
	// being limited than fit, and clients can get a fresh limit by sending new keys.
	Freed int64
	// Refused is the number of charges of new keys that were refused instead: see [Config.RefuseNew].
	Refused int64
}

// Losses returns the [Losses] of Stats, but does not read every state.
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

// Stats returns the size and the losses of the store at the present time. It reads every state, one stripe at a
// time, which takes some milliseconds for a million keys: call it for displays and metrics, not for each request.
func (s *Store) Stats() Stats { return s.StatsAt(s.now()) }

// StatsAt does what Stats does at the time now, for a store that is used with TakeAt.
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
