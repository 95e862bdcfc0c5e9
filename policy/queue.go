package policy

import (
	"context"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/turns"
)

// queued has the turns for which a delayed request waits. All copies of the decision share it.
type queued struct {
	turns []turns.Turn
	first [1]turns.Turn // the backing array of turns; few requests wait for a second turn
	once  string        // the key of the request's ID, if it has one
	left  atomic.Bool
	parts *atomic.Int32 // how many parts of the request wait for the turns; nil for a request without parts
}

// wait copies the turns that a delayed decision waits for, so that they outlive w. While the shared store is
// unavailable, a decision has no turns.
func (d *Decision) wait(w *work) {
	q, c := new(queued), &w.charges
	q.turns = q.first[:0]
	for i := range c.results {
		if t, waits := c.list[i].Turn(&c.receipts[i]); waits {
			q.turns = append(q.turns, t)
		}
	}
	if at := c.once.at; at > 0 {
		q.once = strings.Clone(c.list[at].Key)
		c.once.engine.awaited.add(q.once, q)
	}
	d.queued = q
}

// Queued reports whether the request waits for a turn that it may give up: see [Engine.LeaveQueue].
func (d *Decision) Queued() bool { return d.queued != nil }

// LeaveQueue gives up the turn of a request with a Delay, so that a later request that this engine decides about
// can get the turn. Call it before the delay has passed, if the request does not go ahead after all. All other
// charges stay: see [Engine.Refund]. The parts of a request of [Engine.DecideTogether] share one turn, which is given
// up when all of them have left.
//
// Only the engine that decided about the request can pass the turn on. If the process of that engine ends, the turn
// stays unused.
func (e *Engine) LeaveQueue(d Decision) { e.leave(d.queued) }

// leave makes a request, or a part of a request, leave its queue. first reports whether this is the first such call,
// and last whether the call has given up the turns.
func (e *Engine) leave(q *queued) (first, last bool) {
	if q == nil || q.left.Swap(true) {
		return false, false
	}
	if q.parts != nil && q.parts.Add(-1) > 0 {
		return true, false
	}
	e.awaited.forget(q.once)
	for _, t := range q.turns {
		e.turns.Leave(t)
	}
	return true, true
}

// refund makes a request leave its queue, and forgets its ID. It reports whether this call is the first for the
// request.
func (e *Engine) refund(ctx context.Context, q *queued) bool {
	first, last := e.leave(q)
	if last && q.once != "" {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		once := sluice.Charge{Key: q.once, Plan: oncePlan, Cost: -1, OnError: sluice.Local}
		_ = e.store.Take(ctx, []sluice.Charge{once}, make([]sluice.Receipt, 1)) // after an error, the ID expires within RepeatedWithin
	}
	return first
}

// keepTurns sets the cost of a refund to 0 for queues, because later turns have been given to other requests.
func (c *charges) keepTurns() {
	for i := range c.results {
		if o := &c.list[i]; isQueue(o.Plan) {
			o.Cost, c.results[i].Cost = 0, 0
		}
	}
}

func isQueue(p *sluice.Plan) bool { return p.Queue }

// again makes a repeated request wait for the turns that it had. If these have passed, or were given by another
// engine, the request gets new turns.
func (e *Engine) again(ctx context.Context, once string, charges []sluice.Charge, receipts []sluice.Receipt) error {
	var places []int
	var taken []sluice.Charge
	q := e.awaited.find(once)
	for i := range charges {
		c, r := &charges[i], &receipts[i]
		if c.Cost < 1 || !isQueue(c.Plan) || r.Origin.Degraded() || q.has(c, r) {
			continue
		}
		places, taken = append(places, i), append(taken, *c)
	}
	if len(taken) == 0 {
		return nil
	}
	got := make([]sluice.Receipt, len(taken))
	if err := e.turns.Take(ctx, e.store, taken, got); err != nil {
		return err
	}
	for n, at := range places {
		receipts[at] = got[n]
	}
	return nil
}

// has reports whether the request has a turn in the queue of c. If so, it changes r to the receipt of this turn.
func (q *queued) has(c *sluice.Charge, r *sluice.Receipt) bool {
	if q == nil || q.left.Load() {
		return false
	}
	for i := range q.turns {
		if q.turns[i].Tell(c.Key, &c.Plan.Plan, &r.Receipt) {
			return true
		}
	}
	return false
}

const (
	// maxAwaited is the maximum number of waiting requests that are known by name.
	maxAwaited = 1 << 16
	// sweepAfter is the interval at which requests are removed after their turns have passed.
	sweepAfter = time.Second
)

// awaited has the waiting requests that a caller in another process can name, by the key of their ID or by a
// number.
type awaited struct {
	mu    sync.Mutex
	known map[string]*queued
	swept time.Time
}

// add adds a request, if there is room.
func (a *awaited) add(name string, q *queued) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if now := time.Now(); now.Sub(a.swept) > sweepAfter {
		a.swept = now
		for name, q := range a.known {
			if q.left.Load() || !q.waits(now) {
				delete(a.known, name)
			}
		}
	}
	if a.known == nil {
		a.known = make(map[string]*queued)
	}
	if len(a.known) < maxAwaited {
		a.known[name] = q
	}
}

// waits reports whether a turn of the request has yet to come.
func (q *queued) waits(now time.Time) bool {
	for i := range q.turns {
		if now.Before(q.turns[i].Comes()) {
			return true
		}
	}
	return false
}

func (a *awaited) find(name string) *queued {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.known[name]
}

func (a *awaited) forget(name string) {
	if name == "" {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.known, name)
}

// turnBase is the base in which random numbers of requests are written.
const turnBase = 36

// number adds a request under a random number, and returns the number.
func (a *awaited) number(q *queued) string {
	name := strconv.FormatUint(rand.Uint64(), turnBase)
	a.add(name, q)
	return name
}
