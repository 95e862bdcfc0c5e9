package synced

import (
	"sync"
	"sync/atomic"
	"time"
)

// fewerFor is how long a lower number of instances has to last: a store that was restarted, or whose
// clock was set, learns of them one heartbeat at a time.
const fewerFor = 10 * time.Second

// fleet is how many instances share the store.
type fleet struct {
	instances atomic.Int64 // 0: unknown

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

// assumed returns how many instances there are as far as is known, and two until there was a heartbeat.
func (f *fleet) assumed() int {
	if n := f.instances.Load(); n > 0 {
		return int(n)
	}
	return 2
}
