package redisstore

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sluicehq/sluice"
)

// part is the charges of a Take that have the same slot.
type part struct {
	slot     uint16
	charges  []sluice.Charge
	receipts []sluice.Receipt
	places   []int // of the charges in the Take
	refunds  bool
}

// takeApart takes charges of several slots: part by part, and those before are given
// back where one refuses or fails.
func (s *Store) takeApart(ctx context.Context, charges []sluice.Charge, receipts []sluice.Receipt) error {
	parts := s.parts(charges)
	for i := range parts {
		err := s.takePart(ctx, &parts[i], false)
		if err == nil && sluice.Admitted(parts[i].charges, parts[i].receipts) {
			continue
		}
		if e := s.giveBack(ctx, parts[:i]); e != nil {
			// Whatever has stopped this part, those before may be charged.
			err = &Error{Unknown, fmt.Errorf("what was taken before could not be given back: %w", cmp.Or(err, e))}
		}
		for j := i + 1; j < len(parts) && err == nil; j++ {
			err = s.takePart(ctx, &parts[j], true)
		}
		if err != nil {
			return err
		}
		break
	}
	for _, p := range parts {
		for i, place := range p.places {
			receipts[place] = p.receipts[i]
		}
	}
	return nil
}

// parts groups charges by slot. Parts that give something back come last, because what
// is given back may be gone before it can be taken again.
func (s *Store) parts(charges []sluice.Charge) []part {
	var parts []part
	var name []byte
	for i := range charges {
		name = s.names.append(name[:0], &charges[i])
		at := slot(name)
		p := slices.IndexFunc(parts, func(p part) bool { return p.slot == at })
		if p < 0 {
			p = len(parts)
			parts = append(parts, part{slot: at})
		}
		parts[p].charges = append(parts[p].charges, charges[i])
		parts[p].receipts = append(parts[p].receipts, sluice.Receipt{})
		parts[p].places = append(parts[p].places, i)
		parts[p].refunds = parts[p].refunds || charges[i].Cost < 0
	}
	slices.SortStableFunc(parts, func(a, b part) int { return cmp.Compare(weight(a), weight(b)) })
	return parts
}

func weight(p part) int {
	if p.refunds {
		return 1
	}
	return 0
}

func (s *Store) takePart(ctx context.Context, p *part, look bool) error {
	r := s.request(p.charges, look)
	r.slot = p.slot
	return s.decide(ctx, s.nodes.lane(p.slot), r, p.charges, p.receipts)
}

// giveBackFor is how long it may take to give back.
const giveBackFor = 2 * time.Second

// giveBack undoes parts that were taken, and updates their receipts. It goes on when ctx
// ends, without the caller. What cannot be given back because the server has gone is
// lost: that refuses too much for a while.
func (s *Store) giveBack(ctx context.Context, parts []part) error {
	if len(parts) == 0 {
		return nil
	}
	undo := make([]part, len(parts))
	for i := range parts {
		undo[i] = parts[i].undo()
	}
	if !s.begin() {
		return errClosed
	}
	done := make(chan error, 1)
	go func() {
		defer s.flights.Done()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), giveBackFor)
		defer cancel()
		var failed error
		for i := range undo {
			if err := s.takePart(ctx, &undo[i], false); err != nil {
				failed = err
			}
		}
		done <- failed
	}()
	select {
	case err := <-done:
		for i := range parts {
			for j, r := range undo[i].receipts {
				r.Fits = parts[i].receipts[j].Fits
				parts[i].receipts[j] = r
			}
		}
		return err
	case <-ctx.Done():
		return &Error{Unknown, ctx.Err()}
	}
}

// undo returns the part that gives back what p has taken. Its charges keep copies of
// their keys, which the caller may reuse when its context has ended.
func (p *part) undo() part {
	u := part{slot: p.slot, charges: slices.Clone(p.charges), receipts: make([]sluice.Receipt, len(p.receipts))}
	for i := range u.charges {
		c := &u.charges[i]
		c.Key = strings.Clone(c.Key)
		if c.Shadow = true; p.receipts[i].Fits {
			c.Cost = -max(c.Cost, -anyCost)
		} else {
			c.Cost = 0
		}
	}
	return u
}
