package redisstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/kernel"
)

// slotPart has the charges of a Take that have the same slot.
type slotPart struct {
	slot     uint16
	charges  []sluice.Charge
	receipts []sluice.Receipt
	places   []int // indexes of the charges in the Take
	// known reports that the receipts were written from memory, as for a denied Take. refuses reports that a charge
	// of this part refuses the Take.
	known, refuses bool
	order          float64 // parts with a lower order are taken earlier
}

// takeAcrossSlots takes charges of several slots, slot by slot, and gives back the charges of the earlier slots if
// a slot refuses or fails. If a slot is known to refuse, and as soon as one has refused, the others are only peeked
// at, so that no other request is denied because of units that will be given back. Turns in a queue are taken last
// and not given back: the receipts have them, for [sluice.Turns].
func (s *Store) takeAcrossSlots(ctx context.Context, charges []sluice.Charge, receipts []sluice.Receipt) error {
	parts := s.slotParts(charges)
	if err := s.lookAtQueues(ctx, parts); err != nil {
		return err
	}
	refused := slices.ContainsFunc(parts, func(p slotPart) bool { return p.refuses })
	for i := range parts {
		p := &parts[i]
		if refused && p.known {
			continue
		}
		err := s.takeSlot(ctx, p, refused)
		if err == nil && (refused || sluice.Admitted(p.charges, p.receipts)) {
			continue
		}
		if !refused {
			if e := s.giveBack(ctx, parts[:i]); e != nil {
				// The earlier parts may remain charged, whatever stopped this one.
				err = &Error{Unknown, fmt.Errorf("units that were taken already could not be given back: %w", cmp.Or(err, e))}
			}
		}
		if err != nil {
			return err
		}
		refused = true
	}
	for _, p := range parts {
		for i, place := range p.places {
			receipts[place] = p.receipts[i]
		}
	}
	return nil
}

// lookAtQueues peeks at all parts with a queue except the first. If one of them refuses, the first must not take a
// turn, because turns cannot be given back.
func (s *Store) lookAtQueues(ctx context.Context, parts []slotPart) error {
	first := slices.IndexFunc(parts, slotPart.queues)
	for i := first + 1; first >= 0 && i < len(parts); i++ {
		p := &parts[i]
		if p.refuses || !p.queues() {
			continue
		}
		if err := s.takeSlot(ctx, p, true); err != nil {
			return err
		}
		if p.refuses = !sluice.Admitted(p.charges, p.receipts); p.refuses {
			p.known = true
		}
	}
	return nil
}

// queues reports whether p takes turns in a queue.
func (p slotPart) queues() bool {
	return slices.ContainsFunc(p.charges, func(c sluice.Charge) bool {
		return c.Cost > 0 && c.Plan.Queue
	})
}

// slotParts groups charges by slot. The slots that are most likely to refuse come first.
func (s *Store) slotParts(charges []sluice.Charge) []slotPart {
	var parts []slotPart
	var name []byte
	for i := range charges {
		name = s.names.append(name[:0], &charges[i])
		at := slot(name)
		p := slices.IndexFunc(parts, func(p slotPart) bool { return p.slot == at })
		if p < 0 {
			p = len(parts)
			parts = append(parts, slotPart{slot: at, order: math.Inf(1)})
		}
		parts[p].charges = append(parts[p].charges, charges[i])
		parts[p].receipts = append(parts[p].receipts, sluice.Receipt{})
		parts[p].places = append(parts[p].places, i)
	}
	for i := range parts {
		p := &parts[i]
		if s.denyCache.table.Load() != nil {
			p.refuses, p.known = s.denyCache.lookUp(s.denyCache.at(time.Now()), p.charges, p.receipts)
		}
		for j := range p.charges {
			p.order = min(p.order, s.order(&p.charges[j]))
		}
		switch {
		case slices.ContainsFunc(p.charges, func(c sluice.Charge) bool { return c.Cost < 0 }):
			// Refunds come last: if they had to be undone, another process might have taken the units.
			p.order = math.Inf(1)
		case p.queues():
			p.order = math.MaxFloat64 // a turn cannot be given back
		}
	}
	slices.SortStableFunc(parts, func(a, b slotPart) int { return cmp.Compare(a.order, b.order) })
	return parts
}

// order returns how many charges like c its limit allows in a microsecond, or 0 if the last known state would have
// refused c. Limits with lower rates usually apply to fewer clients, and one client uses them up sooner.
func (s *Store) order(c *sluice.Charge) float64 {
	switch l := c.Plan.Limit; {
	case c.Cost == 0 || !c.Refuses():
		return math.MaxFloat64
	case s.denyCache.wouldRefuse(c):
		return 0
	case c.Plan.Kernel == kernel.Lock:
		return math.MaxFloat64
	case c.Plan.Kernel.Permits():
		return float64(c.Plan.Capacity) / float64(c.Plan.Span)
	default:
		return float64(l.Count) / float64(l.Period.Microseconds()) / float64(c.Cost)
	}
}

func (s *Store) takeSlot(ctx context.Context, p *slotPart, look bool) error {
	r := s.request(p.charges, look)
	r.slot = p.slot
	err := s.decide(ctx, s.nodes.batcher(p.slot), r, p.charges, p.receipts)
	if e, ok := errors.AsType[*ForeignState](err); ok {
		for i, place := range e.charges {
			e.charges[i] = p.places[place]
		}
	}
	return err
}

// giveBackFor is the timeout of giveBack.
const giveBackFor = 2 * time.Second

// giveBack undoes parts that were taken, and updates their receipts. If ctx ends, giveBack returns, and the work
// continues in the background. Units that cannot be given back, because the server is gone, stay counted until they
// expire.
func (s *Store) giveBack(ctx context.Context, parts []slotPart) error {
	if len(parts) == 0 {
		return nil
	}
	undo := make([]slotPart, len(parts))
	for i := range parts {
		undo[i] = parts[i].undo()
	}
	if !s.track() {
		return errClosed
	}
	done := make(chan error, 1)
	go func() {
		defer s.running.Done()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), giveBackFor)
		defer cancel()
		var failed error
		for i := range undo {
			if err := s.takeSlot(ctx, &undo[i], false); err != nil {
				failed = err
			}
		}
		done <- failed
	}()
	select {
	case err := <-done:
		for i := range parts {
			for j, r := range undo[i].receipts {
				if turn := &parts[i].charges[j]; turn.Plan.Queue && turn.Cost > 0 {
					continue // the caller keeps the turn: see sluice.Turns
				}
				r.Fits = parts[i].receipts[j].Fits
				parts[i].receipts[j] = r
			}
		}
		return err
	case <-ctx.Done():
		return &Error{Unknown, ctx.Err()}
	}
}

// undo returns the part that gives back what p has taken, as long as the units count: see [sluice.Charge.Undo]. Its
// charges have copies of their keys, because the caller may reuse the keys when its context has ended. A permit
// that was held before the Take is given back, too: a denied request holds none.
func (p *slotPart) undo() slotPart {
	u := slotPart{slot: p.slot, places: p.places, charges: slices.Clone(p.charges), receipts: make([]sluice.Receipt, len(p.receipts))}
	for i := range u.charges {
		u.charges[i] = p.charges[i].Undo(&p.receipts[i])
		u.charges[i].Key = strings.Clone(u.charges[i].Key)
	}
	return u
}
