package failover

import (
	"context"
	"errors"
	"sync/atomic"
	"time"
)

// Status is the state of a [Store].
type Status struct {
	// Shards has an entry for each part of the shared store, at least one.
	Shards []ShardStatus
	// Instances is the number of instances among which a limit is divided while local allowances decide.
	Instances int
	// Owing is the number of keys with local decisions that have not been written back yet.
	Owing int

	// The counters below start at zero. Shared counts decisions of the shared store, including those that it makes
	// from memory. Local counts local decisions. Of the local decisions, TimedOut waited until the deadline, Failed
	// followed an error before the deadline, and Overflow followed from [Config.MaxCalls]. All other local
	// decisions were made at once, because a circuit was open, or because the local use of a key had to be written
	// back first.
	Shared, Local, TimedOut, Failed, Overflow uint64
	// Unreadable is the number of decisions in which the shared store could not read the value of a key. These keys
	// were decided by on_error, and all others by the store.
	Unreadable uint64
	// WrittenBack counts how often the local use of a key was written back.
	WrittenBack uint64
}

// ShardStatus is the state of a part of the shared store.
type ShardStatus struct {
	// Unavailable reports that the circuit breaker of the part is open: the Store sends it only probes.
	Unavailable bool
	// Since is when Unavailable last changed, or when the part was first seen.
	Since time.Time
	// LastError is the last failure, or nil. It stays after the part has recovered.
	LastError error
}

// Degraded reports whether any part of the shared store is unavailable.
func (s Status) Degraded() bool {
	for _, h := range s.Shards {
		if h.Unavailable {
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

// Status returns a snapshot. It is cheap, and waits only for short locks.
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
