// Package adaptive limits the requests under way to an upstream. The limit is high enough to keep the upstream busy,
// and low enough to avoid a long queue. It follows the latency of the upstream, and needs no configuration.
//
// Time is an argument, and a limit changes only in calls of its methods: a Limiter has no goroutine and no
// clock, and draws nothing at random. The same calls give the same results.
//
// # The method
//
// Answers are measured in windows of 250 ms or longer: the requests under way N, the answers a second X, and the
// typical latency R, which is the mean of the fastest four fifths. The base is R without a queue. By Little's law,
// X·(R−base) requests wait in the upstream, and N−X·(R−base) are worked on. While requests are refused, the limit
// moves toward 3/2 of the requests that are worked on, plus √limit. Nothing changes while all requests fit.
//
// The first base is the latency of the first requests. While all requests fit, the base follows the latency slowly. In
// an overload it rises only on evidence: if the latency does not fall when the requests under way are halved, there was
// no queue. A probe tries this: every 20 s, and when an overload starts, it halves the limit of normal and sheddable
// requests for 500 ms, or for 8 latencies. If half the limit has a queue, too, the probe halves it again. A probe by
// one of many limiters would hardly change the upstream's latency. So probes start at multiples of their length, and
// all limiters of an upstream probe together.
//
// The limit stays above the number of requests that were lately served without a queue. Failures lower it only if there
// are more of them than usual. A fraction of failures counts as usual if half the limit did not reduce it, unless more
// than half of the requests fail.
//
// After a client leaves, its request still counts for as long as the client waited, because the upstream may still work
// on it.
//
// # Classes
//
// The limit applies to normal requests. Sheddable requests have √limit less, and critical requests 2·√limit more.
// When the limit falls, the limit of critical requests falls one window later, because other requests have ended by
// then. Probes do not change the limit of critical requests.
package adaptive

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// Class orders requests by importance.
type Class uint8

const (
	Sheddable Class = iota + 1
	Normal
	Critical
)

// Outcome is the result of a request to the upstream, known when the head of the response arrives or the request fails.
type Outcome uint8

const (
	OK        Outcome = iota
	Failed            // status 502, 503, 504 or 529, or no answer; a fast failure says nothing about the latency
	Abandoned         // the client left before the head: the latency would have been longer
)

// Config has bounds of the limit. Zero values are defaults.
type Config struct {
	Least int64 // default 4: with fewer requests under way, none is denied
	Most  int64 // default 2000
}

const (
	defaultLeast, defaultMost = 4, 2000
	firstLimit                = 64
	episode                   = 60 * time.Second // an overload ends after this time without a refusal
)

// A Limiter limits the requests under way to one upstream. It is safe for concurrent use.
type Limiter struct {
	inFlight atomic.Int64
	least    atomic.Int64
	caps     [Critical + 1]atomic.Int64 // the number of requests under way at which a class is refused
	denied   [Critical + 1]atomic.Int64
	since    atomic.Int64 // first refusal of the episode, in ns
	last     atomic.Int64 // latest refusal, in ns

	mu      sync.Mutex
	orphans orphans
	knee    knee
	win     window
	count   int64 // refusals before the window
	latest  answer
	stepped int64 // µs: time of the latest step

	pioneers  atomic.Int64 // number of requests since the start, counted up to 2·few
	pioneered atomic.Int64 // when the last of these requests came, in µs
	skipped   int          // answers to later requests before there was a base
}

// answer is the time and the latency of one response. State has the latest one while there are too few for a window.
type answer struct{ at, took int64 } // µs

// New returns a limiter that knows nothing of its upstream.
func New(c Config) *Limiter {
	l := &Limiter{}
	l.last.Store(math.MinInt64 / 2)
	l.knee.limit = firstLimit * milli
	l.SetConfig(c)
	return l
}

// SetConfig changes the bounds. The limit keeps what it has learnt.
func (l *Limiter) SetConfig(c Config) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.Least <= 0 {
		c.Least = defaultLeast
	}
	if c.Most <= 0 {
		c.Most = defaultMost
	}
	l.least.Store(c.Least)
	l.knee.least, l.knee.most = c.Least*milli, max(c.Most, c.Least)*milli
	l.knee.set(l.knee.limit)
	l.publish()
}

// publish sets the numbers that Enter reads, and reports whether they have changed. The caller holds the lock.
func (l *Limiter) publish() (changed bool) {
	for class := Sheddable; class <= Critical; class++ {
		limit := l.knee.limitOf(class)
		changed = l.caps[class].Swap(limit) != limit || changed
	}
	return changed
}

