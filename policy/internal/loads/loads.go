// Package loads has the automatic limits (in_flight: auto) of an engine, by the keys of their subjects.
package loads

import (
	"iter"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluicehq/sluice/internal/adaptive"
	"github.com/sluicehq/sluice/policy/internal/parts"
)

// maxKeys is the maximum number of keys of a rule that have a limit each. Further keys share one limit.
const maxKeys = 1000

// Limits has the automatic limits of an engine. They outlive a change of the policy. A Limits is safe for
// concurrent use after Begin.
type Limits struct {
	epoch time.Time
	began time.Duration                     // the Unix time of epoch
	mu    sync.Mutex                        // held while byKey changes
	byKey atomic.Pointer[map[string]*limit] // by the key of a subject
	swept time.Duration                     // when idle limits were last removed
	holds sync.Pool                         // of *hold
}

// limit is the limit of a key.
type limit struct {
	*adaptive.Limiter
	key string
}

// Begin prepares l. Call it before any other method.
func (l *Limits) Begin() {
	l.epoch = time.Now()
	l.began = time.Duration(l.epoch.UnixNano())
	l.byKey.Store(&map[string]*limit{})
	l.holds.New = func() any { return new(hold) }
}

// at converts t to Unix time. It uses the monotonic clock, so that changes of the system clock have no effect.
func (l *Limits) at(t time.Time) time.Duration {
	return l.began + t.Sub(l.epoch)
}

// Now returns the present Unix time. It reads only the monotonic clock.
func (l *Limits) Now() time.Duration { return l.began + time.Since(l.epoch) }

// Of returns the limit of a key of a rule. A new limit gets the configuration. kept is the key in memory that is not
// reused; for a known limit, this needs no copy.
func (l *Limits) Of(rule, key string, config *adaptive.Config) (of *adaptive.Limiter, kept string) {
	known := (*l.byKey.Load())[key]
	if known == nil {
		known = l.add(rule, key, config)
	}
	if known.key != key { // the limit of further keys
		return known.Limiter, strings.Clone(key)
	}
	return known.Limiter, known.key
}

// Known returns the limit of a key of a rule, or nil before its first request.
func (l *Limits) Known(rule, key string) *adaptive.Limiter {
	all := *l.byKey.Load()
	known := all[key]
	if known == nil {
		known = all[othersKey(rule)]
	}
	if known == nil {
		return nil
	}
	return known.Limiter
}

// othersKey is the key of the limit that the further keys of a rule share. It differs from all other keys, because
// no value is written as "*".
func othersKey(rule string) string { return rule + "/*" }

// add adds the limit of a key. If the rule has too many limits, add removes the limits of idle keys. It does so at
// most once a second, because clients can choose any number of keys, such as names of hosts.
func (l *Limits) add(rule, key string, config *adaptive.Config) *limit {
	l.mu.Lock()
	defer l.mu.Unlock()
	all, now := *l.byKey.Load(), l.Now()
	if known := all[key]; known != nil {
		return known
	}
	if others := all[othersKey(rule)]; others != nil && now-l.swept < time.Second {
		return others // a flood of new keys must not copy the map for each key
	}
	all = maps.Clone(all)
	if isFull(all, rule) && now-l.swept >= time.Second {
		l.swept = now
		maps.DeleteFunc(all, func(key string, known *limit) bool {
			return hasKey(rule, key) && known.State(now).InFlight == 0
		})
	}
	if isFull(all, rule) {
		key = othersKey(rule)
	}
	if known := all[key]; known != nil {
		return known
	}
	added := &limit{adaptive.New(*config), strings.Clone(key)}
	all[added.key] = added
	l.byKey.Store(&all)
	return added
}

func isFull(all map[string]*limit, rule string) bool {
	n := 0
	for key := range all {
		if hasKey(rule, key) {
			n++
		}
	}
	return n >= maxKeys
}

// hasKey reports whether a key belongs to the rule.
func hasKey(rule, key string) bool {
	name, _ := parts.CutKey(key)
	return name == rule
}

// Configure forgets the limits of rules without a configuration, and sets the bounds of all other limits.
func (l *Limits) Configure(config func(rule string) *adaptive.Config) {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := make(map[string]*limit)
	for key, known := range *l.byKey.Load() {
		name, _ := parts.CutKey(key)
		if c := config(name); c != nil {
			known.SetConfig(*c)
			all[key] = known
		}
	}
	l.byKey.Store(&all)
}

// hold has the permits of a request under way. It is reused for other requests, with a new number for each.
type hold struct {
	mu       sync.Mutex
	number   uint64
	limiters []*adaptive.Limiter
}

// Ref refers to the permits of one request. All copies of a decision have the same Ref; the first release by any of
// them releases the permits. The zero value has no permits.
type Ref struct {
	hold   *hold
	number uint64
}

// Hold returns a reference without permits, for a new request.
func (l *Limits) Hold() Ref {
	h := l.holds.Get().(*hold)
	return Ref{h, h.number}
}

// Add adds a permit. Call it before the reference is shared.
func (r Ref) Add(limiter *adaptive.Limiter) { r.hold.limiters = append(r.hold.limiters, limiter) }

// Pending reports whether the reference comes from Hold, even if its permits have been released.
func (r Ref) Pending() bool { return r.hold != nil }

// All returns the limits by their keys.
func (l *Limits) All() iter.Seq2[string, *adaptive.Limiter] {
	return func(yield func(string, *adaptive.Limiter) bool) {
		for key, known := range *l.byKey.Load() {
			if !yield(key, known.Limiter) {
				return
			}
		}
	}
}

// Answered records, in the limits of a request, that the head of its response has arrived, and releases its
// permits.
func (l *Limits) Answered(r Ref, sent time.Time, o adaptive.Outcome) {
	at, now := l.at(sent), l.Now()
	l.end(r, func(limiter *adaptive.Limiter) {
		limiter.Answered(at, now, o)
		limiter.Leave()
	})
}

// Release releases the permits of a request without a response.
func (l *Limits) Release(r Ref) { l.end(r, (*adaptive.Limiter).Leave) }

// end calls the function leave for each permit of a request, unless the permits were released before.
func (l *Limits) end(r Ref, leave func(*adaptive.Limiter)) {
	h := r.hold
	if h == nil {
		return
	}
	h.mu.Lock()
	if h.number != r.number {
		h.mu.Unlock()
		return
	}
	h.number++
	for _, limiter := range h.limiters {
		leave(limiter)
	}
	clear(h.limiters)
	h.limiters = h.limiters[:0]
	h.mu.Unlock()
	l.holds.Put(h)
}
