package console

import (
	"context"
	"errors"
	"sync"
	"time"
)

// cache keeps values that many pages show, so that they are not loaded for each page. While one caller loads a new
// value, other callers get the old one.
type cache[K comparable, V any] struct {
	mu  sync.Mutex
	all map[K]*cachedValue[V]
}

// maxCached is the maximum number of values. When it is exceeded, all values are dropped.
const maxCached = 1000

type cachedValue[V any] struct {
	value V
	err   error
	at    time.Time
	busy  bool
}

// get returns the value of a key. It loads a new value if the cached one is older than the duration life.
func (k *cache[K, V]) get(key K, life time.Duration, load func() (V, error)) (V, error) {
	k.mu.Lock()
	v := k.all[key]
	if v == nil {
		if k.all == nil || len(k.all) >= maxCached {
			k.all = map[K]*cachedValue[V]{}
		}
		v = &cachedValue[V]{}
		k.all[key] = v
	}
	if known := !v.at.IsZero(); known && (v.busy || time.Since(v.at) < life) {
		defer k.mu.Unlock()
		return v.value, v.err
	}
	v.busy = true
	k.mu.Unlock()

	value, err := load()
	k.mu.Lock()
	defer k.mu.Unlock()
	v.busy = false
	if errors.Is(err, context.Canceled) { // the caller has left: do not return its error to other callers
		return value, err
	}
	v.value, v.err, v.at = value, err, time.Now()
	return value, err
}
