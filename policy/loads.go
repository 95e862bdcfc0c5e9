package policy

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluicehq/sluice/internal/adaptive"
	"github.com/sluicehq/sluice/policy/internal/parts"
)

// maxLoads is the most keys of a rule that have an automatic limit of their own. Further keys share one.
const maxLoads = 1000

// loads are the automatic limits of an engine. They outlive a change of policy.
type loads struct {
	epoch time.Time
	began time.Duration                                // the Unix time of epoch
	mu    sync.Mutex                                   // held while byKey changes
	byKey atomic.Pointer[map[string]*adaptive.Limiter] // by the key of a subject
	swept time.Duration                                // when idle limits were forgotten
	holds sync.Pool                                    // of *loadHold
}

func (l *loads) begin() {
	l.epoch = time.Now()
	l.began = time.Duration(l.epoch.UnixNano())
	l.byKey.Store(&map[string]*adaptive.Limiter{})
	l.holds.New = func() any { return new(loadHold) }
}

// at returns a time as the Unix time that the monotonic clock has since the epoch.
func (l *loads) at(t time.Time) time.Duration {
	return l.began + t.Sub(l.epoch)
}

// now is at of the present, which asks the monotonic clock alone.
func (l *loads) now() time.Duration { return l.began + time.Since(l.epoch) }

// limiter returns the automatic limit of a subject.
func (l *loads) limiter(s *loadSubject) *adaptive.Limiter {
	if known := (*l.byKey.Load())[s.key]; known != nil {
		return known
	}
	return l.add(s)
}

// known returns the automatic limit that a subject would have, or nil if there is none yet.
func (l *loads) known(s *loadSubject) *adaptive.Limiter {
	all := *l.byKey.Load()
	if known := all[s.key]; known != nil {
		return known
	}
	return all[s.rule.othersKey()]
}

// othersKey is the key of the limit that further keys share. No value is written as "*".
func (r *rule) othersKey() string { return r.name + "/*" }

// add adds the limit of a subject. If the rule has too many, those of idle keys are forgotten, but not more often
// than once a second, as the names of hosts are chosen by clients.
func (l *loads) add(s *loadSubject) *adaptive.Limiter {
	l.mu.Lock()
	defer l.mu.Unlock()
	all, key, now := *l.byKey.Load(), s.key, l.now()
	if known := all[key]; known != nil {
		return known
	}
	if others := all[s.rule.othersKey()]; others != nil && now-l.swept < time.Second {
		return others // a flood of names costs no copies
	}
	all = maps.Clone(all)
	if l.isFull(all, s.rule) && now-l.swept >= time.Second {
		l.swept = now
		maps.DeleteFunc(all, func(key string, limit *adaptive.Limiter) bool {
			return s.rule.hasKey(key) && limit.State(now).InFlight == 0
		})
	}
	if l.isFull(all, s.rule) {
		key = s.rule.othersKey()
	}
	if known := all[key]; known != nil {
		return known
	}
	limit := adaptive.New(*s.rule.adaptive)
	all[strings.Clone(key)] = limit
	l.byKey.Store(&all)
	return limit
}

func (l *loads) isFull(all map[string]*adaptive.Limiter, r *rule) bool {
	n := 0
	for key := range all {
		if r.hasKey(key) {
			n++
		}
	}
	return n >= maxLoads
}

// hasKey reports whether a key is one of the rule.
func (r *rule) hasKey(key string) bool {
	name, _ := parts.CutKey(key)
	return name == r.name
}

// configure forgets the limits of rules that the policy does not have, and sets the bounds of the others.
func (l *loads) configure(p *Policy) {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := make(map[string]*adaptive.Limiter)
	for key, limit := range *l.byKey.Load() {
		name, _ := parts.CutKey(key)
		if i, known := p.byName[name]; known && p.rules[i].adaptive != nil {
			limit.SetConfig(*p.rules[i].adaptive)
			all[key] = limit
		}
	}
	l.byKey.Store(&all)
}

// loadHold has the permits of a request under way. It is used again for others, with another number.
type loadHold struct {
	mu       sync.Mutex
	number   uint64
	limiters []*adaptive.Limiter
}

// loadRef refers to the permits of one request. All copies of a decision have the same, and the first that returns
// them does.
type loadRef struct {
	hold   *loadHold
	number uint64
}

func (l *loads) hold(list []loadSubject) loadRef {
	h := l.holds.Get().(*loadHold)
	for i := range list {
		h.limiters = append(h.limiters, list[i].limiter)
		list[i].limiter = nil
	}
	return loadRef{h, h.number}
}

// answered reports the head of a response to the limits whose permits the request has.
func (l *loads) answered(r loadRef, sent time.Time, o adaptive.Outcome) {
	h := r.hold
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.number != r.number {
		return
	}
	at, now := l.at(sent), l.now()
	for _, limiter := range h.limiters {
		limiter.Answered(at, now, o)
	}
}

// release returns the permits of a request.
func (l *loads) release(r loadRef) {
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
	now := l.now()
	for _, limiter := range h.limiters {
		limiter.Leave(now)
	}
	clear(h.limiters)
	h.limiters = h.limiters[:0]
	h.mu.Unlock()
	l.holds.Put(h)
}

// LoadState is the state of an automatic limit of requests under way, in this process.
type LoadState struct {
	Rule string
	Key  string // of the subject
	// Limit is what a request of the class normal has. Sheddable requests have less, and critical ones more.
	Limit, InFlight int64
	// Base is the latency of the upstream without a queue, and Latency the present one. They are 0 if unknown.
	Base, Latency time.Duration
	Denied        map[string]int64 // requests that did not fit, by class, since the process started
	// Overloaded is when the present overload started: the first refusal after a minute without one. It is zero if
	// there is no overload.
	Overloaded time.Time
}

// Loads returns the states of all automatic limits, sorted by key.
func (e *Engine) Loads() (all []LoadState) {
	now := e.loads.now()
	for key, limit := range *e.loads.byKey.Load() {
		all = append(all, loadState(key, limit.State(now)))
	}
	slices.SortFunc(all, func(a, b LoadState) int { return strings.Compare(a.Key, b.Key) })
	return all
}

func loadState(key string, s adaptive.State) LoadState {
	name, _ := parts.CutKey(key)
	out := LoadState{Rule: name, Key: key, Limit: s.Limit, InFlight: s.InFlight, Base: s.Base, Latency: s.Latency, Denied: make(map[string]int64)}
	for class := adaptive.Sheddable; class <= adaptive.Critical; class++ {
		out.Denied[classNames[class]] = s.Denied[class]
	}
	if s.Overloaded {
		out.Overloaded = time.Unix(0, int64(s.Since))
	}
	return out
}
