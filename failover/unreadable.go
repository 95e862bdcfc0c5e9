package failover

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/sluicehq/sluice"
)

// Unreadable is an error of a shared store that answers, and has under the keys of some
// charges what it cannot read. Unreadable returns the places of those in the Take. Nothing
// was charged.
type Unreadable interface {
	error
	Unreadable() []int
}

func unreadable(err error) (places []int, ok bool) {
	if e, is := errors.AsType[Unreadable](err); is {
		places = e.Unreadable()
	}
	return places, len(places) > 0
}

// portion is some of the charges of a Take.
type portion struct {
	charges  []sluice.Charge
	receipts []sluice.Receipt
	places   []int // in the Take, ascending
}

func (p *portion) add(c sluice.Charge, place int) {
	p.charges = append(p.charges, c)
	p.receipts = append(p.receipts, sluice.Receipt{})
	p.places = append(p.places, place)
}

// withoutUnreadable takes where the shared store has said that it cannot read some charges.
// Those are decided locally, each by its OnError, and the others by the shared store: all
// of them or none. The error is that of the shared store about the others.
func (s *Store) withoutUnreadable(ctx context.Context, err error, charges []sluice.Charge, receipts []sluice.Receipt) error {
	s.count.unreadable.Add(1)
	var odd, rest portion
	for i, c := range charges {
		rest.add(c, i)
	}
	for places, more := unreadable(err); more; places, more = unreadable(err) {
		s.complain(err)
		odd, rest = split(odd, rest, places)
		if err = s.takeBoth(ctx, &odd, &rest); err == nil {
			break
		}
	}
	for _, p := range []portion{odd, rest} {
		for i, place := range p.places {
			receipts[place] = p.receipts[i]
		}
	}
	return err
}

// split moves the charges at some places of rest to odd.
func split(odd, rest portion, places []int) (portion, portion) {
	var left portion
	for i, c := range rest.charges {
		if slices.Contains(places, i) {
			odd.add(c, rest.places[i])
		} else {
			left.add(c, rest.places[i])
		}
	}
	return odd, left
}

// takeBoth takes odd from the stand-in and rest from the shared store. It gives back the
// first if the second refuses or fails, and only looks at the second if the first refuses.
func (s *Store) takeBoth(ctx context.Context, odd, rest *portion) error {
	if err := s.decide(ctx, odd.charges, odd.receipts, false); err != nil {
		return err
	}
	admitted := sluice.Admitted(odd.charges, odd.receipts)
	if len(rest.charges) == 0 {
		return nil
	}
	charges := slices.Clone(rest.charges)
	for i := range charges {
		if !admitted {
			charges[i].Cost = 0
		}
	}
	err := s.shared.TakeWithin(ctx, s.deadline, charges, rest.receipts)
	if admitted && (err != nil || !sluice.Admitted(charges, rest.receipts)) {
		if e := s.undo(ctx, odd); e != nil {
			return e
		}
	}
	return err
}

// undo gives back to the stand-in what p has taken.
func (s *Store) undo(ctx context.Context, p *portion) error {
	charges, receipts := slices.Clone(p.charges), make([]sluice.Receipt, len(p.receipts))
	for i := range charges {
		c := &charges[i]
		if c.Shadow = true; p.receipts[i].Fits {
			c.Cost = min(0, -c.Cost)
		} else {
			c.Cost = 0
		}
	}
	if err := s.decide(context.WithoutCancel(ctx), charges, receipts, false); err != nil {
		return err
	}
	for i := range receipts {
		receipts[i].Fits = p.receipts[i].Fits
	}
	copy(p.receipts, receipts)
	return nil
}

const (
	complainEvery = time.Minute
	maxComplaints = 10 // in that time
)

// complaints bounds what the log is told about keys that cannot be read: each of a few once
// in a while, however often they are asked for.
type complaints struct {
	mu     sync.Mutex
	began  time.Time
	told   map[string]bool
	untold int
}

// worth reports whether something is to be logged, and how much was not since the last line.
func (c *complaints) worth(text string) (untold int, yes bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := time.Now(); c.told == nil || now.Sub(c.began) >= complainEvery {
		c.began, c.told = now, map[string]bool{}
	}
	if c.told[text] || len(c.told) >= maxComplaints {
		c.untold++
		return 0, false
	}
	c.told[text] = true
	untold, c.untold = c.untold, 0
	return untold, true
}

// complain logs that the shared store cannot read a key, which err names.
func (s *Store) complain(err error) {
	if untold, yes := s.complaints.worth(err.Error()); yes {
		s.log.Warn("the shared store holds something else under a key: on_error decides for it", "error", err, "not_logged_since", untold)
	}
}
