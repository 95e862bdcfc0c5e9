package failover

import (
	"context"
	"time"

	"github.com/sluicehq/sluice"
)

const (
	writeBackPerSecond = 500 // keys
	writeBackEvery     = 100 * time.Millisecond
	writeBackBatch     = writeBackPerSecond * int(writeBackEvery) / int(time.Second)
	writeBackDeadline  = time.Second
	writeBackLook      = 40 * writeBackBatch // entries looked at in a turn
	writeBackTries     = 3

	heartbeatEvery = time.Second
	maxInstances   = 1 << 10
)

// debt is what a key has consumed without the shared store.
type debt struct {
	key   string
	plan  *sluice.Plan
	units int64
}

// writeBack charges the shared store with what was decided without it.
func (s *Store) writeBack() {
	tick := time.NewTicker(writeBackEvery)
	defer tick.Stop()
	var debts []debt // claimed and not written yet
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-tick.C:
		}
		if len(debts) == 0 {
			debts = s.owed(s.claim())
		}
		if len(debts) == 0 || s.settle(debts) {
			debts = nil
			s.ledger.settled()
		}
	}
}

// claim takes entries whose shard answers out of the ledger: up to a batch of those that
// owe something. It begins anywhere, so that all have their turn. While a shard is
// failing and has not been given up yet, its shares must not begin anew.
func (s *Store) claim() (claimed []*entry) {
	l := &s.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	looked := 0
	for id, e := range l.owers {
		if looked++; looked > writeBackLook || len(claimed) == writeBackBatch {
			break
		}
		if !e.shard.closed.Load() || e.shard.row.Load() > 0 {
			continue
		}
		delete(l.owers, id)
		if e.owes.Load() {
			claimed = append(claimed, e)
		}
	}
	l.claimed = len(claimed)
	return claimed
}

func (l *ledger) settled() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.claimed = 0
}

// owing returns the number of keys that were decided locally and are not settled yet.
func (l *ledger) owing() int {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return len(l.owers) + l.claimed
}

// owed asks the stand-in for the debts: what a share has used above its ghost, and has
// not got back by time since. That is at most one share of a burst.
func (s *Store) owed(entries []*entry) (debts []debt) {
	for _, e := range entries {
		charges := [2]sluice.Charge{{Key: e.share, Plan: e.plan}, {Key: e.ghost, Plan: e.plan}}
		var receipts [2]sluice.Receipt
		if s.local.Take(s.ctx, charges[:], receipts[:]) != nil {
			continue
		}
		share := e.plan.Decide(0, receipts[0]).Remaining
		ghost := e.plan.Decide(0, receipts[1]).Remaining
		_, unit := e.shareOf(e.of)
		if units := (ghost - share + unit - 1) / unit; units > 0 {
			debts = append(debts, debt{e.key, e.of, min(units, e.of.Capacity)})
		}
	}
	return debts
}

// settle writes debts to the shared store, and reports whether they are done with: they
// are kept only where it is certain that nothing was charged. A debt that does not fit
// is cut to what does, since a charge is written as a whole or not at all.
func (s *Store) settle(debts []debt) bool {
	ctx, cancel := context.WithTimeout(s.ctx, writeBackDeadline)
	defer cancel()
	charges := make([]sluice.Charge, 0, len(debts))
	for _, d := range debts {
		charges = append(charges, sluice.Charge{Key: d.key, Plan: d.plan, Cost: d.units, Shadow: true})
	}
	receipts := make([]sluice.Receipt, len(charges))
	for try := 0; try < writeBackTries && len(charges) > 0; try++ {
		if err := s.shared.Take(ctx, charges, receipts[:len(charges)]); err != nil {
			return try > 0 || !notCharged(err)
		}
		cut := charges[:0]
		for i, c := range charges {
			if receipts[i].Fits {
				s.count.writtenBack.Add(1)
				s.seen.put(&c, receipts[i])
			} else if c.Cost = c.Plan.Decide(0, receipts[i]).Remaining; c.Cost > 0 {
				cut = append(cut, c)
			}
		}
		charges = cut
	}
	return true
}

// beat keeps the number of instances up to date. An instance without traffic learns by
// it, too, that the shared store is away.
func (s *Store) beat() {
	for s.ctx.Err() == nil {
		ctx, cancel := context.WithTimeout(s.ctx, writeBackDeadline)
		n, err := s.beater.Heartbeat(ctx, s.id)
		cancel()
		switch {
		case err == nil:
			s.instances.Store(int64(min(max(1, n), maxInstances)))
		case s.ctx.Err() == nil:
			suspect(*s.shards.Load())
		}
		pause(s.ctx, jittered(heartbeatEvery))
	}
}