// Enter takes a permit if a request of this class fits, and reports whether it fits. With force, it takes a permit
// in any case. now is the time since a fixed instant, the same for all calls. With Unix times, limiters in
// different processes probe a shared upstream together. With other times, two limiters of an upstream still find
// good limits, but many do not.
func (l *Limiter) Enter(now time.Duration, class Class, force bool) (fits bool) {
	for {
		n := l.inFlight.Load()
		fits = l.fits(now, n, class)
		if !fits && !force {
			break
		}
		if l.inFlight.CompareAndSwap(n, n+1) {
			break
		}
	}
	if l.pioneers.Load() < 2*few && l.pioneers.Add(1) == 2*few { // few answers to these requests are enough for a base
		l.pioneered.Store(now.Microseconds())
	}
	if !fits {
		l.refused(now, class)
	}
	return fits
}

// refused counts a refusal, and starts an episode after a minute without one.
func (l *Limiter) refused(now time.Duration, class Class) {
	l.denied[class].Add(1)
	if last := l.last.Swap(int64(now)); int64(now)-last > int64(episode) {
		l.since.Store(int64(now))
	}
}

// Fits reports whether a request of this class would have a permit now.
func (l *Limiter) Fits(now time.Duration, class Class) bool {
	return l.fits(now, l.inFlight.Load(), class)
}

// fits reports whether a request fits in addition to n requests under way. It removes expired orphans only if the
// request would not fit otherwise.
func (l *Limiter) fits(now time.Duration, n int64, class Class) bool {
	limit := l.caps[class].Load()
	if n < l.least.Load() || n+l.orphans.n.Load() < limit {
		return true
	}
	if l.orphans.n.Load() == 0 {
		return false
	}
	l.mu.Lock()
	l.orphans.sweep(now.Microseconds())
	l.mu.Unlock()
	return n+l.orphans.n.Load() < limit
}

// Leave returns a permit.
func (l *Limiter) Leave() { l.inFlight.Add(-1) }

// Answered reports the head of a response. The request was sent to the upstream at sent, which is later than its Enter
// if the request waited before.
func (l *Limiter) Answered(sent, now time.Duration, o Outcome) {
	n, at := l.inFlight.Load(), now.Microseconds()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.orphans.sweep(at)
	took := at - sent.Microseconds()
	if o == OK {
		l.latest = answer{at, took}
	}
	if o == Abandoned && took >= max(l.knee.latency, grid) {
		l.orphans.add(at, took)
	}
	if l.win.open == 0 {
		l.win.start(at, false, 0, 0)
	}
	if l.win.stale(at, l.knee.latency) {
		l.knee.forget()
		l.publish()
		l.win.start(at, true, l.knee.base, l.knee.latency)
	}
	if l.knee.base == 0 && l.isLate(sent) {
		return
	}
	l.win.add(sent, now, n, o, l.knee.base, l.knee.latency)
	if l.win.complete(at, l.knee.due(), l.knee.latency) {
		l.step(at)
	}
}

// isLate reports whether a request came after the first ones, which set the first base. The base is not the latency of
// the first answers, because these are the fastest of many requests. If too few of the first requests are answered,
// later ones count, too.
func (l *Limiter) isLate(sent time.Duration) bool {
	if last := l.pioneered.Load(); last == 0 || sent.Microseconds() <= last || l.skipped == enough {
		return false
	}
	l.skipped++
	return true
}

// step ends a window.
func (l *Limiter) step(at int64) {
	denied := l.refusals()
	m := l.win.measure(at, denied > l.count)
	l.count, l.stepped = denied, at
	l.knee.step(m, at)
	l.win.start(at, l.publish(), l.knee.base, l.knee.latency)
	if l.knee.probing {
		l.win.exact, l.win.end = true, l.knee.next
	}
}

func (l *Limiter) refusals() (n int64) {
	for i := range l.denied {
		n += l.denied[i].Load()
	}
	return n
}

// State is a snapshot of a limiter, for display.
type State struct {
	Limit    int64 // of normal requests
	InFlight int64
	Base     time.Duration       // typical latency without a queue, 0 if unknown
	Latency  time.Duration       // latest typical latency, or with few answers the latest one; 0 if unknown
	Denied   [Critical + 1]int64 // requests that did not fit, by class
	// Overloaded reports that requests were refused in the last minute, and Since when the first of them was.
	Overloaded bool
	Since      time.Duration
}

// State returns the present state.
func (l *Limiter) State(now time.Duration) State {
	l.mu.Lock()
	latency := l.knee.latency
	if latency == 0 || l.latest.at-l.stepped > 3*longest {
		latency = l.latest.took
	}
	s := State{
		Limit: l.knee.limit / milli, InFlight: l.inFlight.Load(),
		Base: time.Duration(l.knee.base) * time.Microsecond, Latency: time.Duration(latency) * time.Microsecond,
	}
	l.mu.Unlock()
	for i := range l.denied {
		s.Denied[i] = l.denied[i].Load()
	}
	if s.Overloaded = int64(now)-l.last.Load() <= int64(episode); s.Overloaded {
		s.Since = time.Duration(l.since.Load())
	}
	return s
}
