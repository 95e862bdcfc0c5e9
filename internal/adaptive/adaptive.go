// Package adaptive limits the requests under way to an upstream. The limit is high enough to keep the upstream busy,
// and low enough to avoid a long queue. It follows the latency of the upstream, and needs no configuration.
//
// Time is an argument, and a limit changes only in calls of its methods. A Limiter has no goroutine and no clock,
// and uses no random numbers, so the same calls give the same results.
//
// # The method
//
// In windows of 250 ms or longer, a Limiter measures the number N of requests under way, the number X of answers
// per second, and the typical latency R, which is the mean of the fastest four fifths. The base is the typical
// latency without a queue. By Little's law, X·(R−base) requests wait in the upstream, which works on the other
// N−X·(R−base). While requests are denied, the limit moves toward 3/2 of the number of requests that the upstream
// works on, plus √limit. The limit does not change while all requests fit.
//
// The first base is the latency of the first requests. While all requests fit, the base follows the latency slowly.
// In an overload the base rises only on evidence: if the latency does not fall when the number of requests under way
// is halved, there was no queue. A probe finds this out. When an overload starts, and then every 20 s (less often if
// the latency is above 125 ms), a probe halves the limit of normal and sheddable requests for 500 ms, or for at least
// 4 times the latency. If requests queue under half the limit, too, the probe halves the limit again. If only one of
// many limiters probed, the upstream's latency would hardly change. So probes start at multiples of their length, and
// all limiters of an upstream probe together.
//
// The limit stays above the number of requests that were recently served without a queue. Failures lower the limit
// only if they are more than the usual fraction. A higher fraction becomes the usual one if it does not fall by
// half when the limit is halved, unless more than half of the requests fail.
//
// After a client leaves, its request continues to count for as long as the client has waited, because the upstream
// may continue to work on it.
//
// # Classes
//
// The limit applies to normal requests. The limit of sheddable requests is √limit lower, and the limit of critical
// requests is 2·√limit higher. When the limit falls, the limit of critical requests falls one window later, because
// by then other requests have ended. Probes do not change the limit of critical requests.
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

// Outcome is the result of a request to the upstream. It is known when the head of the response arrives or the
// request fails.
type Outcome uint8

const (
	OK        Outcome = iota
	Failed            // status 502, 503, 504 or 529, or no answer; a fast failure is not a sample of the latency
	Abandoned         // the client left before the head came: the latency would have been longer
)

// Config has the bounds of a limit. Zero means the default.
type Config struct {
	Least int64 // default 4; no request is denied while fewer are under way
	Most  int64 // default 2000
}

const (
	defaultLeast, defaultMost = 4, 2000
	firstLimit                = 64
	firstRequests             = few * 5 / 4      // the fastest four fifths of these set the first base
	episode                   = 60 * time.Second // an overload ends after this time without a denial
)

// A Limiter limits the requests under way to one upstream. It is safe for concurrent use.
type Limiter struct {
	inFlight atomic.Int64
	least    atomic.Int64
	caps     [Critical + 1]atomic.Int64 // by class: see knee.limitOf
	denied   [Critical + 1]atomic.Int64
	since    atomic.Int64 // the first denial of the episode, in ns
	last     atomic.Int64 // the latest denial, in ns

	mu      sync.Mutex
	orphans orphans
	knee    knee
	win     window
	count   int64 // the number of denials before the window
	latest  answer
	stepped int64 // µs: time of the latest step

	pioneers  atomic.Int64 // the number of requests since the start, counted up to firstRequests
	pioneered atomic.Int64 // when the last of these requests came, in µs
	skipped   int          // the number of answers to later requests while there was no base
}

// answer has the time and the latency of one response. State reports the latest one while there are too few for a
// window.
type answer struct{ at, took int64 } // µs

// New returns a limiter in its initial state, in which it has no measurements of the upstream.
func New(c Config) *Limiter {
	l := &Limiter{}
	l.last.Store(math.MinInt64 / 2)
	l.knee.limit = firstLimit * milli
	l.SetConfig(c)
	return l
}

// SetConfig changes the bounds of the limit. The limiter keeps its measurements.
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

// Enter takes a permit if a request of this class fits, and reports whether it fits. If force is true, it takes a
// permit even if the request does not fit. The parameter now is the time since a fixed instant, the same for all calls.
// If now is Unix time, limiters in different processes probe a shared upstream together. Without this, two limiters of
// an upstream find good limits, but many limiters do not.
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
	if l.pioneers.Load() < firstRequests && l.pioneers.Add(1) == firstRequests {
		l.pioneered.Store(now.Microseconds())
	}
	if !fits {
		l.refused(now, class)
	}
	return fits
}

// refused counts a denial. After a minute without a denial, it starts an episode.
func (l *Limiter) refused(now time.Duration, class Class) {
	l.denied[class].Add(1)
	if last := l.last.Swap(int64(now)); int64(now)-last > int64(episode) {
		l.since.Store(int64(now))
	}
}

// Fits reports whether a request of this class would have a permit at the time now.
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

// Leave gives a permit back.
func (l *Limiter) Leave() { l.inFlight.Add(-1) }

// Answered records that the head of a response has arrived. The request was sent to the upstream at the first of the
// two times. It is later than the request's Enter if the request had to wait.
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

// isLate reports whether a request is not one of the first requests, whose latencies set the first base. The first
// answers cannot be used instead, because they come from the fastest of many requests. If too few of the first
// requests are answered, later requests count, too.
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
	Limit    int64 // the limit of normal requests
	InFlight int64
	Base     time.Duration       // the typical latency without a queue; 0 if unknown
	Latency  time.Duration       // the latest typical latency or, if there are few answers, the latest latency; 0 if unknown
	Denied   [Critical + 1]int64 // by class: the number of requests that did not fit
	// Overloaded reports whether a request did not fit in the last minute. Since is then the time of the first such
	// request of this overload.
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
