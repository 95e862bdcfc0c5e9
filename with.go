package sluice

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
)

// maxOthers is the largest number of limiters that With keeps.
const maxOthers = 1000

// others has the limiters that With keeps, by their limits.
type others struct {
	all   atomic.Pointer[map[Limit]*Limiter] // copied on write
	mutex sync.Mutex                         // guards the replacement of all
}

// With returns a limiter with another limit, and with the store, name, OnError, Consistency, Lock and observers of
// l. Use it for limits that depend on the caller, such as the limit of a customer in a database. With can be called
// for each request: it caches the limiters of the first thousand limits. It compiles any further limit again in
// each call, which takes a microsecond.
func (l *Limiter) With(limit Limit) (*Limiter, error) {
	if all := l.others.all.Load(); all != nil {
		if known := (*all)[limit]; known != nil {
			return known, nil
		}
	}
	other, err := NewLimiter(l.store, l.name, limit)
	if err != nil {
		return nil, err
	}
	other.OnError, other.Consistency, other.Lock, other.observers = l.OnError, l.Consistency, l.Lock, slices.Clip(l.observers)
	l.others.keep(limit, other)
	return other, nil
}

// TakeLimit does what [Limiter.Take] does, with limit in place of the limits of l: see [Limiter.With].
func (l *Limiter) TakeLimit(ctx context.Context, key string, cost int64, limit Limit) (Decision, error) {
	other, err := l.With(limit)
	if err != nil {
		return Decision{}, err
	}
	return other.Take(ctx, key, cost)
}

func (o *others) keep(limit Limit, l *Limiter) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	next := map[Limit]*Limiter{}
	if all := o.all.Load(); all != nil {
		if len(*all) >= maxOthers {
			return
		}
		next = maps.Clone(*all)
	}
	next[limit] = l
	o.all.Store(&next)
}
