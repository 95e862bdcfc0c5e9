package door

import "sync"

// maxCached bounds the values of a [Cache]. Honest callers need only a few values. The bound limits the memory for
// invented keys.
const maxCached = 1024

// Cache keeps values that are expensive to make. When it is full, it drops all values; values in use are then made
// again. The zero Cache is empty. A Cache is safe for concurrent use.
type Cache[K comparable, V any] struct {
	mu  sync.RWMutex
	all map[K]V
}

// Get returns the value of a key. It calls the function make for a missing value.
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
