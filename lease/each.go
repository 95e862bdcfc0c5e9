package lease

import (
	"context"
	"time"

	"github.com/sluicehq/sluice"
)

// TakeEach implements [sluice.EachTaker].
func (s *Store) TakeEach(ctx context.Context, calls []sluice.TakeCall) {
	s.takeEach(ctx, unbounded, calls)
}

// TakeEachWithin is TakeEach, but returns within the given wait. If the wait is 0, it decides only calls that need
// no server.
func (s *Store) TakeEachWithin(ctx context.Context, wait time.Duration, calls []sluice.TakeCall) {
	s.takeEach(ctx, max(0, wait), calls)
}

// takeEach decides calls by leases if possible, and passes the other calls on as one list.
func (s *Store) takeEach(ctx context.Context, wait time.Duration, calls []sluice.TakeCall) {
	var rest []sluice.TakeCall
	var indexes []int // for each of rest, its index in calls
	var joints []*joint
	for i := range calls {
		c := &calls[i]
		var j *joint
		one := len(c.Charges) == 1 && len(c.Receipts) == 1
		if one && s.takeFast(&c.Charges[0], &c.Receipts[0]) {
			c.Err = nil
			continue
		}
		call := sluice.TakeCall{Charges: c.Charges, Receipts: c.Receipts}
		if c.Err = nil; !concerned(c.Charges) {
			rest, indexes, joints = append(rest, call), append(indexes, i), append(joints, nil)
			continue
		}
		if c.Err = sluice.CheckCharges(c.Charges, c.Receipts); c.Err != nil {
			continue
		}
		switch {
		case s.drops(c.Charges), !s.leases(c.Charges):
		case one:
			if p := s.pool(&c.Charges[0]); p != nil && s.try(p, &c.Charges[0], &c.Receipts[0]) == nil && c.Receipts[0].Origin == sluice.ByLease {
				continue
			}
		default:
			j = s.beginJoint(c.Charges, c.Receipts)
			if call.Charges, call.Receipts = j.charges, j.receipts; len(j.charges) == 0 {
				s.release(j)
				continue
			}
		}
		rest, indexes, joints = append(rest, call), append(indexes, i), append(joints, j)
	}
	switch {
	case len(rest) == 0:
	case wait == unbounded:
		s.shared.TakeEach(ctx, rest)
	default:
		s.shared.TakeEachWithin(ctx, wait, rest)
	}
	for i, index := range indexes {
		c := &calls[index]
		c.Err = rest[i].Err
		if j := joints[i]; j != nil {
			s.endJoint(j, c.Receipts, c.Err)
			s.release(j)
		} else {
			s.drops(c.Charges) // see take
		}
	}
}
