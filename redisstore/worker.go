package redisstore

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"github.com/redis/rueidis"
)

// movingFor is the longest time that a request waits while its keys move from one node of a cluster to another.
// unownedFor is the longest time that it waits while its slot has no owner. This is short, because such a request
// occupies a worker, and the slot may never get an owner.
const (
	movingFor  = 2 * time.Second
	unownedFor = 100 * time.Millisecond
)

// worker sends requests to the server and receives their replies. It is used by one goroutine at a time.
type worker struct {
	store     *Store
	requests  []*request
	calls     []*scriptCall // one on a single server, one per slot on a cluster
	free      []*scriptCall
	bySlot    map[uint16]*scriptCall
	commands  []rueidis.Completed
	result    [1]rueidis.RedisResult
	sentAt    time.Time // time of its last call
	abandoned bool      // the batcher does not wait for it any more; guarded by the batcher's lock
}

// run sends all requests, sets their replies or errors, and wakes their callers.
func (w *worker) run(b *batcher) {
	if w.store.cluster {
		w.splitBySlot()
	} else {
		c := w.newCall()
		c.requests = append(c.requests, w.requests...)
	}
	w.send(b)
	for _, c := range w.calls {
		clear(c.requests)
		c.requests = c.requests[:0]
	}
	w.free = append(w.free, w.calls...)
	w.calls = w.calls[:0]
	for _, r := range w.requests {
		r.done <- struct{}{}
	}
}

// newCall adds an empty call.
func (w *worker) newCall() *scriptCall {
	var c *scriptCall
	if n := len(w.free); n > 0 {
		c, w.free = w.free[n-1], w.free[:n-1]
	} else {
		c = &scriptCall{ids: make(map[string]uint16), siblings: &w.store.siblings}
	}
	w.calls = append(w.calls, c)
	return c
}

// splitBySlot makes a call for each slot, with the requests of that slot in order.
func (w *worker) splitBySlot() {
	for _, r := range w.requests {
		c := w.bySlot[r.slot]
		if c == nil {
			c = w.newCall()
			w.bySlot[r.slot] = c
		}
		c.requests = append(c.requests, r)
	}
	clear(w.bySlot)
}

// send runs the script for each call. A call is sent again only if it has not run: after NOSCRIPT, and while its keys
// move (see movesFor).
func (w *worker) send(b *batcher) {
	var began time.Time
	for calls, pause := w.calls, time.Millisecond; ; {
		loads := b.loads.Load()
		missing, moving := w.sendOnce(calls, false)
		calls = nil
		if len(missing) > 0 {
			if mine, loaded := b.startLoading(loads); mine {
				// The first call loads the script, and the others use it.
				_, more := w.sendOnce(missing[:1], true)
				b.doneLoading()
				calls, moving = missing[1:], append(moving, more...)
			} else {
				if loaded != nil {
					<-loaded
				}
				calls = missing
			}
		}
		if len(moving) > 0 {
			if began.IsZero() {
				began = time.Now()
			}
			moving = w.splitCalls(moving, time.Since(began))
		}
		if len(moving) > 0 {
			time.Sleep(pause)
			pause = min(2*pause, 50*time.Millisecond)
		}
		if calls = append(calls, moving...); len(calls) == 0 {
			return
		}
	}
}

// splitCalls makes a call for each request, because a call with one key works even while its slot moves. If a call
// has waited long enough, it sets the error of its requests instead.
func (w *worker) splitCalls(calls []*scriptCall, waited time.Duration) (more []*scriptCall) {
	for _, c := range calls {
		switch {
		case waited >= c.movesFor:
			c.fail(errMoving)
		case len(c.requests) == 1:
			more = append(more, c)
		default:
			for _, r := range c.requests {
				one := w.newCall()
				one.requests = append(one.requests, r)
				more = append(more, one)
			}
		}
	}
	return more
}

// maxStale is how often a call is tried again if its connection turns out to be dead. All pooled connections may be
// dead.
const maxStale = maxWorkers + maxLost + 8

// sendOnce sends calls. It returns the calls that the server has not run, because the script is missing or because
// keys are moving.
func (w *worker) sendOnce(calls []*scriptCall, load bool) (missing, moving []*scriptCall) {
	for tries := 0; len(calls) > 0; tries++ {
		var stale []*scriptCall
		for i, result := range w.do(calls, load) {
			c := calls[i]
			reply, err := result.ToString()
			e, ok := rueidis.IsRedisErr(err)
			switch {
			case err == nil:
				err = c.unpack(reply)
			case ok && e.IsNoScript():
				missing = append(missing, c)
				continue
			case movesFor(err) > 0:
				c.movesFor = movesFor(err)
				moving = append(moving, c)
				continue
			case errors.Is(err, errStale) && tries < maxStale:
				stale = append(stale, c)
				continue
			default:
				err = w.store.failed(err)
			}
			if err != nil {
				c.fail(err)
			}
		}
		calls = stale
	}
	return missing, moving
}

// do sends calls and returns a result for each.
func (w *worker) do(calls []*scriptCall, load bool) []rueidis.RedisResult {
	w.commands = w.commands[:0]
	for _, c := range calls {
		c.pack()
		w.commands = append(w.commands, w.command(c, load))
	}
	if len(calls) > 1 {
		return w.store.client.DoMulti(context.Background(), w.commands...)
	}
	w.result[0] = w.store.client.Do(context.Background(), w.commands[0])
	return w.result[:]
}

// failed wraps an error of the client library. If the server has become a replica, it retires the connections,
// because a new one may lead to the new master. A cluster redirects instead.
func (s *Store) failed(err error) error {
	e := failure(err)
	if e.Kind == ReadOnly && !s.cluster {
		s.conns.retire()
	}
	return e
}

// movesFor returns for how long to retry a call that failed with err, because its keys are moving, or 0 if err has
// another cause. The library follows MOVED and ASK, but gives up if nodes disagree for a long time about the owner
// of the keys. During a planned failover, a node can learn of the old master's demotion before it learns of the
// promotion. In between, it knows no owner.
func movesFor(err error) time.Duration {
	if errors.Is(err, rueidis.ErrNoSlot) {
		return unownedFor
	}
	e, ok := rueidis.IsRedisErr(err)
	if !ok {
		return 0
	}
	_, moved := e.IsMoved()
	_, ask := e.IsAsk()
	switch {
	case moved, ask, e.IsTryAgain():
		return movingFor
	case e.IsClusterDown() && strings.HasSuffix(e.Error(), "slot not served"):
		return unownedFor
	}
	return 0
}

// command builds the command of a call, with the hash of the script or, if load is true, with its text.
func (w *worker) command(c *scriptCall, load bool) rueidis.Completed {
	name, text := "EVALSHA", w.store.hash
	if load {
		name, text = "EVAL", script
	}
	b := w.store.client.B().Arbitrary(name, text, strconv.Itoa(len(c.keys)))
	// The library finds the node by the first key. The others have the same slot.
	return b.Keys(c.keys[0]).Args(c.keys[1:]...).Args(unsafe.String(&c.arg[0], len(c.arg))).Build()
}

// fail sets the error of all requests of a call.
func (c *scriptCall) fail(err error) {
	for _, r := range c.requests {
		r.err = err
	}
}
