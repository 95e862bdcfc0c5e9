package redisstore

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// A flight carries no more than this, so that a server is not held up for long and
	// a reply does not wait for ever more others.
	flightRequests = 256
	flightCharges  = 1024
	// laneFlights is how many flights of a lane are under way at a time, on a
	// connection each. Where none has left for lateAfter, since the server is far away, one
	// more leaves, up to maxFlights: so nobody waits for the way of somebody else.
	laneFlights = 2
	maxFlights  = 24
	lateAfter   = 2 * time.Millisecond
	// A flight that is away for lostAfter is written off, up to maxLost of them, so that
	// others can leave: its connection may lead nowhere. So is one that another has overtaken,
	// which has left later and come back within a part of the time.
	lostAfter = 400 * time.Millisecond
	maxLost   = 24
	// laneQueue is when a queue is first searched for requests that were cancelled.
	laneQueue = 1024
)

// lane gathers the requests for one server. One that finds a flight free leaves at
// once, alone. The others wait until a flight is back, and leave together.
type lane struct {
	store *Store
	index int // counted from 0

	mu      sync.Mutex
	queue   []*request
	sweep   int       // the length of queue at which it is searched again
	flights int       // those that are lost left out
	away    []*flight // of these, those that have left
	lost    int
	closed  bool
	left    time.Time   // when the last flight has left
	cutAt   time.Time   // when connections were last cut
	late    *time.Timer // runs while watched is true
	watched bool
	loading chan struct{} // closed when a flight has brought the script; nil if none does
	brought atomic.Int64  // how often one has
}

// add queues r, and starts a flight if there is one left: on the goroutine of the
// caller, which is cheaper, if it cannot go away.
func (l *lane) add(r *request, stays bool) error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return errClosed
	}
	if len(l.queue) >= max(l.sweep, laneQueue) {
		l.dropCancelled()
	}
	l.queue = append(l.queue, r)
	start := l.flights < laneFlights
	if start {
		if l.flights > 0 {
			l.writeOff()
		}
		l.flights++
		l.store.flights.Add(1)
	} else {
		l.watch(lateAfter)
	}
	l.mu.Unlock()
	switch {
	case start && stays:
		l.flyOnce()
	case start:
		go l.fly()
	}
	return nil
}

// watch has somebody look after d whether the queue is still waiting. l.mu is held.
func (l *lane) watch(d time.Duration) {
	switch {
	case l.watched:
		return
	case l.late == nil:
		l.late = time.AfterFunc(d, l.relieve)
	default:
		l.late.Reset(d)
	}
	l.watched = true
}

// relieve starts one more flight if none has left for lateAfter, and there are not too many.
func (l *lane) relieve() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.watched = false
	if l.closed || len(l.queue) == 0 {
		return
	}
	if early := lateAfter - time.Since(l.left); early > 0 {
		l.watch(early)
		return
	}
	l.writeOff()
	if l.flights == maxFlights {
		l.watch(lostAfter / 8)
		return
	}
	l.flights++
	l.store.flights.Add(1)
	go l.fly()
}

// writeOff does not count on flights any more that are lost. The connections that are kept
// for others were made at the same time, and are made anew. l.mu is held.
func (l *lane) writeOff() {
	before := l.lost
	l.away = slices.DeleteFunc(l.away, func(f *flight) bool {
		f.lost = l.lost < maxLost && time.Since(f.left) > lostAfter
		if f.lost {
			l.lost++
			l.flights--
		}
		return f.lost
	})
	if l.lost > before && !l.store.cluster {
		l.store.conns.retire()
	}
}

// landed takes back a flight that is away, and reports whether it was expected. l.mu is held.
func (l *lane) landed(f *flight, now time.Time) bool {
	if f.lost {
		f.lost = false
		l.lost--
		return false
	}
	if i := slices.Index(l.away, f); i >= 0 {
		l.away = slices.Delete(l.away, i, i+1)
		l.overtake(f, now)
	}
	return true
}

// overtake does not count on flights any more that should have been back before f: the
// server answers, so their answers are lost, and whoever waits for them must not hold up
// others. If there are too many, connections are closed that have been silent for long.
// l.mu is held.
func (l *lane) overtake(f *flight, now time.Time) {
	patience := 2*now.Sub(f.left) + lateAfter
	l.away = slices.DeleteFunc(l.away, func(g *flight) bool {
		switch {
		case now.Sub(g.left) <= patience:
			return false
		case l.lost == maxLost:
			l.cut(now)
			return false
		}
		g.lost = true
		l.lost++
		l.flights--
		return true
	})
}

