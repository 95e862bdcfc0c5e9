package failover

import (
	"context"
	"errors"
	"sync/atomic"
	"time"
)

// Status is what a [Store] is doing.
type Status struct {
	// Shards has an entry for each part of the shared store, at least one.
	Shards []ShardStatus
	// Instances is by how many a limit is divided where its share decides.
	Instances int
	// Owing is the number of keys with local decisions that are to be written back.
	Owing int

	// What follows counts since New. Shared and Local are decisions. Shared ones are those
	// of the shared store, what it remembers included. Of the local ones, TimedOut had waited
	// for the deadline, Failed had got an error before it, Overflow were more than
	// [Config.MaxCalls], and the others were decided at once because the circuit was open
	// or the key was about to be written back.
	Shared, Local, TimedOut, Failed, Overflow uint64
	// Unreadable is the number of decisions for which the shared store held something else
	// under a key: those keys were decided by on_error, and the others by the store.
	Unreadable uint64
	// WrittenBack is the number of times that a key's debt was written back.
	WrittenBack uint64
}

// ShardStatus is the state of a part of the shared store.
type ShardStatus struct {
	// Away reports that its circuit breaker is open: the store sends it only probes.
	Away bool
	// Since is when that last changed, or when the part was first seen.
	Since time.Time
	// LastError is the last failure, or nil. It stays when the part is back.
	LastError error
}

// Degraded reports whether any part of the shared store is away.
func (s Status) Degraded() bool {
	for _, h := range s.Shards {
		if h.Away {
			return true
		}
	}
	return false
}

type counters struct {
	shared, local, timedOut, other, overflow, unreadable, writtenBack atomic.Uint64
}

func (c *counters) failed(err error) {
	switch {
	case errors.Is(err, errBusy):
		c.overflow.Add(1)
	case errors.Is(err, context.DeadlineExceeded):
		c.timedOut.Add(1)
	default:
		c.other.Add(1)
	}
}

// Status returns a snapshot. It costs little, and waits for nothing but short locks.
func (s *Store) Status() Status {
	st := Status{
		Instances:   int(s.instances.Load()),
		Owing:       int(s.ledger.owing.Load()),
		Shared:      s.count.shared.Load(),
		Local:       s.count.local.Load(),
		TimedOut:    s.count.timedOut.Load(),
		Failed:      s.count.other.Load(),
		Overflow:    s.count.overflow.Load(),
		Unreadable:  s.count.unreadable.Load(),
		WrittenBack: s.count.writtenBack.Load(),
	}
	for _, h := range *s.shards.Load() {
		h.mu.Lock()
		st.Shards = append(st.Shards, ShardStatus{!h.inUse.Load(), h.since, h.last})
		h.mu.Unlock()
	}
	return st
}
