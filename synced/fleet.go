package synced

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	// A lower number of instances takes effect after fewerFor. Until then, the number may be wrong: after a restart
	// or a change of its clock, a store learns of the instances one heartbeat at a time.
	fewerFor = 10 * time.Second
	// settlesIn is the time in which a process learns of instances that were started at the same time. Until then,
	// it assumes at least startWith instances.
	settlesIn = 3 * time.Second
	startWith = 4
)

// fleet is the number of instances that share the store.
type fleet struct {
	instances atomic.Int64 // from the heartbeats; 0: unknown

	mu   sync.Mutex
	many time.Duration // the time of the last heartbeat that counted at least this number of instances
}

// counted records the number of instances that a heartbeat has returned.
func (f *fleet) counted(n int, at time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if int64(n) >= f.instances.Load() || at-f.many >= fewerFor {
		f.instances.Store(int64(n))
		f.many = at
	}
}

// assumed returns the number of instances to assume.
func (f *fleet) assumed(at time.Duration) int {
	n := int(f.instances.Load())
	if n == 0 || at < settlesIn {
		n = max(n, startWith)
	}
	return n
}