// cut closes connections that have been silent for long, now and then. l.mu is held.
func (l *lane) cut(now time.Time) {
	if now.Sub(l.cutAt) < lostAfter/4 || !l.store.begin() {
		return
	}
	l.cutAt = now
	go func() {
		defer l.store.flights.Done()
		l.store.conns.cutSilent(lostAfter)
	}()
}

// load reports whether the caller is the one to bring the script to a server that did not
// have it, and has to call loaded when it has. If not, it can wait for who is, or try again
// at once where loaded is nil: the script has been brought since the caller asked, which was
// when it had been brought so many times.
func (l *lane) load(times int64) (mine bool, loaded <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.loading != nil || l.brought.Load() > times {
		return false, l.loading
	}
	l.loading = make(chan struct{})
	return true, l.loading
}

func (l *lane) loaded() {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.loading)
	l.loading = nil
	l.brought.Add(1)
}

// dropCancelled makes room where a server has been silent for long. l.mu is held.
func (l *lane) dropCancelled() {
	kept := l.queue[:0]
	for _, r := range l.queue {
		if r.state.Load() != cancelled {
			kept = append(kept, r)
		}
	}
	clear(l.queue[len(kept):])
	l.queue = kept
	l.sweep = 2 * len(kept)
}

// fly carries what is queued until nothing is.
func (l *lane) fly() {
	defer l.store.flights.Done()
	f := l.store.newFlight()
	f.left = time.Time{}
	for l.board(f) {
		f.run(l)
		runtime.Gosched() // those who were answered may ask again, and come along
	}
	l.store.freeFlights.Put(f)
}

// flyOnce carries what is queued, and leaves what comes meanwhile to a goroutine.
func (l *lane) flyOnce() {
	f := l.store.newFlight()
	f.left = time.Time{}
	boarded := l.board(f)
	if boarded {
		f.run(l)
	}
	more := boarded && l.more(f)
	l.store.freeFlights.Put(f)
	if more {
		go l.fly()
		return
	}
	l.store.flights.Done()
}

// more reports whether there is more for a flight to carry. If not the flight has ended.
func (l *lane) more(f *flight) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.landed(f, time.Now()) {
		return false
	}
	if len(l.queue) == 0 {
		l.flights--
	}
	return len(l.queue) > 0
}

// board moves requests from the queue to f, or ends the flight and returns false. One
// that was added because the server is far away ends when it has turned out to be near.
func (l *lane) board(f *flight) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	f.requests = f.requests[:0]
	now := time.Now()
	if !l.landed(f, now) {
		return false
	}
	if l.flights > laneFlights && now.Sub(f.left) < lateAfter {
		l.flights--
		if len(l.queue) > 0 {
			l.watch(lateAfter) // it had no place for one more
		}
		return false
	}
	f.left, l.left = now, now
	n, charges := 0, 0
	for _, r := range l.queue {
		if charges += len(r.charges); len(f.requests) == flightRequests || len(f.requests) > 0 && charges > flightCharges {
			break
		}
		n++
		if r.state.CompareAndSwap(queued, sent) {
			r.left = now
			f.requests = append(f.requests, r)
		} else {
			charges -= len(r.charges)
		}
	}
	rest := copy(l.queue, l.queue[n:])
	clear(l.queue[rest:])
	l.queue = l.queue[:rest]
	if len(f.requests) == 0 {
		l.flights--
		return false
	}
	l.away = append(l.away, f)
	if rest > 0 {
		l.watch(lateAfter)
	}
	return true
}

// close refuses what comes, and what is queued.
func (l *lane) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	if l.late != nil {
		l.late.Stop()
	}
	for _, r := range l.queue {
		if r.state.CompareAndSwap(queued, cancelled) {
			r.err = errClosed
			r.done <- struct{}{}
		}
	}
	l.queue = nil
}

// wait waits until r is decided or ctx ends. In the latter case r is lost: a flight may
// still have it.
func (r *request) wait(ctx context.Context) (lost bool, err error) {
	if ctx.Done() == nil { // a select would cost more
		<-r.done
		return false, r.err
	}
	select {
	case <-r.done:
		return false, r.err
	case <-ctx.Done():
	}
	if r.state.CompareAndSwap(queued, cancelled) {
		return true, &Error{NotSent, ctx.Err()}
	}
	select {
	case <-r.done: // it was decided at the same moment
		return false, r.err
	default:
		return true, &Error{Unknown, ctx.Err()}
	}
}
