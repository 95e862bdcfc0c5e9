package door

import "sync"

// maxCached is the most values of a [Cache]. Honest callers need a few; values for invented keys are not cached for
// long.
const maxCached = 1024

// Cache keeps values that are expensive to make. If it is full, it forgets everything, and values in use are made
// again. The zero value is empty, and safe for concurrent use.
type Cache[K comparable, V any] struct {
	mu  sync.RWMutex
	all map[K]V
}

// Get returns the value of a key, and makes it if it is unknown.
func (c *Cache[K, V]) Get(key K, make func(K) (V, error)) (V, error) {
	c.mu.RLock()
	v, known := c.all[key]
	c.mu.RUnlock()
	if known {
		return v, nil
	}
	v, err := make(key)
	if err == nil {
		c.keep(key, v)
	}
	return v, err
}

func (c *Cache[K, V]) keep(key K, v V) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all == nil || len(c.all) >= maxCached {
		c.all = make(map[K]V)
	}
	c.all[key] = v
}
