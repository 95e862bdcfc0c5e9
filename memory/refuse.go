package memory

import (
	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/kernel"
)

// A store with RefuseNew refuses a new key rather than evict a state that has used more than half of its limit. It
// checks this before it decides.

const (
	// New records do not use the last 1/spare of the overflow's bytes, which is left for records that grow.
	spare = 16
	// crowdedFor is the time in microseconds for which a failed search for room is not repeated.
	crowdedFor = 10_000
)

// crowded reports whether a charge can need room in the overflow for a new key while the overflow is full. It makes
// room if it can. The caller has no stripe locked.
func (s *Store) crowded(now int64, charges []sluice.Charge) bool {
	most := s.overflow.max - s.overflow.max/spare
	if s.overflow.bytes.Load() <= most || !s.anyOverflows(charges) {
		return false
	}
	if left := s.overflow.crowdedUntil.Load() - now; 0 < left && left <= crowdedFor {
		return true
	}
	if s.evictOverflow(most, overHalf, now) {
		return false
	}
	s.overflow.crowdedUntil.Store(now + crowdedFor)
	return true
}

func (s *Store) anyOverflows(charges []sluice.Charge) bool {
	for i := range charges {
		if p := charges[i].Plan; changes(p) || p.Kernel != kernel.Lock && !s.plans.layout(p).fits {
			return true
		}
	}
	return false
}

// refuseNew makes the store deny a charge of a new key for which it has no room: it gives the op a used-up state,
// which is not stored.
func (s *Store) refuseNew(o *op, c *sluice.Charge, crowded bool, now int64) {
	if o.cell != nil || o.record != nil || o.twin || c.Cost <= 0 || c.Owe {
		return
	}
	p := c.Plan
	if p.Kernel == kernel.Lock {
		return // a key without a penalty needs no room
	}
	beside := changes(p) || !o.layout.fits
	if beside && !crowded || !beside && !s.full(o.stripe, o.layout.tag(o.hash), now) {
		return
	}
	s.refused.Add(1)
	switch {
	case p.Kernel.Permits():
		o.full = true
		return
	case p.Kernel.Log():
		o.record = &record{plan: p}
		o.record.log.Step(&p.Plan, now, p.Capacity)
		return
	}
	var r kernel.Receipt
	o.old = p.Step(kernel.State{}, now, p.Capacity, &r)
}
