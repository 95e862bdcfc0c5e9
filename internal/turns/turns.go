// Package turns keeps the turns of callers that leave a queue early, and gives them to later callers. It is the
// implementation of Turns in package sluice. It imports package kernel.
package turns

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluicehq/sluice/kernel"
)

// Turn is a turn in a queue.
type Turn struct {
	key  string
	plan *kernel.Plan
	span kernel.Span
	now  int64     // the time of the store's clock when the turn was given
	seen time.Time // a local time at or after that moment
}

// New returns a turn that a store has just given. The parameter now is the time by the store's clock, in
// microseconds since the Unix epoch.
func New(key string, p *kernel.Plan, span kernel.Span, now int64) Turn {
	return Turn{strings.Clone(key), p, span, now, time.Now()}
}

// Tell changes r, the receipt of a charge of a key, to the receipt of this turn. It returns false if the turn
// belongs to another queue, or has passed.
func (t *Turn) Tell(key string, p *kernel.Plan, r *kernel.Receipt) bool {
	tick := p.Ticks(r.Now)
	if t.plan.Fingerprint != p.Fingerprint || !t.plan.SameTurns(p) || t.key != key || t.span.From.Before(kernel.Point{Tick: tick}) {
		return false
	}
	r.Prev = p.LevelAt(t.span.To, tick)
	return true
}

// Comes returns the local time at which the turn comes.
func (t *Turn) Comes() time.Time {
	return t.seen.Add(t.plan.Until(t.span.From.Ceil(), t.now))
}

// Kept has the turns that were given up. The zero value is empty and ready for use. A Kept is safe for concurrent
// use.
type Kept struct {
	kept   atomic.Int64 // the number of spans in all queues
	mu     sync.Mutex
	queues map[queueID]*queue
	swept  time.Time
}

const (
	// maxSpans bounds the number of spans in one queue, and maxKept the number in all queues together.
	maxSpans = 1 << 10
	maxKept  = 1 << 16
	// sweepAfter is the interval after which queues are searched for turns that have passed.
	sweepAfter = time.Second
)

// queueID identifies the state of a queue in a store.
type queueID struct {
	key         string
	fingerprint uint64
}

// queue has the turns of one state that were given up.
type queue struct {
	plan  *kernel.Plan
	spans []kernel.Span // sorted, without overlaps
	now   int64         // a time of the store's clock, in microseconds since the Unix epoch
	seen  time.Time     // a local time at or after the moment of now
}

// None reports whether no turns are kept.
func (t *Kept) None() bool { return t.kept.Load() == 0 }

