package sluice

import (
	"context"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Turns keeps the turns in queues that callers have given up, and gives them to later callers. The
// zero value is empty and ready; it is safe for concurrent use.
//
// A store keeps one number for the queue of a [LeakyBucket]: where its last turn ends. Each unit that
// is charged moves that on, and nothing but a reset moves it back, because the turns before it belong
// to other callers. So a turn belongs to the process that received it: to the caller that waits, or,
// once that has left, to the Turns of the process. No turn is given twice, however many processes
// share the store.
//
// A turn that no caller takes before it comes is lost, and so are those of a process that ends. That
// lets less through, never more.
//
// After a reset the store gives turns from now on, and callers that wait keep theirs, so that both may
// come at the same time. A turn that is kept here when another process resets its queue is like one of
// a caller that waits; it is dropped as soon as the store's answer shows the reset.
//
// The same holds for turns beyond the Most of a plan: a plan with a smaller Most cuts the queue to that.
type Turns struct {
	kept   atomic.Int64 // spans in queues
	mu     sync.Mutex   // not held while a store is asked
	queues map[queueID]*queue
	swept  time.Time
}

const (
	// maxSpans bounds the spans of one queue, and maxKept those of all.
	maxSpans = 1 << 10
	maxKept  = 1 << 16
	// sweepAfter is how often queues are searched for turns that have passed.
	sweepAfter = time.Second
	// undoFor bounds the time in which a Take is undone.
	undoFor = time.Second
)

// queueID identifies the state of a queue in a store.
type queueID struct {
	key         string
	fingerprint uint64
}

// queue has the turns that were given up of one state.
type queue struct {
	plan  *Plan
	spans []span    // sorted, without overlaps
	now   int64     // the store's clock, in microseconds since the Unix epoch,
	seen  time.Time // at this local time or earlier
}

// point is a time on the store's clock, to the fraction of a tick in which a unit of level drains.
type point struct {
	tick, part int64 // 0 ≤ part < Drain
}

// span is the time of one or several turns.
type span struct{ from, to point }

func (p point) before(q point) bool { return p.tick < q.tick || p.tick == q.tick && p.part < q.part }

// ceil returns the first tick that is not before the point.
func (p point) ceil() int64 {
	if p.part > 0 {
		return p.tick + 1
	}
	return p.tick
}

// point returns when a level, at least 0, has drained.
func (p *Plan) point(tick, level int64) point { return point{tick + level/p.Drain, level % p.Drain} }

// levelAt returns what drains between a tick and a point, or MaxInt64 if it is more than Size.
func (p *Plan) levelAt(at point, tick int64) int64 {
	if at.tick-tick > p.full {
		return math.MaxInt64
	}
	return (max(at.tick-tick, -p.full-1))*p.Drain + at.part
}

// after returns the point at which a level has drained that is added at the point.
func (p *Plan) after(at point, level int64) point {
	return p.point(at.tick, at.part+level)
}

// queues reports whether the plan gives turns.
func (p *Plan) queues() bool { return p.Limit.Algorithm == LeakyBucket }

// turnEnd returns the level at the end of the turn of a charge, by its receipt.
func (r *Receipt) turnEnd() int64 {
	if r.Prev > 0 {
		return r.Prev
	}
	return r.Used
}

// Turn is a turn in a queue. Its caller may give it up: see [Turns.Leave].
type Turn struct {
	key  string
	plan *Plan
	span span
	now  int64     // the store's clock when the turn was given
	seen time.Time // the local time, not before that
}

// Turn returns the turn of a charge of a [LeakyBucket] that was admitted. It reports false if there is
// no turn to wait for, or if it was not given by the shared store.
func (c *Charge) Turn(r *Receipt) (t Turn, waits bool) {
	p := c.Plan
	if !p.queues() || c.Cost < 1 || !r.Fits || r.Origin.Degraded() {
		return t, false
	}
	level := r.turnEnd() - c.Cost*p.Unit
	if level <= 0 {
		return t, false
	}
	from := p.point(p.ticks(r.Now), level)
	return Turn{strings.Clone(c.Key), p, span{from, p.after(from, c.Cost*p.Unit)}, r.Now, time.Now()}, true
}

// Tell makes r, a receipt of a charge, say this turn. It reports false if that is of another queue, or
// has passed.
func (t *Turn) Tell(c *Charge, r *Receipt) bool {
	tick := c.Plan.ticks(r.Now)
	if t.plan.Fingerprint != c.Plan.Fingerprint || !t.plan.sameTurns(c.Plan) || t.key != c.Key || t.span.from.before(point{tick, 0}) {
		return false
	}
	r.Prev = c.Plan.levelAt(t.span.to, tick)
	return true
}

// Comes returns the local time at which the turn comes.
func (t *Turn) Comes() time.Time {
	return t.seen.Add(t.plan.until(t.span.from.ceil(), t.now))
}

// Leave gives up a turn, for which its caller must not wait any more. Call it once for a turn. Turns
// that have come by then stay used.
func (t *Turns) Leave(turn Turn) {
	if turn.plan == nil || !time.Now().Before(turn.Comes()) {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.keep(&turn)
}

// keep adds a turn. t.mu is held.
func (t *Turns) keep(turn *Turn) {
	t.sweep()
	id := queueID{turn.key, turn.plan.Fingerprint}
	q := t.queues[id]
	if q == nil || !q.plan.sameTurns(turn.plan) {
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

// sameTurns reports whether points and levels mean the same under both plans.
func (p *Plan) sameTurns(q *Plan) bool {
	return p.Tick == q.Tick && p.Unit == q.Unit && p.Drain == q.Drain
}

// drop forgets the turns of a queue. t.mu is held.
func (t *Turns) drop(id queueID) {
	if q := t.queues[id]; q != nil {
		t.kept.Add(-int64(len(q.spans)))
		delete(t.queues, id)
	}
}

// sweep drops, once in a while, the turns that have passed. t.mu is held.
func (t *Turns) sweep() {
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
func (t *Turns) Forget(key string, p *Plan) {
	if t.kept.Load() == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.drop(queueID{key, p.Fingerprint})
}

// clock returns the tick of the store's clock, as far as it is known here.
func (q *queue) clock(now time.Time) int64 {
	return q.plan.ticks(q.now + now.Sub(q.seen).Microseconds())
}

// pass drops what has passed at a tick.
func (q *queue) pass(tick int64) {
	now, n := point{tick, 0}, 0
	for n < len(q.spans) && !now.before(q.spans[n].to) {
		n++
	}
	if q.spans = slices.Delete(q.spans, 0, n); len(q.spans) > 0 && q.spans[0].from.before(now) {
		q.spans[0].from = now
	}
}

// add adds a span, and joins it with those that it touches. If it overlaps one, or if there are too
// many, it is lost.
func (q *queue) add(s span) {
	i, _ := slices.BinarySearchFunc(q.spans, s.from, func(a span, at point) int {
		if a.from.before(at) {
			return -1
		}
		return 1
	})
	joinsLast, joinsNext := i > 0 && q.spans[i-1].to == s.from, i < len(q.spans) && q.spans[i].from == s.to
	switch {
	case i > 0 && s.from.before(q.spans[i-1].to), i < len(q.spans) && q.spans[i].from.before(s.to):
	case joinsLast && joinsNext:
		q.spans[i-1].to = q.spans[i].to
		q.spans = slices.Delete(q.spans, i, i+1)
	case joinsLast:
		q.spans[i-1].to = s.to
	case joinsNext:
		q.spans[i].from = s.from
	case len(q.spans) < maxSpans:
		q.spans = slices.Insert(q.spans, i, s)
	}
}

// find returns the first span with room for a level that p would let wait at a tick, or -1.
func (q *queue) find(p *Plan, level, tick int64) int {
	for i, s := range q.spans {
		if end := p.after(s.from, level); !s.to.before(end) {
			if p.levelAt(end, tick) > p.Size {
				return -1
			}
			return i
		}
	}
	return -1
}

// pick takes the first turn for a charge of so many units, at a tick of the store's clock or, if that is
// negative, at what is known of it here. t.mu is held.
func (t *Turns) pick(c *Charge, cost, tick int64) (turn Turn, found bool) {
	p, id := c.Plan, queueID{c.Key, c.Plan.Fingerprint}
	q := t.queues[id]
	if q == nil || !q.plan.sameTurns(p) || cost > p.Capacity {
		return turn, false
	}
	if tick < 0 {
		tick = q.clock(time.Now())
	}
	before := len(q.spans)
	q.pass(tick)
	if i := q.find(p, cost*p.Unit, tick); i >= 0 {
		from := q.spans[i].from
		s := span{from, p.after(from, cost*p.Unit)}
		turn, found = Turn{c.Key, p, s, q.now, q.seen}, true
		if q.spans[i].from = s.to; q.spans[i].to == s.to {
			q.spans = slices.Delete(q.spans, i, i+1)
		}
	}
	if t.kept.Add(int64(len(q.spans) - before)); len(q.spans) == 0 {
		delete(t.queues, id)
	}
	return turn, found
}

// picked is a turn that was taken for a charge of a Take.
type picked struct {
	charge int
	cost   int64
	turn   Turn
}

// pickAll takes a kept turn for each charge of a queue that finds one, and sets the cost of that charge to 0.
func (t *Turns) pickAll(charges []Charge) (all []picked) {
	if t.kept.Load() == 0 {
		return nil
	}
	for i := range charges {
		c := &charges[i]
		if c.Cost < 1 || !c.Plan.queues() {
			continue
		}
		t.mu.Lock()
		turn, found := t.pick(c, c.Cost, -1)
		t.mu.Unlock()
		if found {
			all = append(all, picked{i, c.Cost, turn})
			c.Cost = 0
		}
	}
	return all
}

// Take does what the store's Take does, but gives the charges of queues the turns that callers have
// given up, the earliest first. The store then only looks at these charges, and their receipts say
// which turns they have.
func (t *Turns) Take(ctx context.Context, store Store, charges []Charge, receipts []Receipt) error {
	all := t.pickAll(charges)
	return t.settle(ctx, store, charges, receipts, all, store.Take(ctx, charges, receipts))
}

// TakeEach is [TakeEach] of Takes as by [Turns.Take].
func (t *Turns) TakeEach(ctx context.Context, store Store, calls []TakeCall) {
	var all [][]picked
	if t.kept.Load() > 0 {
		all = make([][]picked, len(calls))
		for i := range calls {
			all[i] = t.pickAll(calls[i].Charges)
		}
	}
	TakeEach(ctx, store, calls)
	for i := range calls {
		var some []picked
		if all != nil {
			some = all[i]
		}
		c := &calls[i]
		c.Err = t.settle(ctx, store, c.Charges, c.Receipts, some, c.Err)
	}
}

// Offer makes r, the receipt of a peek at a queue, that of a charge of so many units which was given a
// turn, and reports whether one is kept for them.
func (t *Turns) Offer(c *Charge, units int64, r *Receipt) bool {
	if t.kept.Load() == 0 || !c.Plan.queues() || units < 1 {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	turn, found := t.pick(c, units, c.Plan.ticks(r.Now))
	if !found {
		return false
	}
	t.putBack(&turn)
	tick := c.Plan.ticks(r.Now)
	if c.Plan.levelAt(turn.span.to, tick) > r.Used || r.Origin.Degraded() {
		return false
	}
	r.Prev = c.Plan.levelAt(turn.span.to, tick)
	return true
}

// settle has the receipts say which turns were picked, or keeps these for later callers.
func (t *Turns) settle(ctx context.Context, store Store, charges []Charge, receipts []Receipt, all []picked, err error) error {
	for i := range all {
		charges[all[i].charge].Cost = all[i].cost
	}
	admitted := err == nil && Admitted(charges, receipts)
	switch {
	case len(all) == 0 && (admitted || err != nil):
		return err
	case !admitted:
		t.mu.Lock()
		for i := range all {
			t.putBack(&all[i].turn)
		}
		t.mu.Unlock()
		if err == nil {
			t.keepRefused(charges, receipts)
		}
		return err
	}
	var late []int // indexes of charges with a turn in the past
	for i := range all {
		if at := all[i].charge; !t.confirm(&all[i].turn, &charges[at], &receipts[at]) {
			late = append(late, at)
		}
	}
	if len(late) == 0 {
		return nil
	}
	return t.retake(ctx, store, charges, receipts, late)
}

// putBack keeps a turn that was picked and not used. t.mu is held.
func (t *Turns) putBack(turn *Turn) {
	turn.key = strings.Clone(turn.key)
	t.keep(turn)
}

// keepRefused keeps the turns that a refused Take was given all the same: see [Charge.Undo].
func (t *Turns) keepRefused(charges []Charge, receipts []Receipt) {
	for i := range charges {
		if c, r := &charges[i], &receipts[i]; r.Prev > 0 && c.Plan.queues() {
			if turn, waits := c.Turn(r); waits {
				t.Leave(turn)
			}
		}
	}
}

// confirm has r say the turn that was picked or, if its time has passed, another one. It reports
// whether there is one.
func (t *Turns) confirm(turn *Turn, c *Charge, r *Receipt) bool {
	p, tick := c.Plan, c.Plan.ticks(r.Now)
	t.mu.Lock()
	defer t.mu.Unlock()
	if end := p.levelAt(turn.span.to, tick); r.Origin.Degraded() || end > 0 && end > r.Used {
		t.drop(queueID{c.Key, p.Fingerprint}) // the store that gave these turns is away, or has reset the queue
		return false
	}
	if turn.span.from.before(point{tick, 0}) {
		turn.now, turn.seen = r.Now, time.Now()
		t.putBack(turn) // the turn behind it may make it long enough
		next, found := t.pick(c, c.Cost, tick)
		if !found {
			return false
		}
		if *turn = next; p.levelAt(turn.span.to, tick) > r.Used {
			t.putBack(turn) // it was given after this Take
			return false
		}
	}
	r.Prev = p.levelAt(turn.span.to, tick)
	return true
}

// retake takes, after a Take that was admitted, the charges at some places that it only looked at. If they
// do not fit it undoes the others.
func (t *Turns) retake(ctx context.Context, store Store, charges []Charge, receipts []Receipt, late []int) error {
	places := late
	for i := range charges {
		if charges[i].Plan.Kernel == Lock && slices.ContainsFunc(late, func(at int) bool { return charges[at].Key == charges[i].Key }) {
			places = append(places, i)
		}
	}
	again, got := make([]Charge, len(places)), make([]Receipt, len(places))
	for n, at := range places {
		again[n] = charges[at]
	}
	err := store.Take(ctx, again, got)
	if err == nil {
		for n, at := range places {
			receipts[at] = got[n]
		}
		if Admitted(again, got) {
			return nil
		}
	}
	t.undo(ctx, store, charges, receipts, late)
	return err
}

// undo gives back what was taken, but for some charges.
func (t *Turns) undo(ctx context.Context, store Store, charges []Charge, receipts []Receipt, not []int) {
	back := make([]Charge, 0, len(charges))
	var places []int
	for i := range charges {
		if c := &charges[i]; c.Cost != 0 && c.Plan.Kernel != Lock && !slices.Contains(not, i) {
			back, places = append(back, c.Undo(&receipts[i])), append(places, i)
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoFor)
	defer cancel()
	got := make([]Receipt, len(back))
	if len(back) > 0 && store.Take(ctx, back, got) == nil { // else it refuses too much for a while
		for n, at := range places {
			if receipts[at].Prev == 0 {
				got[n].Fits = receipts[at].Fits
				receipts[at] = got[n]
			}
		}
	}
	t.keepRefused(charges, receipts)
}
