package sluice

import (
	"context"
	"slices"
	"time"

	"github.com/sluicehq/sluice/internal/turns"
	"github.com/sluicehq/sluice/kernel"
)

// Turns keeps the turn of a caller that leaves a queue early, and gives the turn to a later caller. The zero value
// is empty and ready. Turns is safe for concurrent use.
//
// A store keeps one number for the queue of a [LeakyBucket]: the end of its last turn. Each charged unit moves this end
// later. The end cannot move earlier when a caller gives up its turn, because the turns after it may belong to other
// callers. So a turn belongs to the process that received it. The waiting caller has it first; when this caller leaves,
// the process keeps it in a value of type Turns. However many processes share the store, no turn is given twice, with
// two exceptions, described below: the queue is reset, or becomes shorter.
//
// A turn that no caller takes in time is lost, and so are the turns of a process that terminates. Then fewer units
// pass than the limit allows, never more.
//
// After a reset, the store assigns turns that start at the present time, while waiting callers keep theirs, so two
// callers may have turns at the same time. When this process resets a queue, Forget drops the kept turns of the queue.
// If another process resets the queue, the kept turns may overlap new ones until an answer of the store shows the
// reset. Then the kept turns are dropped.
//
// If a plan with a smaller Most shortens a queue, the store cuts the queue to the new length. It then assigns the
// turns beyond that length again, as after a reset.
type Turns struct{ kept turns.Kept }

// undoFor bounds the time for undoing a Take.
const undoFor = time.Second

// picked is a turn that was taken for a charge of a Take.
type picked struct {
	charge int
	cost   int64
	turn   turns.Turn
}

// pickAll takes a kept turn for each charge of a queue, if a turn fits, and sets the cost of that charge to 0.
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

// Take does what the store's Take does. But first it looks for turns that callers have given up in the queues of the
// charges, and assigns these turns to the charges, the earliest turn first. For these charges, the store only peeks,
// and their receipts have the turns.
func (t *Turns) Take(ctx context.Context, store Store, charges []Charge, receipts []Receipt) error {
	all := t.pickAll(charges)
	return t.settle(ctx, store, charges, receipts, all, store.Take(ctx, charges, receipts))
}

// TakeEach does for each call what [Turns.Take] does, with one [TakeEach] of the store. If a call is denied although a
// turn was assigned to it, the turn is free again only after the whole list.
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

// Offer looks in the queue of c for a turn that a caller has given up and that is long enough for the given number of
// units, and reports whether it has found one. The parameter r is the receipt of a peek at the queue. A turn is not
// offered if it lies after the end of the queue that r reports. If Offer returns true, it changes r to the receipt of a
// charge with the turn.
func (t *Turns) Offer(c *Charge, units int64, r *Receipt) bool {
	return !t.kept.None() && c.Plan.Queue && units > 0 && !r.Origin.Degraded() && t.kept.Offer(c.Key, &c.Plan.Plan, units, &r.Receipt)
}

// Leave gives up a turn. The caller must not wait for the turn any more. Call Leave at most once for each turn. If
// the turn has come, Leave does nothing.
func (t *Turns) Leave(turn turns.Turn) { t.kept.Leave(turn) }

// Forget drops the turns of a queue. Call it when the queue is reset.
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
	var late []int // indexes of charges without a turn that is still valid
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

// keepRefused keeps the turns that a store has assigned in a Take which it then refused: see [Charge.Undo].
func (t *Turns) keepRefused(charges []Charge, receipts []Receipt) {
	for i := range charges {
		if c, r := &charges[i], &receipts[i]; r.Prev > 0 && c.Plan.Queue {
			if turn, waits := c.Turn(r); waits {
				t.Leave(turn)
			}
		}
	}
}

// confirm makes r the receipt of the picked turn or, if that turn has passed, of another kept turn. It reports
// false if no kept turn is valid.
func (t *Turns) confirm(turn turns.Turn, c *Charge, r *Receipt) bool {
	if r.Origin.Degraded() {
		t.Forget(c.Key, c.Plan) // the store that assigned the turns is unavailable
		return false
	}
	return t.kept.Confirm(turn, c.Key, &c.Plan.Plan, c.Cost, &r.Receipt)
}

// retake takes the charges with the indexes in late. For these, the admitted Take has only peeked. retake takes the
// penalties of their keys with them. If a charge does not fit, or the store fails, retake undoes the other charges.
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

// undo gives back what was taken for all charges, except for charges with an index in except.
func (t *Turns) undo(ctx context.Context, store Store, charges []Charge, receipts []Receipt, except []int) {
	back := make([]Charge, 0, len(charges))
	var indexes []int
	for i := range charges {
		if c := &charges[i]; c.Cost != 0 && c.Plan.Kernel != kernel.Lock && !slices.Contains(except, i) {
			back, indexes = append(back, c.Undo(&receipts[i])), append(indexes, i)
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoFor)
	defer cancel()
	got := make([]Receipt, len(back))
	if len(back) > 0 && store.Take(ctx, back, got) == nil { // after an error, the units stay counted
		for n, at := range indexes {
			if receipts[at].Prev == 0 {
				got[n].Fits = receipts[at].Fits
				receipts[at] = got[n]
			}
		}
	}
	t.keepRefused(charges, receipts)
}
