package redisstore

import (
	"context"
	"errors"
	"strconv"
	"time"
	"unsafe"

	"github.com/redis/rueidis"
)

// movingFor is how long a request may wait for keys that are on their way from one node
// of a cluster to another.
const movingFor = 2 * time.Second

// flight carries requests to the server and brings back their replies. It is used by
// one goroutine at a time.
type flight struct {
	store    *Store
	requests []*request
	calls    []*call // one on a single server, one per slot on a cluster
	free     []*call
	bySlot   map[uint16]*call
	commands []rueidis.Completed
	result   [1]rueidis.RedisResult
	left     time.Time // when it has left last
	lost     bool      // its lane does not expect it back; under the lane's lock
}

// run decides all requests of a lane, or gives them an error, and tells those who wait.
func (f *flight) run(l *lane) {
	if f.store.cluster {
		f.split()
	} else {
		c := f.call()
		c.requests = append(c.requests, f.requests...)
	}
	f.send(l)
	for _, c := range f.calls {
		clear(c.requests)
		c.requests = c.requests[:0]
	}
	f.free = append(f.free, f.calls...)
	f.calls = f.calls[:0]
	for _, r := range f.requests {
		r.done <- struct{}{}
	}
}

// call adds an empty call to the flight.
func (f *flight) call() *call {
	var c *call
	if n := len(f.free); n > 0 {
		c, f.free = f.free[n-1], f.free[:n-1]
	} else {
		c = &call{known: make(map[string]uint16)}
	}
	f.calls = append(f.calls, c)
	return c
}

// split makes a call of the requests of each slot, in order.
func (f *flight) split() {
	for _, r := range f.requests {
		c := f.bySlot[r.slot]
		if c == nil {
			c = f.call()
			f.bySlot[r.slot] = c
		}
		c.requests = append(c.requests, r)
	}
	clear(f.bySlot)
}

// send runs the script for each call. A call is sent again only after NOSCRIPT,
// TRYAGAIN, MOVED and ASK, which say that it has not run.
func (f *flight) send(l *lane) {
	var giveUp time.Time
	for calls, pause := f.calls, time.Millisecond; ; {
		loads := l.brought.Load()
		missing, moving := f.round(calls, false)
		calls = nil
		if len(missing) > 0 {
			if mine, loaded := l.load(loads); mine {
				// The first brings the script along, and the others find it there.
				_, more := f.round(missing[:1], true)
				l.loaded()
				calls, moving = missing[1:], append(moving, more...)
			} else {
				if loaded != nil {
					<-loaded
				}
				calls = missing
			}
		}
		if len(moving) > 0 {
			if giveUp.IsZero() {
				giveUp = time.Now().Add(movingFor)
			}
			moving = f.apart(moving, time.Now().Before(giveUp))
			time.Sleep(pause)
			pause = min(2*pause, 50*time.Millisecond)
		}
		if calls = append(calls, moving...); len(calls) == 0 {
			return
		}
	}
}

// apart makes a call of each request, because those for one key can be served even
// while their slot moves. If it is too late for that, it gives them an error.
func (f *flight) apart(calls []*call, again bool) (more []*call) {
	for _, c := range calls {
		switch {
		case !again:
			c.fail(errMoving)
		case len(c.requests) == 1:
			more = append(more, c)
		default:
			for _, r := range c.requests {
				one := f.call()
				one.requests = append(one.requests, r)
				more = append(more, one)
			}
		}
	}
	return more
}

// maxStale is how often something is sent again that was not sent, because the connection
// for it had died: often enough for all that may be kept.
const maxStale = maxFlights + maxLost + 8

// round sends calls, and returns those that the server has not run because the script
// is missing, or because keys are moving.
func (f *flight) round(calls []*call, load bool) (missing, moving []*call) {
	for tries := 0; len(calls) > 0; tries++ {
		var stale []*call
		for i, result := range f.do(calls, load) {
			c := calls[i]
			reply, err := result.ToString()
			e, ok := rueidis.IsRedisErr(err)
			switch {
			case err == nil:
				err = c.deal(reply)
			case ok && e.IsNoScript():
				missing = append(missing, c)
				continue
			case ok && isMoving(e):
				moving = append(moving, c)
				continue
			case errors.Is(err, errStale) && tries < maxStale:
				stale = append(stale, c)
				continue
			default:
				err = f.store.failed(err)
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
func (f *flight) do(calls []*call, load bool) []rueidis.RedisResult {
	f.commands = f.commands[:0]
	for _, c := range calls {
		c.build()
		f.commands = append(f.commands, f.command(c, load))
	}
	if len(calls) > 1 {
		return f.store.client.DoMulti(context.Background(), f.commands...)
	}
	f.result[0] = f.store.client.Do(context.Background(), f.commands[0])
	return f.result[:]
}

// failed wraps an error of the client library. A server that has become a replica may be
// reached by connections of old while a new one would lead to the master. A cluster says
// where to go.
func (s *Store) failed(err error) error {
	e := failure(err)
	if e.Kind == ReadOnly && !s.cluster {
		s.conns.retire()
	}
	return e
}

// isMoving reports whether the server has sent a call away. The library follows MOVED
// and ASK, but not for ever where the nodes do not agree yet whose the keys are.
func isMoving(e *rueidis.RedisError) bool {
	_, moved := e.IsMoved()
	_, ask := e.IsAsk()
	return e.IsTryAgain() || moved || ask
}

// command builds the command of a call, naming the script by its hash, or bringing it.
func (f *flight) command(c *call, load bool) rueidis.Completed {
	name, text := "EVALSHA", f.store.hash
	if load {
		name, text = "EVAL", script
	}
	b := f.store.client.B().Arbitrary(name, text, strconv.Itoa(len(c.keys)))
	// The library finds the node by the first key. The others have the same slot.
	return b.Keys(c.keys[0]).Args(c.keys[1:]...).Args(unsafe.String(&c.arg[0], len(c.arg))).Build()
}

// fail gives all requests of a call an error.
func (c *call) fail(err error) {
	for _, r := range c.requests {
		r.err = err
	}
}
