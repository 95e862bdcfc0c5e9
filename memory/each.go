package memory

import (
	"context"

	"github.com/sluicehq/sluice"
)

// atOnce is the number of Takes that share a reading of the clock and fetch their states together.
const atOnce = 32

// TakeEach implements [sluice.EachTaker], by the store's own clock as [Store.Take] does. Takes of one charge are
// the cheapest, because they share readings of the clock.
func (s *Store) TakeEach(_ context.Context, calls []sluice.TakeCall) {
	for len(calls) > 0 {
		n := min(len(calls), atOnce)
		s.takeGroup(calls[:n])
		calls = calls[n:]
	}
}

// place has the two buckets that can contain the state of a charge.
type place struct {
	layout        *layout // nil if takeClockFirst cannot take the charge
	hash          uint64
	first, second *bucket
}

// takeGroup has the processor fetch all states while it reads the clock. It tries to take each charge at that time:
// see takeClockFirst.
func (s *Store) takeGroup(calls []sluice.TakeCall) {
	var places [atOnce]place
	for i := range calls {
		places[i] = s.placeOf(&calls[i])
	}
	now := s.now()
	for i := range calls {
		c, p := &calls[i], &places[i]
		if p.layout == nil {
			c.Err = s.take(own, c.Charges, c.Receipts)
			now = s.now() // times never go back from one receipt to the next
			continue
		}
		c.Err = nil
		now = s.takePlaced(now, p, &c.Charges[0], &c.Receipts[0])
	}
}

// takePlaced takes a charge with a place, and returns the time at which it was taken.
func (s *Store) takePlaced(now int64, p *place, c *sluice.Charge, r *sluice.Receipt) int64 {
	l, tag := p.layout, p.layout.tag(p.hash)
	if !s.takeClockFirst(now, p.first, p.second, l, tag, c.Cost, r) &&
		!s.takeStateFirst(own, p.hash>>stripeShift, l, tag, c.Cost, r) {
		s.takeOne(own, p.hash, c, r)
	}
	return r.Now
}

func (s *Store) placeOf(call *sluice.TakeCall) (p place) {
	if len(call.Charges) != 1 || len(call.Receipts) != 1 {
		return p
	}
	c := &call.Charges[0]
	if c.Plan == nil || c.Plan.Tick < 1 {
		return p
	}
	if l := s.plans.find(c.Plan); l != nil && l.fits && 0 < c.Cost && c.Cost <= l.most && !c.Owe {
		p.layout, p.hash = l, s.hash(c)
		p.first, p.second = s.tables.buckets(p.hash>>stripeShift, l.tag(p.hash))
		prefetch(p.first, p.second)
	}
	return p
}
