package synced

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	// fewerFor is how long a lower number of instances has to last: a store that was restarted, or has a new time,
	// learns of them one heartbeat at a time.
	fewerFor = 10 * time.Second
	// settlesIn is how long a process takes to hear of those that were started with it. Until then it
	// takes them to be startWith at least.
	settlesIn = 3 * time.Second
	startWith = 4
)

// fleet is how many instances share the store.
type fleet struct {
	instances atomic.Int64 // by the heartbeats; 0: unknown

	mu   sync.Mutex
	many time.Duration // when there were as many last
}

// counted takes over a number of instances.
func (f *fleet) counted(n int, at time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if int64(n) >= f.instances.Load() || at-f.many >= fewerFor {
		f.instances.Store(int64(n))
		f.many = at
	}
}

// assumed returns how many instances there are, as far as is known.
func (f *fleet) assumed(at time.Duration) int {
	n := int(f.instances.Load())
	if n == 0 || at < settlesIn {
		n = max(n, startWith)
	}
	return n
}
