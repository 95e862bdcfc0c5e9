package failover

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/sluicehq/sluice"
)

// Unreadable is an error of a shared store that answers, but cannot read the values of some keys. Its method
// Unreadable returns the indexes of the charges of these keys, in ascending order. Nothing was charged.
type Unreadable interface {
	error
	Unreadable() []int
}

func unreadable(err error) (indexes []int, ok bool) {
	if e, is := errors.AsType[Unreadable](err); is {
		indexes = e.Unreadable()
	}
	return indexes, len(indexes) > 0
}

// portion has some of the charges of a Take.
type portion struct {
	charges  []sluice.Charge
	receipts []sluice.Receipt
	indexes  []int // the index of each charge in the Take, ascending
}

func (p *portion) add(c sluice.Charge, index int) {
	p.charges = append(p.charges, c)
	p.receipts = append(p.receipts, sluice.Receipt{})
	p.indexes = append(p.indexes, index)
}

// withoutUnreadable repeats a Take for which the shared store has reported unreadable keys. The charges of these
// keys are decided locally, each by its OnError. The shared store decides the other charges; withoutUnreadable
// returns the store's error for these.
func (s *Store) withoutUnreadable(ctx context.Context, err error, charges []sluice.Charge, receipts []sluice.Receipt) error {
	s.count.unreadable.Add(1)
	var foreign, rest portion
	for i, c := range charges {
		rest.add(c, i)
	}
	for indexes, more := unreadable(err); more; indexes, more = unreadable(err) {
		s.complain(err)
		foreign, rest = moveForeign(foreign, rest, indexes)
		if err = s.takeBoth(ctx, &foreign, &rest); err == nil {
			break
		}
	}
	for _, p := range []portion{foreign, rest} {
		for i, index := range p.indexes {
			receipts[index] = p.receipts[i]
		}
	}
	return err
}

// moveForeign moves the charges at the given indexes of rest to foreign.
func moveForeign(foreign, rest portion, indexes []int) (portion, portion) {
	var left portion
	for i, c := range rest.charges {
		if slices.Contains(indexes, i) {
			foreign.add(c, rest.indexes[i])
		} else {
			left.add(c, rest.indexes[i])
		}
	}
	return foreign, left
}

// takeBoth takes foreign from the fallback and rest from the shared store. If the shared store denies or fails,
// takeBoth gives foreign back; if the fallback denies, it takes nothing from the shared store.
func (s *Store) takeBoth(ctx context.Context, foreign, rest *portion) error {
	if err := s.decideLocally(ctx, foreign.charges, foreign.receipts, false); err != nil {
		return err
	}
	admitted := sluice.Admitted(foreign.charges, foreign.receipts)
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
		if e := s.undo(ctx, foreign); e != nil {
			return e
		}
	}
	return err
}

// undo gives back the charges of p to the fallback.
func (s *Store) undo(ctx context.Context, p *portion) error {
	charges, receipts := slices.Clone(p.charges), make([]sluice.Receipt, len(p.receipts))
	for i := range charges {
		charges[i] = p.charges[i].Undo(&p.receipts[i])
	}
	if err := s.decideLocally(context.WithoutCancel(ctx), charges, receipts, false); err != nil {
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

// complaints limits the log lines about unreadable keys: in each complainEvery, it lets a line pass only once, and at
// most maxComplaints lines.
type complaints struct {
	mu      sync.Mutex
	began   time.Time
	logged  map[string]bool
	skipped int
}

// shouldLog reports whether to log a line, and how many lines were skipped since the last one.
func (c *complaints) shouldLog(text string) (skipped int, yes bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := time.Now(); c.logged == nil || now.Sub(c.began) >= complainEvery {
		c.began, c.logged = now, map[string]bool{}
	}
	if c.logged[text] || len(c.logged) >= maxComplaints {
		c.skipped++
		return 0, false
	}
	c.logged[text] = true
	skipped, c.skipped = c.skipped, 0
	return skipped, true
}

// complain logs that the shared store cannot read a key, which err names.
func (s *Store) complain(err error) {
	if skipped, yes := s.complaints.shouldLog(err.Error()); yes {
		s.log.Warn("a key in the shared store contains foreign data: on_error decides for that key", "error", err, "not_logged_since", skipped)
	}
}