// Leave keeps a turn that its caller no longer waits for, unless the turn has come.
func (t *Kept) Leave(turn Turn) {
	if turn.plan == nil || !time.Now().Before(turn.Comes()) {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.keep(&turn)
}

// PutBack keeps turns that were picked and not used.
func (t *Kept) PutBack(turns ...Turn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range turns {
		t.putBack(&turns[i])
	}
}

// putBack keeps a turn that was picked and not used. t.mu is held.
func (t *Kept) putBack(turn *Turn) {
	turn.key = strings.Clone(turn.key)
	t.keep(turn)
}

// keep adds a turn. t.mu is held.
func (t *Kept) keep(turn *Turn) {
	t.sweep()
	id := queueID{turn.key, turn.plan.Fingerprint}
	q := t.queues[id]
	if q == nil || !q.plan.SameTurns(turn.plan) {
		t.drop(id)
		if t.queues == nil {
			t.queues = make(map[queueID]*queue)
		}
		q = new(queue)
		t.queues[id] = q
	}
	if q.plan = turn.plan; turn.now >= q.now {
		q.now, q.seen = turn.now, turn.seen
	}
	before := len(q.spans)
	q.add(turn.span)
	t.kept.Add(int64(len(q.spans) - before))
	for other := range t.queues { // in random order, so that a client with the most queues loses the most
		if t.kept.Load() <= maxKept {
			return
		}
		if other != id {
			t.drop(other)
		}
	}
}

// drop removes the turns of a queue. t.mu is held.
func (t *Kept) drop(id queueID) {
	if q := t.queues[id]; q != nil {
		t.kept.Add(-int64(len(q.spans)))
		delete(t.queues, id)
	}
}

// sweep drops the turns that have passed, at most once in sweepAfter. t.mu is held.
func (t *Kept) sweep() {
	now := time.Now()
	if now.Sub(t.swept) < sweepAfter {
		return
	}
	t.swept = now
	for id, q := range t.queues {
		before := len(q.spans)
		q.pass(q.clock(now))
		if t.kept.Add(int64(len(q.spans) - before)); len(q.spans) == 0 {
			delete(t.queues, id)
		}
	}
}

// Forget drops the turns of a queue that is reset.
func (t *Kept) Forget(key string, p *kernel.Plan) {
	if t.kept.Load() == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.drop(queueID{key, p.Fingerprint})
}

// Pick takes the first kept turn for a charge of cost units.
func (t *Kept) Pick(key string, p *kernel.Plan, cost int64) (turn Turn, found bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.pick(key, p, cost, -1)
}

// pick takes the first kept turn for a charge of cost units at a tick of the store's clock. If tick is negative,
// pick uses the result of queue.clock. t.mu is held.
func (t *Kept) pick(key string, p *kernel.Plan, cost, tick int64) (turn Turn, found bool) {
	id := queueID{key, p.Fingerprint}
	q := t.queues[id]
	if q == nil || !q.plan.SameTurns(p) || cost > p.Capacity {
		return turn, false
	}
	if tick < 0 {
		tick = q.clock(time.Now())
	}
	before := len(q.spans)
	q.pass(tick)
	if i := q.find(p, cost, tick); i >= 0 {
		s := p.Turn(q.spans[i].From, cost)
		turn, found = Turn{key, p, s, q.now, q.seen}, true
		if q.spans[i].From = s.To; q.spans[i].To == s.To {
			q.spans = slices.Delete(q.spans, i, i+1)
		}
	}
	if t.kept.Add(int64(len(q.spans) - before)); len(q.spans) == 0 {
		delete(t.queues, id)
	}
	return turn, found
}

// Offer reports whether a turn is kept for a charge of the given number of units. If so, it changes r, the receipt
// of a peek at the queue, to the receipt of a charge that was given this turn.
func (t *Kept) Offer(key string, p *kernel.Plan, units int64, r *kernel.Receipt) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	tick := p.Ticks(r.Now)
	turn, found := t.pick(key, p, units, tick)
	if !found {
		return false
	}
	t.putBack(&turn)
	end := p.LevelAt(turn.span.To, tick)
	if end > r.Used {
		return false
	}
	r.Prev = end
	return true
}

// Confirm changes r, the receipt of a peek at a queue, to the receipt of the turn that was picked for a charge. If
// the time of the turn has passed, Confirm uses another kept turn. It returns false if there is none.
func (t *Kept) Confirm(turn Turn, key string, p *kernel.Plan, cost int64, r *kernel.Receipt) bool {
	tick := p.Ticks(r.Now)
	t.mu.Lock()
	defer t.mu.Unlock()
	if end := p.LevelAt(turn.span.To, tick); end > 0 && end > r.Used {
		t.drop(queueID{key, p.Fingerprint}) // the store has reset the queue
		return false
	}
	if turn.span.From.Before(kernel.Point{Tick: tick}) {
		turn.now, turn.seen = r.Now, time.Now()
		t.putBack(&turn) // together with the next turn, it may be long enough
		next, found := t.pick(key, p, cost, tick)
		if !found {
			return false
		}
		if turn = next; p.LevelAt(turn.span.To, tick) > r.Used {
			t.putBack(&turn) // the turn was given after this Take
			return false
		}
	}
	r.Prev = p.LevelAt(turn.span.To, tick)
	return true
}
