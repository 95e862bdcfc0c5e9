package sluice

import (
	"context"
	"slices"
	"time"

	"github.com/sluicehq/sluice/internal/turns"
	"github.com/sluicehq/sluice/kernel"
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
// A plan with a smaller Most than before cuts the queue to its length. The turns beyond it are then given again, as
// after a reset.
type Turns struct{ kept turns.Kept }

// undoFor bounds the time in which a Take is undone.
const undoFor = time.Second

// picked is a turn that was taken for a charge of a Take.
type picked struct {
	charge int
	cost   int64
	turn   turns.Turn
}

// pickAll takes a kept turn for each charge of a queue that finds one, and sets the cost of that charge to 0.
func (t *Turns) pickAll(charges []Charge) (all []picked) {
	if t.kept.None() {
		return nil
	}
	for i := range charges {
		c := &charges[i]
		if c.Cost < 1 || !c.Plan.Queue {
			continue
		}
		if turn, found := t.kept.Pick(c.Key, &c.Plan.Plan, c.Cost); found {
			all = append(all, picked{i, c.Cost, turn})
			c.Cost = 0
		}
	}
	return all
}

// Take does what the store's Take does, but gives the charges of queues the turns that callers have given up, the
// earliest first. The store then only looks at these charges, and their receipts have the turns.
func (t *Turns) Take(ctx context.Context, store Store, charges []Charge, receipts []Receipt) error {
	all := t.pickAll(charges)
	return t.settle(ctx, store, charges, receipts, all, store.Take(ctx, charges, receipts))
}

// TakeEach is [TakeEach] of Takes as by [Turns.Take].
func (t *Turns) TakeEach(ctx context.Context, store Store, calls []TakeCall) {
	var all [][]picked
	if !t.kept.None() {
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

// Offer looks for a kept turn of so many units, and reports whether there is one. Then it changes r, the receipt of
// a peek at the queue, to that of a charge with this turn.
func (t *Turns) Offer(c *Charge, units int64, r *Receipt) bool {
	return !t.kept.None() && c.Plan.Queue && units > 0 && !r.Origin.Degraded() && t.kept.Offer(c.Key, &c.Plan.Plan, units, &r.Receipt)
}

// Leave gives up a turn, for which its caller must not wait any more. Call it once for a turn. Turns
// that have come by then stay used.
func (t *Turns) Leave(turn turns.Turn) { t.kept.Leave(turn) }

// Forget drops the turns of a queue that is reset.
func (t *Turns) Forget(key string, p *Plan) { t.kept.Forget(key, &p.Plan) }

// settle writes the picked turns to the receipts, or keeps them for later callers.
func (t *Turns) settle(ctx context.Context, store Store, charges []Charge, receipts []Receipt, all []picked, err error) error {
	for i := range all {
		charges[all[i].charge].Cost = all[i].cost
	}
	admitted := err == nil && Admitted(charges, receipts)
	switch {
	case len(all) == 0 && (admitted || err != nil):
		return err
	case !admitted:
		for i := range all {
			t.kept.PutBack(all[i].turn)
		}
		if err == nil {
			t.keepRefused(charges, receipts)
		}
		return err
	}
	var late []int // indexes of charges with a turn in the past
	for i := range all {
		if at := all[i].charge; !t.confirm(all[i].turn, &charges[at], &receipts[at]) {
			late = append(late, at)
		}
	}
	if len(late) == 0 {
		return nil
	}
	return t.retake(ctx, store, charges, receipts, late)
}

// keepRefused keeps the turns that a refused Take was given all the same: see [Charge.Undo].
func (t *Turns) keepRefused(charges []Charge, receipts []Receipt) {
	for i := range charges {
		if c, r := &charges[i], &receipts[i]; r.Prev > 0 && c.Plan.Queue {
			if turn, waits := c.Turn(r); waits {
				t.Leave(turn)
			}
		}
	}
}

// confirm has r be the receipt of the turn that was picked or, if its time has passed, of another one. It reports
// whether there is one.
func (t *Turns) confirm(turn turns.Turn, c *Charge, r *Receipt) bool {
	if r.Origin.Degraded() {
		t.Forget(c.Key, c.Plan) // the store that gave these turns is unavailable
		return false
	}
	return t.kept.Confirm(turn, c.Key, &c.Plan.Plan, c.Cost, &r.Receipt)
}

// retake takes, after a Take that was admitted, the charges at some indexes that it only looked at. If they
// do not fit it undoes the others.
func (t *Turns) retake(ctx context.Context, store Store, charges []Charge, receipts []Receipt, late []int) error {
	indexes := late
	for i := range charges {
		if charges[i].Plan.Kernel == kernel.Lock && slices.ContainsFunc(late, func(at int) bool { return charges[at].Key == charges[i].Key }) {
			indexes = append(indexes, i)
		}
	}
	again, got := make([]Charge, len(indexes)), make([]Receipt, len(indexes))
	for n, at := range indexes {
		again[n] = charges[at]
	}
	err := store.Take(ctx, again, got)
	if err == nil {
		for n, at := range indexes {
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
	var indexes []int
	for i := range charges {
		if c := &charges[i]; c.Cost != 0 && c.Plan.Kernel != kernel.Lock && !slices.Contains(not, i) {
			back, indexes = append(back, c.Undo(&receipts[i])), append(indexes, i)
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoFor)
	defer cancel()
	got := make([]Receipt, len(back))
	if len(back) > 0 && store.Take(ctx, back, got) == nil { // else it refuses too much for a while
		for n, at := range indexes {
			if receipts[at].Prev == 0 {
				got[n].Fits = receipts[at].Fits
				receipts[at] = got[n]
			}
		}
	}
	t.keepRefused(charges, receipts)
}
