package failover

import (
	"context"
	"encoding/binary"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluicehq/sluice"
)

const (
	maxEntries = 1 << 16
	maxKey     = 1 << 10 // longer keys are counted, but neither seeded nor written back
)

// ledger knows the keys that were decided locally and not written back yet. Decisions
// hold the lock, most of them for reading only, while they charge the stand-in, so that
// an entry is written back with all of its charges.
type ledger struct {
	mu     sync.RWMutex
	owers  map[account]*entry
	serial uint64       // of the last entry
	swept  int64        // when full has looked for room, in µs
	owing  atomic.Int64 // entries that hold
	late   int          // debts written beyond those that had their turn
}

// account is the identity of a state.
type account struct {
	key         string
	fingerprint uint64
}

// entry is a key during one outage. In the stand-in it has two states that begin alike,
// with what the shared store had counted: the share, which decides, and the ghost, which
// is only charged with what the shared store may have been charged with as well. So the
// difference between them, at any time, is what the shared store does not know.
type entry struct {
	key, share, ghost string
	shard             *shard
	of, plan          *sluice.Plan // the limit, and what counts the share: see divided
	n                 int64        // by how many the limit is divided
	touched           atomic.Int64 // µs since the epoch
	holds             atomic.Bool  // the key back from the shared store, after an outage
	paying            bool         // its debt is on its way; under the ledger's lock

	// asked is when, as seen counts time, it was last charged with what the shared store
	// may not have been charged with, since there was no answer.
	asked atomic.Int64
}

// batch is what the stand-in is asked for one decision.
type batch struct {
	charges  []sluice.Charge
	receipts []sluice.Receipt
	entries  []*entry
}

// decide answers without the shared store, for it or for some charges. If owed, the charges are certain not to have
// reached it, and are written back later.
func (s *Store) decide(ctx context.Context, charges []sluice.Charge, receipts []sluice.Receipt, owed bool) error {
	now := time.Now().UnixMicro()
	if denied(charges) {
		for i := range charges {
			receipts[i] = sluice.Receipt{Now: now, Fits: !denies(&charges[i]), Local: true}
		}
		return nil
	}
	b := s.batches.Get().(*batch)
	defer s.release(b)
	l := &s.ledger
	l.mu.RLock()
	if l.find(b, charges) {
		defer l.mu.RUnlock()
	} else {
		l.mu.RUnlock()
		l.mu.Lock()
		defer l.mu.Unlock()
		if err := s.open(ctx, b, charges, now); err != nil {
			return err
		}
	}
	s.fill(b, charges, now, owed)
	if err := s.local.Take(ctx, b.charges, b.receipts); err != nil {
		return err
	}
	b.read(charges, receipts)
	return nil
}

func denies(c *sluice.Charge) bool { return c.OnError == sluice.Deny && c.Cost >= 0 }

// denied reports whether a charge refuses the request because the shared store is away.
func denied(charges []sluice.Charge) bool {
	for i := range charges {
		if denies(&charges[i]) && !charges[i].Shadow {
			return true
		}
	}
	return false
}

func (s *Store) release(b *batch) {
	clear(b.charges)
	clear(b.entries)
	s.batches.Put(b)
}

// find fills b with the entries of the charges, and reports whether all are there.
func (l *ledger) find(b *batch, charges []sluice.Charge) bool {
	b.entries = b.entries[:0]
	for i := range charges {
		e := l.owers[account{charges[i].Key, charges[i].Plan.Fingerprint}]
		if e == nil {
			return false
		}
		b.entries = append(b.entries, e)
	}
	return true
}

// holds reports whether a charge's key waits for its debt to be written back.
func (l *ledger) holds(charges []sluice.Charge) bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	for i := range charges {
		if e := l.owers[account{charges[i].Key, charges[i].Plan.Fingerprint}]; e != nil && e.holds.Load() {
			return true
		}
	}
	return false
}

// open is find that makes the entries that are missing and seeds their shares. A key
// that cannot have one gets an entry that is used once and forgotten.
func (s *Store) open(ctx context.Context, b *batch, charges []sluice.Charge, now int64) error {
	l := &s.ledger
	b.entries = b.entries[:0]
	for i := range charges {
		c := &charges[i]
		id := account{c.Key, c.Plan.Fingerprint}
		e := l.owers[id]
		switch {
		case e != nil:
		case len(c.Key) > maxKey || l.full(now):
			e = &entry{share: "k" + c.Key, ghost: "o" + c.Key, n: s.instances.Load()}
		default:
			e = s.newEntry(c)
			if err := s.seed(ctx, e, c); err != nil {
				return err
			}
			id.key = e.key
			l.owers[id] = e
		}
		b.entries = append(b.entries, e)
	}
	return nil
}

// full reports whether there is no room, after forgetting what says nothing any more.
func (l *ledger) full(now int64) bool {
	if len(l.owers) >= maxEntries && now-l.swept > time.Second.Microseconds() {
		l.swept = now
		for id, e := range l.owers {
			if e.empty(now) {
				l.forget(id, e)
			}
		}
	}
	return len(l.owers) >= maxEntries
}

// forget ends an entry. l.mu is held.
func (l *ledger) forget(id account, e *entry) {
	if l.owers[id] != e {
		return // full was first
	}
	delete(l.owers, id)
	l.settled(e)
}

