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
	// maxCallRequests and maxCallCharges bound the size of a call: a large call would block the server and delay
	// all requests in it.
	maxCallRequests = 256
	maxCallCharges  = 1024
	// usualWorkers is the usual number of calls in flight, each on its own connection. If the server is far away,
	// requests would wait for the round trips of earlier calls. So if requests wait and no call was sent for
	// lateAfter, one more worker starts, up to maxWorkers.
	usualWorkers = 2
	maxWorkers   = 24
	lateAfter    = 2 * time.Millisecond
	// The batcher gives up a call that has had no answer for lostAfter: its connection may be dead, and other
	// requests are waiting. It also gives up a call if a later call has returned in a fraction of the time. At most
	// maxLost calls are given up at a time.
	lostAfter = 400 * time.Millisecond
	maxLost   = 24
	// sweepFrom is the length at which a queue is first searched for cancelled requests.
	sweepFrom = 1024
)

// batcher gathers the requests for one server. A request that finds a free worker is sent at once, alone. The
// others wait until a worker returns, and are sent together.
type batcher struct {
	store *Store
	index int // number of the server, from 0: see Store.Shard

	mu       sync.Mutex
	queue    []*request
	sweep    int       // the length of queue at which dropCancelled runs
	workers  int       // number of workers, without lost ones
	out      []*worker // workers that have sent a call
	lost     int
	closed   bool
	lastSent time.Time   // time of the last call
	cutAt    time.Time   // time of the last cutSilent
	timer    *time.Timer // runs while timerSet is true
	timerSet bool
	loading  chan struct{} // closed when a call has loaded the script; nil if no call is loading it
	loads    atomic.Int64  // how often the script was loaded
}

// add queues requests that go in one call, and starts a worker if too few run. stays means that the caller waits
// until its requests are decided; then the worker may run on the caller's goroutine, which is cheaper.
func (b *batcher) add(stays bool, requests ...*request) error {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return errClosed
	}
	if len(b.queue) >= max(b.sweep, sweepFrom) {
		b.dropCancelled()
	}
	b.queue = append(b.queue, requests...)
	start := b.workers < usualWorkers
	if start {
		if b.workers > 0 {
			b.abandonLost()
		}
		b.workers++
		b.store.running.Add(1)
	} else {
		b.checkIn(lateAfter)
	}
	b.mu.Unlock()
	switch {
	case start && stays:
		b.workOnce()
	case start:
		go b.work()
	}
	return nil
}

// checkIn makes the timer call addWorker after d. b.mu is held.
func (b *batcher) checkIn(d time.Duration) {
	switch {
	case b.timerSet:
		return
	case b.timer == nil:
		b.timer = time.AfterFunc(d, b.addWorker)
	default:
		b.timer.Reset(d)
	}
	b.timerSet = true
}

// addWorker starts one more worker if requests wait and no call was sent for lateAfter.
func (b *batcher) addWorker() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.timerSet = false
	if b.closed || len(b.queue) == 0 {
		return
	}
	if early := lateAfter - time.Since(b.lastSent); early > 0 {
		b.checkIn(early)
		return
	}
	b.abandonLost()
	if b.workers == maxWorkers {
		b.checkIn(lostAfter / 8)
		return
	}
	b.workers++
	b.store.running.Add(1)
	go b.work()
}

// abandonLost stops waiting for calls that have had no answer for longer than lostAfter, and retires the pooled
// connections, which may be dead, too. b.mu is held.
func (b *batcher) abandonLost() {
	before := b.lost
	b.out = slices.DeleteFunc(b.out, func(w *worker) bool {
		w.abandoned = b.lost < maxLost && time.Since(w.sentAt) > lostAfter
		if w.abandoned {
			b.lost++
			b.workers--
		}
		return w.abandoned
	})
	if b.lost > before && !b.store.cluster {
		b.store.conns.retire()
	}
}

// returned removes a worker from b.out, and reports false if the worker had been given up. b.mu is held.
func (b *batcher) returned(w *worker, now time.Time) bool {
	if w.abandoned {
		w.abandoned = false
		b.lost--
		return false
	}
	if i := slices.Index(b.out, w); i >= 0 {
		b.out = slices.Delete(b.out, i, i+1)
		b.abandonOvertaken(w, now)
	}
	return true
}

// abandonOvertaken stops waiting for calls that should have returned before the call of w: the server works, so the
// answers to these calls are lost, and the calls must not hold up others. If too many calls are lost, it closes
// connections that have been silent for a long time. b.mu is held.
func (b *batcher) abandonOvertaken(w *worker, now time.Time) {
	patience := 2*now.Sub(w.sentAt) + lateAfter
	b.out = slices.DeleteFunc(b.out, func(other *worker) bool {
		switch {
		case now.Sub(other.sentAt) <= patience:
			return false
		case b.lost == maxLost:
			b.cutSilent(now)
			return false
		}
		other.abandoned = true
		b.lost++
		b.workers--
		return true
	})
}

