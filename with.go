package sluice

import (
	"context"
	"maps"
	"sync"
	"sync/atomic"
)

// maxOthers is the most limiters that With keeps.
const maxOthers = 1000

// others are the limiters that With has returned, by their limits.
type others struct {
	all   atomic.Pointer[map[Limit]*Limiter] // never changed
	mutex sync.Mutex                         // whoever puts another in place of it
}

// With returns the limiter of another limit with the store, the name, the OnError, the Consistency
// and the Lock of l, as NewLimiter would make it: for limits that depend on the caller, such as that
// of a plan in a database. A thousand of them are kept, so that With can be called for each request;
// limits that are different for each user are compiled each time, which costs a microsecond.
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
	other.OnError, other.Consistency, other.Lock = l.OnError, l.Consistency, l.Lock
	l.others.keep(limit, other)
	return other, nil
}

// TakeLimit is [Limiter.Take] by a limit that is given with the call, in place of those of l: see
// [Limiter.With].
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
