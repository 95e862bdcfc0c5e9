package failover

import (
	"time"

	"github.com/sluicehq/sluice"
)

const (
	writeBackPerSecond = 500 // keys
	writeBackEvery     = 100 * time.Millisecond
	writeBackBatch     = int(writeBackPerSecond * writeBackEvery / time.Second)
	writeBackDeadline  = time.Second
	writeBackLook      = 40 * writeBackBatch // entries examined in a round
	writeBackTries     = 3
)

// debt has the units that a key has used and that the shared store does not know of.
type debt struct {
	*entry
	units int64 // the units that fit the limit
	owed  int64 // owed units beyond the limit, which the shared store has to charge even if they do not fit
}

// any reports whether the debt has units to be written back.
func (d *debt) any() bool { return d.units > 0 || d.owed > 0 }

// writeBack charges the shared store with local decisions. Each debt is written on its own goroutine, so that a
// call that hangs does not delay the others.
func (s *Store) writeBack() {
	tick := time.NewTicker(writeBackEvery)
	defer tick.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-tick.C:
		}
		for _, d := range s.debts(writeBackBatch) {
			s.running.Go(func() { s.repay(d) })
		}
	}
}

// repay writes a debt. Then it removes the entry, so that the shared store decides the key again, and writes the
// units that the key has used in the meantime.
func (s *Store) repay(d debt) {
	if !s.write(d) {
		s.ledger.mu.Lock()
		d.writing = false
		s.ledger.mu.Unlock()
		return
	}
	if d = s.settle(d); d.any() {
		s.write(d)
	}
}

// debts returns up to n debts to shards that answer, and removes entries without a debt. If repay has written twice for
// a key, the second write counts toward the n of a later round. debts relies on the random order of the map to reach
// all entries. It skips a shard that fails although its circuit is closed, because the shard's entries must not start
// again with a new allowance.
func (s *Store) debts(n int) (debts []debt) {
	l := &s.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	n, l.extra = max(0, n-l.extra), max(0, l.extra-n)
	looked := 0
	for id, e := range l.entries {
		if looked++; looked > writeBackLook || len(debts) == n {
			break
		}
		if e.writing || !e.shard.inUse.Load() || e.shard.failuresInRow.Load() > 0 {
			continue
		}
		switch d := s.owed(e); {
		case d.any():
			e.writing = true
			debts = append(debts, d)
		case s.unanswered(e):
			l.settled(e)
		default:
			l.forget(id, e)
		}
	}
	return debts
}

// unanswered reports whether e has to stay because it is not empty, was charged for a call with an unknown outcome,
// and the shared store has not answered for its key since that call. A new entry would have a new share, which would
// allow another burst.
func (s *Store) unanswered(e *entry) bool {
	at := time.Duration(e.unknownAt.Load())
	return at > 0 && !e.empty(time.Now().UnixMicro()) && !s.recent.after(&sluice.Charge{Key: e.key, Plan: e.limit}, at)
}

// owed computes the debt of an entry from its two states in the fallback. The units of the debt are those by which the
// use of the share exceeds the use of the baseline, at most what the share lets pass at once. The owed units of the
// debt are those by which the share owes more than the baseline.
func (s *Store) owed(e *entry) debt {
	if !e.pending.Load() {
		return debt{entry: e}
	}
	plan := e.share.Plan
	charges := [2]sluice.Charge{{Key: e.shareKey, Plan: plan}, {Key: e.baselineKey, Plan: plan}}
	var receipts [2]sluice.Receipt
	if s.local.Take(s.ctx, charges[:], receipts[:]) != nil {
		return debt{entry: e}
	}
	above := max(0, plan.Owed(&receipts[0].Receipt)-plan.Owed(&receipts[1].Receipt))
	return debt{e, e.share.Ahead(receipts[0], receipts[1]), e.share.Units(above)}
}

// write charges the shared store with a debt, and reports whether the debt is settled. The debt is settled unless
// it is certain that the store charged nothing. write charges at most the units that fit now: a charge is all or
// nothing, and an outage in which every request passed must not lock out a key. d.owed is charged to the shared
// store as owed units.
func (s *Store) write(d debt) bool {
	end := time.Now().Add(writeBackDeadline)
	// If a shard hangs, suspect it early, so that few debts are sent without an answer.
	slow := time.AfterFunc(s.deadline, d.shard.suspect)
	defer slow.Stop()
	charges := [1]sluice.Charge{{Key: d.key, Plan: d.limit, Cost: d.units, Shadow: true, Consistency: d.consistency}}
	if d.owed > 0 {
		charges[0].Cost = 0 // first ask how many units fit
	}
	var receipts [1]sluice.Receipt
	for range writeBackTries {
		if err := s.shared.TakeWithin(s.ctx, time.Until(end), charges[:], receipts[:]); err != nil {
			if _, odd := unreadable(err); odd {
				s.complain(err)
				return true // the debt of an unreadable key is dropped
			}
			d.shard.suspect()
			if s.ctx.Err() == nil {
				s.logFailure([]*shard{d.shard}, err)
			}
			return !notCharged(err)
		}
		s.recent.put(&charges[0], receipts[0])
		room := d.limit.Decide(0, receipts[0]).Remaining
		switch {
		case d.owed > 0 && charges[0].Cost == 0:
			charges[0].Cost, charges[0].Owe = min(max(0, d.units), room)+d.owed, true
			continue
		case receipts[0].Fits, charges[0].Owe:
			s.count.writtenBack.Add(1)
			return true
		case room == 0:
			return true
		}
		charges[0].Cost = room
	}
	return true
}

// settle removes the entry of a written debt, and returns the debt that the key has incurred since.
func (s *Store) settle(d debt) debt {
	l := &s.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	now := s.owed(d.entry)
	now.units, now.owed = now.units-d.units, now.owed-d.owed
	l.forget(stateID{d.key, d.limit.Fingerprint}, d.entry)
	if now.any() {
		l.extra++
	}
	return now
}
