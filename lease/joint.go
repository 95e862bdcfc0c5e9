package lease

import (
	"context"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/kernel"
)

// joint is a Take of several charges, some of which are decided by leases.
type joint struct {
	spent    []spending
	charges  []sluice.Charge // for the shared store
	receipts []sluice.Receipt
	indexes  []int   // for each of charges, its index in the Take
	pools    []*pool // for each of charges, its pool or nil
	sent     int64   // when the shared store was called, by the clock of the Store
	refused  bool    // whether a lease has refused a charge
}

// spending is a charge that was spent from a batch.
type spending struct {
	pool        *pool
	batch       *batch
	index       int
	first, cost int64
	at          int64
	left        int64
}

func (s *Store) release(j *joint) {
	clear(j.spent)
	clear(j.charges)
	clear(j.pools)
	j.spent, j.charges, j.receipts, j.indexes, j.pools = j.spent[:0], j.charges[:0], j.receipts[:0], j.indexes[:0], j.pools[:0]
	s.joints.Put(j)
}

// takeJoint spends leased units, and lets the shared store decide about the other charges. If the store refuses,
// the spent units are put back. If a lease refuses, nothing is charged to the store.
func (s *Store) takeJoint(ctx context.Context, wait time.Duration, charges []sluice.Charge, receipts []sluice.Receipt) error {
	j := s.beginJoint(charges, receipts)
	defer s.release(j)
	var err error
	if len(j.charges) > 0 {
		err = s.ask(ctx, wait, j.charges, j.receipts)
	}
	s.endJoint(j, receipts, err)
	return err
}

// beginJoint decides the leased charges. j.charges are the charges for the shared store.
func (s *Store) beginJoint(charges []sluice.Charge, receipts []sluice.Receipt) *joint {
	j := s.joints.Get().(*joint)
	guard := s.spendAll(j, charges, receipts)
	if j.refused = guard >= 0; j.refused {
		s.putBack(j, receipts)
	}
	if j.refused && len(j.charges) > 0 {
		// Because of one charge that never fits, the store charges nothing, and only reports the state of the other
		// keys.
		never := charges[guard]
		never.Cost = never.Plan.Capacity + 1
		j.charges, j.receipts = append(j.charges, never), append(j.receipts, sluice.Receipt{})
	}
	j.sent = s.now()
	return j
}

// endJoint records the decision of the shared store.
func (s *Store) endJoint(j *joint, receipts []sluice.Receipt, err error) {
	admitted := err == nil && sluice.Admitted(j.charges, j.receipts)
	if err == nil {
		back := s.now() + 1
		for i, index := range j.indexes {
			receipts[index] = j.receipts[i]
			if p := j.pools[i]; p != nil {
				cost := int64(0)
				if admitted {
					cost = j.charges[i].Cost
				}
				p.learn(cost, &j.receipts[i], j.sent, back)
				if !admitted {
					p.raiseWait(&j.charges[i], &receipts[index], back)
				}
			}
		}
	}
	if !j.refused && !admitted {
		s.putBack(j, receipts)
	}
}

// spendAll spends leased units, and lists in j the charges for the shared store. It returns the index of the first
// charge that a lease refuses, or -1.
func (s *Store) spendAll(j *joint, charges []sluice.Charge, receipts []sluice.Receipt) (guard int) {
	guard = -1
	for i := range charges {
		c := &charges[i]
		p := s.pool(c)
		if p != nil && s.spendOne(j, p, c, i, &receipts[i]) {
			if !receipts[i].Fits && !c.Shadow && guard < 0 {
				guard = i
			}
			continue
		}
		j.charges, j.receipts, j.indexes = append(j.charges, *c), append(j.receipts, sluice.Receipt{}), append(j.indexes, i)
		j.pools = append(j.pools, p)
	}
	return guard
}

// spendOne decides a charge by its pool. It reports false if the shared store has to decide.
func (s *Store) spendOne(j *joint, p *pool, c *sluice.Charge, index int, r *sluice.Receipt) bool {
	at := s.now()
	b := p.batch.Load()
	var first int64
	var low, ok bool
	if b != nil {
		first, low, ok = b.spend(c.Cost, b.latest(at))
	}
	if !ok {
		p.mu.Lock()
		if b, first, low, ok = p.spend(c.Cost, at); !ok {
			defer p.mu.Unlock()
			if p.refuses(c.Cost, at) && !p.dead.Load() {
				p.refuse(c, r, at)
				return true
			}
			p.refused += c.Cost
			n, _ := p.wants(at, 0)
			if room := p.room(at); room < c.Cost || room-n > c.Cost { // the reservation must leave the units that this charge needs
				s.fetchLocked(p, at, 0)
			}
			return false
		}
		p.mu.Unlock()
	}
	if low {
		s.renew(p)
	}
	left := b.n - first - c.Cost + p.queued.Load()
	b.admit(r, b.latest(at), left)
	j.spent = append(j.spent, spending{p, b, index, first, c.Cost, at, left})
	return true
}

// putBack puts spent units back, and corrects the remaining units in the receipts.
func (s *Store) putBack(j *joint, receipts []sluice.Receipt) {
	for i := range j.spent {
		x := &j.spent[i]
		x.pool.putBack(x.batch, x.first, x.cost, x.at)
		x.batch.admit(&receipts[x.index], x.batch.latest(x.at), x.left+x.cost)
	}
}

// raiseWait raises the wait in the receipt of a charge that the shared store has denied, if this process will deny the
// charge for longer than the receipt shows.
func (p *pool) raiseWait(c *sluice.Charge, r *sluice.Receipt, at int64) {
	if r.Fits || p.plan.Kernel != kernel.Meter || r.Origin != sluice.ByStore {
		return
	}
	p.mu.Lock()
	wait := p.again - at
	if p.fetching != nil { // the reservation may bring fewer units than the pool wants
		wait = max(wait, p.horizon/turns+p.latency)
	}
	p.mu.Unlock()
	if wait <= 0 || p.dead.Load() {
		return
	}
	if longer := refused(p.plan, c.Cost, r.Now, wait); p.plan.Decide(c.Cost, longer).RetryAfter > p.plan.Decide(c.Cost, *r).RetryAfter {
		longer.Origin = r.Origin
		*r = longer
	}
}
