package storetest

import (
	"time"

	"github.com/sluicehq/sluice"
)

// Decide returns the same decision as [sluice.Plan.Decide], but finds it by search: it tries which costs would fit
// in the account, and when. Call it directly after the TakeAt of this one charge that returned r.
func (m *Model) Decide(c sluice.Charge, r sluice.Receipt) sluice.Decision {
	m.mu.Lock()
	defer m.mu.Unlock()
	a, t := m.open(c)
	if permits, ok := a.(*permitsAccount); ok {
		return permits.decide(t, c, r)
	}
	s := search{a, t, r.Now}
	tick := r.Now / t.tick
	d := sluice.Decision{Allowed: r.Fits, Now: r.Now, Origin: r.Origin}
	d.Remaining = least(t.capacity, func(n int64) bool { return !a.fits(t, tick, n+1) })
	d.ResetAfter = s.first(func(tick int64) bool { return a.idle(t, tick) })
	need := int64(1)
	if !r.Fits {
		need = c.Cost
	}
	switch {
	case need > t.capacity:
		d.RetryAfter = sluice.Never
	case d.Remaining < need:
		d.RetryAfter = s.first(func(tick int64) bool { return a.fits(t, tick, need) })
	}
	if _, lock := a.(*lockAccount); lock {
		d.Locked = d.Remaining == 0
	} else if c.Plan.Limit.Algorithm == sluice.LeakyBucket && r.Fits {
		ahead, _ := a.(*meterAccount).used(t, tick)
		ahead.Sub(ahead, integer(max(0, c.Cost)))
		d.Delay = s.first(func(later int64) bool {
			drained := integer(later - tick)
			return drained.Mul(drained, t.rate).Cmp(ahead) >= 0
		})
		if ahead.Sign() > 0 { // the level that drains in the same tick, but after the turn
			drained := integer((r.Now+d.Delay.Microseconds())/t.tick - tick)
			early := drained.Sub(drained.Mul(drained, t.rate), ahead)
			d.Early = early.Mul(early, integer(c.Plan.Unit)).Num().Int64()
		}
	}
	return d
}

// search finds the first moment at which a condition is true, if the condition stays true from then on.
type search struct {
	account account
	terms   *terms
	now     int64
}

// first returns the time from now to the beginning of the first tick for which ok is true.
func (s search) first(ok func(tick int64) bool) time.Duration {
	tick := s.now / s.terms.tick
	n := least(1<<52, func(n int64) bool { return ok(tick + n) })
	return time.Duration(max(0, (tick+n)*s.terms.tick-s.now)) * time.Microsecond
}

// least returns the smallest number from 0 to n-1 for which ok is true, or n if ok is false for all of them. It is
// sort.Search for int64, because int may have 32 bits.
func least(n int64, ok func(int64) bool) int64 {
	from := int64(0)
	for from < n {
		if middle := from + (n-from)/2; ok(middle) {
			n = middle
		} else {
			from = middle + 1
		}
	}
	return from
}
