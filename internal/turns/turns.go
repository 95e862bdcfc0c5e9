// Package turns keeps the turns of callers that leave a queue early, for later callers. Package sluice imports it:
// its Turns uses it between callers and a store. It imports package kernel.
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
	now  int64     // the store's clock when the turn was given
	seen time.Time // the local time, not before that
}

// New returns a turn that a store has given just now, by its clock in microseconds since the Unix epoch.
func New(key string, p *kernel.Plan, span kernel.Span, now int64) Turn {
	return Turn{strings.Clone(key), p, span, now, time.Now()}
}

// Tell makes r, a receipt of a charge of a key, the receipt of this turn. It reports false if the turn is of
// another queue, or has passed.
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

// Kept are the turns that were given up. The zero value is empty and ready; it is safe for concurrent use.
type Kept struct {
	kept   atomic.Int64 // spans in queues
	mu     sync.Mutex
	queues map[queueID]*queue
	swept  time.Time
}

const (
	// maxSpans bounds the spans of one queue, and maxKept those of all.
	maxSpans = 1 << 10
	maxKept  = 1 << 16
	// sweepAfter is how often queues are searched for turns that have passed.
	sweepAfter = time.Second
)

// queueID identifies the state of a queue in a store.
type queueID struct {
	key         string
	fingerprint uint64
}

// queue has the turns that were given up of one state.
type queue struct {
	plan  *kernel.Plan
	spans []kernel.Span // sorted, without overlaps
	now   int64         // the store's clock, in microseconds since the Unix epoch,
	seen  time.Time     // at this local time or earlier
}

// None reports whether no turn is kept.
func (t *Kept) None() bool { return t.kept.Load() == 0 }

// Leave keeps a turn for which its caller does not wait any more, unless it has come.
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
	for other := range t.queues { // in random order, so that the keys of one client go first if it has the most
		if t.kept.Load() <= maxKept {
			return
		}
		if other != id {
			t.drop(other)
		}
	}
}

// drop forgets the turns of a queue. t.mu is held.
func (t *Kept) drop(id queueID) {
	if q := t.queues[id]; q != nil {
		t.kept.Add(-int64(len(q.spans)))
		delete(t.queues, id)
	}
}

// sweep drops, once in a while, the turns that have passed. t.mu is held.
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

// Pick takes the first turn for a charge of so many units.
func (t *Kept) Pick(key string, p *kernel.Plan, cost int64) (turn Turn, found bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.pick(key, p, cost, -1)
}

// pick takes the first turn for a charge of so many units, at a tick of the store's clock or, if that is
// negative, at what is known of it here. t.mu is held.
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

// Offer makes r, the receipt of a peek at a queue, the receipt of a charge of so many units which was given a
// turn, and reports whether one is kept for them.
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

// Confirm makes r, the receipt of a peek at a queue, the receipt of the turn that was picked for a charge or, if
// its time has passed, of another one. It reports whether there is one.
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
		t.putBack(&turn) // the turn behind it may make it long enough
		next, found := t.pick(key, p, cost, tick)
		if !found {
			return false
		}
		if turn = next; p.LevelAt(turn.span.To, tick) > r.Used {
			t.putBack(&turn) // it was given after this Take
			return false
		}
	}
	r.Prev = p.LevelAt(turn.span.To, tick)
	return true
}