// cutSilent closes connections that have waited for an answer for longer than lostAfter, at most once every
// lostAfter/4. b.mu is held.
func (b *batcher) cutSilent(now time.Time) {
	if now.Sub(b.cutAt) < lostAfter/4 || !b.store.track() {
		return
	}
	b.cutAt = now
	go func() {
		defer b.store.running.Done()
		b.store.conns.close(func(c *conn) bool { return c.silent(lostAfter) })
	}()
}

// startLoading reports whether the caller has to load the script into a server that does not have it, and to call
// doneLoading afterwards. If not, another worker loads the script, and the caller waits for loaded. The parameter times is
// the value of b.loads before the caller tried to run the script. If loaded is nil, the script has been loaded since
// then, and the caller tries again at once.
func (b *batcher) startLoading(times int64) (mine bool, loaded <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.loading != nil || b.loads.Load() > times {
		return false, b.loading
	}
	b.loading = make(chan struct{})
	return true, b.loading
}

func (b *batcher) doneLoading() {
	b.mu.Lock()
	defer b.mu.Unlock()
	close(b.loading)
	b.loading = nil
	b.loads.Add(1)
}

// dropCancelled removes cancelled requests from the queue. There can be many if the server is silent. b.mu is held.
func (b *batcher) dropCancelled() {
	kept := b.queue[:0]
	for _, r := range b.queue {
		if r.state.Load() != cancelled {
			kept = append(kept, r)
		}
	}
	clear(b.queue[len(kept):])
	b.queue = kept
	b.sweep = 2 * len(kept)
}

// work sends the queued requests until the queue is empty.
func (b *batcher) work() {
	defer b.store.running.Done()
	w := b.store.newWorker()
	w.sentAt = time.Time{}
	for b.fill(w) {
		w.run(b)
		runtime.Gosched() // answered callers may send their next request in time for this batch
	}
	b.store.freeWorkers.Put(w)
}

// workOnce sends the queued requests. If more arrive in the meantime, it starts a goroutine for them.
func (b *batcher) workOnce() {
	w := b.store.newWorker()
	w.sentAt = time.Time{}
	filled := b.fill(w)
	if filled {
		w.run(b)
	}
	more := filled && b.hasMore(w)
	b.store.freeWorkers.Put(w)
	if more {
		go b.work()
		return
	}
	b.store.running.Done()
}

// hasMore reports whether more requests are queued. If not, w has ended.
func (b *batcher) hasMore(w *worker) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.returned(w, time.Now()) {
		return false
	}
	if len(b.queue) == 0 {
		b.workers--
	}
	return len(b.queue) > 0
}

// fill moves requests from the queue to w, or ends the worker and returns false. An additional worker also ends if
// its call took less than lateAfter, because the server is not far away.
func (b *batcher) fill(w *worker) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	w.requests = w.requests[:0]
	now := time.Now()
	if !b.returned(w, now) {
		return false
	}
	if b.workers > usualWorkers && now.Sub(w.sentAt) < lateAfter {
		b.workers--
		if len(b.queue) > 0 {
			b.checkIn(lateAfter) // the queue may need an additional worker later
		}
		return false
	}
	w.sentAt, b.lastSent = now, now
	n, charges := 0, 0
	for _, r := range b.queue {
		if len(w.requests) > 0 && r.isTooMuch(len(w.requests), charges) {
			break
		}
		n++
		if r.state.CompareAndSwap(queued, sent) {
			r.sentAt = now
			w.requests = append(w.requests, r)
			charges += len(r.charges)
		}
	}
	rest := copy(b.queue, b.queue[n:])
	clear(b.queue[rest:])
	b.queue = b.queue[:rest]
	if len(w.requests) == 0 {
		b.workers--
		return false
	}
	b.out = append(b.out, w)
	if rest > 0 {
		b.checkIn(lateAfter)
	}
	return true
}

// isTooMuch reports whether r does not fit in a call that already has the given numbers of requests and charges.
// Requests that must follow r in the same call count as a part of r.
func (r *request) isTooMuch(requests, charges int) bool {
	if r.follows {
		return charges+len(r.charges) > maxCallCharges // possible if the first of these requests was cancelled
	}
	return requests >= maxCallRequests || charges+r.weight > maxCallCharges
}

// close refuses the queued requests and all later ones.
func (b *batcher) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	if b.timer != nil {
		b.timer.Stop()
	}
	for _, r := range b.queue {
		if r.state.CompareAndSwap(queued, cancelled) {
			r.err = errClosed
			r.done <- struct{}{}
		}
	}
	b.queue = nil
}

// wait waits until r is decided or ctx ends. If ctx ends first, r is lost, because a worker may still have it.
func (r *request) wait(ctx context.Context) (lost bool, err error) {
	if ctx.Done() == nil { // cheaper than a select
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