// settled says that e has nothing to be written back. l.mu is held.
func (l *ledger) settled(e *entry) {
	if e.holds.CompareAndSwap(true, false) {
		l.owing.Add(-1)
	}
}

// empty reports whether the states of e say nothing any more at now, in µs.
func (e *entry) empty(now int64) bool { return e.touched.Load()+life(e.plan) < now }

// life returns the microseconds after which any state of p is empty.
func life(p *sluice.Plan) int64 {
	if p.Kernel == sluice.Meter {
		return (p.Size/p.Drain + 1) * p.Tick
	}
	return 2 * p.Span * p.Tick
}

func (s *Store) newEntry(c *sluice.Charge) *entry {
	s.ledger.serial++
	id := binary.BigEndian.AppendUint64(nil, s.ledger.serial)
	names := "s" + string(id) + "g" + string(id)
	e := &entry{
		key:   strings.Clone(c.Key),
		share: names[:9],
		ghost: names[9:],
		shard: (*s.shards.Load())[0],
		n:     s.instances.Load(),
	}
	if s.sharding != nil {
		var buf [1]*shard
		e.shard = s.touched(buf[:0], []sluice.Charge{*c})[0]
	}
	e.of, e.plan = c.Plan, divided(c.Plan, e.n)
	return e
}

// seed charges a new entry with what the shared store had counted when last seen.
func (s *Store) seed(ctx context.Context, e *entry, c *sluice.Charge) error {
	if c.OnError != sluice.Local {
		return nil
	}
	left := s.seen.left(c)
	if left >= c.Plan.Capacity {
		return nil
	}
	switch _, unit := e.shareOf(c.Plan); {
	case c.Plan.Capacity < unit:
		left = 0 // a part of the only unit
	case c.Plan.Kernel != sluice.Meter:
		left -= left % unit // counts stay whole units of the share
	}
	used := e.plan.Capacity - left
	charges := [2]sluice.Charge{
		{Key: e.share, Plan: e.plan, Cost: used, Shadow: true},
		{Key: e.ghost, Plan: e.plan, Cost: used, Shadow: true},
	}
	var receipts [2]sluice.Receipt
	return s.local.Take(ctx, charges[:], receipts[:])
}

// shareOf returns by which plan a charge under the limit p is counted in the share, and
// what a unit of it costs there.
func (e *entry) shareOf(p *sluice.Plan) (plan *sluice.Plan, unit int64) {
	plan = e.plan
	if p != e.of {
		plan = divided(p, e.n) // the limit has changed since
	}
	return plan, min(e.n, plan.Capacity)
}

// divided returns the plan by which a share of one in n is counted: that of the whole
// limit, but a unit costs n. That divides any rate exactly, 7 per second by two as well.
// Only where n units do not fit at once there is room made for them, so that a share
// is at least one unit, and a count is cut to a multiple of n.
func divided(p *sluice.Plan, n int64) *sluice.Plan {
	l := p.Limit
	if p.Kernel == sluice.Meter {
		l.Burst = max(l.Burst, n)
	} else {
		l.Count = max(1, l.Count/n) * n
	}
	if l == p.Limit {
		return p
	}
	if d, err := sluice.NewPlan(l); err == nil {
		return d
	}
	return p // one unit takes all there is
}

// fill makes the charges for the stand-in. Those of rules that let everything pass are
// counted as shadows. If the shared store may have been charged, the ghost is, too.
func (s *Store) fill(b *batch, charges []sluice.Charge, now int64, owed bool) {
	b.charges = b.charges[:0]
	for i := range charges {
		c, e := &charges[i], b.entries[i]
		e.touched.Store(now)
		plan, unit := e.shareOf(c.Plan)
		share := sluice.Charge{Key: e.share, Plan: plan, Cost: times(c.Cost, unit, plan), Shadow: c.Shadow || c.OnError != sluice.Local}
		if denies(c) {
			share.Cost = 0 // a shadow
		}
		b.charges = append(b.charges, share)
		switch {
		case !owed:
			if c.OnError == sluice.Local && c.Cost > 0 {
				e.asked.Store(max(1, int64(s.seen.now())))
			}
			share.Key, share.Shadow = e.ghost, true
			b.charges = append(b.charges, share)
		case share.Cost > 0 && !e.holds.Load() && e.of != nil && e.holds.CompareAndSwap(false, true):
			s.ledger.owing.Add(1)
		}
	}
	if cap(b.receipts) < len(b.charges) {
		b.receipts = make([]sluice.Receipt, len(b.charges))
	}
	b.receipts = b.receipts[:len(b.charges)]
}

// read turns the stand-in's receipts into the caller's.
func (b *batch) read(charges []sluice.Charge, receipts []sluice.Receipt) {
	each := len(b.charges) / len(charges)
	for i := range charges {
		c := &charges[i]
		plan, unit := b.entries[i].shareOf(c.Plan)
		r := recast(c.Plan, c.Cost, plan, unit, b.receipts[i*each])
		if c.OnError != sluice.Local {
			r.Fits = !denies(c)
		}
		r.Local = true
		receipts[i] = r
	}
}

// times returns cost·n, or where that means the same, something that cannot overflow.
func times(cost, n int64, p *sluice.Plan) int64 {
	switch {
	case cost > p.Capacity/n:
		return p.Capacity + 1
	case cost < -p.Capacity/n:
		return sluice.All
	}
	return cost * n
}
