package fleet

import (
	"context"
	"math"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/replay"
)

// Leases is what it has cost and saved that instances lease; nil if they do not.
func (s *Store) Leases() *replay.Leases {
	if s.leases.Decisions == 0 {
		return nil
	}
	return &s.leases
}

// lessor is the shared store of a fleet that leases.
type lessor Store

// TakeAt implements [Shared].
func (s *lessor) TakeAt(ctx context.Context, now int64, charges []sluice.Charge, receipts []sluice.Receipt) error {
	if s.c.Away != nil && s.c.Away(now) {
		return errAway
	}
	s.leases.Calls++
	return s.shared.TakeAt(ctx, now, charges, receipts)
}

// takeLeased has an instance decide by what it has leased.
func (s *Store) takeLeased(ctx context.Context, n *node, now int64, charges []sluice.Charge, receipts []sluice.Receipt) error {
	if err := n.lease.TakeAt(ctx, now, charges, receipts); err != nil {
		return err
	}
	s.due = min(s.due, n.lease.Due())
	s.leases.Decisions++
	return s.check(ctx, now, charges, receipts)
}

// advance has the instance that is the first to be due by now do what it does by itself.
func (s *Store) advance(now int64) {
	var first Leaser
	s.due = math.MaxInt64
	for i := range s.nodes {
		l := s.nodes[i].lease
		if at := l.Due(); at < s.due {
			first, s.due = l, at
		}
	}
	if s.due > now {
		return
	}
	first.Advance(s.due)
}

// check has a store count exactly what has passed. Whatever does not fit there is above a limit.
func (s *Store) check(ctx context.Context, now int64, charges []sluice.Charge, receipts []sluice.Receipt) error {
	if !sluice.Admitted(charges, receipts) {
		return nil
	}
	for i := range charges {
		c := charges[i : i+1]
		if !receipts[i].Fits || c[0].Cost == 0 || c[0].Cost > 0 && c[0].Consistency != sluice.Leased {
			continue
		}
		var r [1]sluice.Receipt
		if err := s.audit.TakeAt(ctx, now, c, r[:]); err != nil {
			return err
		}
		if !r[0].Fits {
			s.leases.Above++
		}
	}
	return nil
}
