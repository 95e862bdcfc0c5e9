package memory

// Stats says what a store holds.
type Stats struct {
	// Keys is the number of states that are not empty.
	Keys int
	// Bytes is what tables and logs take, at most what the store was made for.
	Bytes int64
	// Evicted is how many states that were not empty have been forgotten to make room,
	// since the store was made. If it grows, the store is too small for its keys.
	Evicted int64
}

// Stats counts what the store holds, on its own clock. It looks at every state, one stripe
// at a time, and takes some milliseconds for a million: it is for people and metrics.
func (s *Store) Stats() Stats { return s.StatsAt(s.now()) }

// StatsAt is Stats for a store that is used with TakeAt.
func (s *Store) StatsAt(now int64) Stats {
	st := Stats{Evicted: s.evicted.Load(), Bytes: s.asides.bytes.Load() + s.headBytes()}
	for i := range s.stripes {
		s.stripes[i].count(s, now, &st)
	}
	return st
}

func (st *stripe) count(s *Store, now int64, sum *Stats) {
	st.mu.Lock()
	defer st.mu.Unlock()
	lines := st.lines()
	sum.Bytes += int64(len(lines)) * lineBytes
	for i := range lines {
		for j := range lines[i] {
			if s.rank(lines[i][j].word.Load(), lines[i][j].tag.Load(), now).used > 0 {
				sum.Keys++
			}
		}
	}
	for _, first := range st.asidesByHash() {
		for a := range first.chain {
			if a.rank(now) != drained {
				sum.Keys++
			}
		}
	}
}
