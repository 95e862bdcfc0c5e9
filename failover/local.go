package failover

import (
	"context"
	"encoding/binary"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/share"
	"github.com/sluicehq/sluice/kernel"
)

const (
	maxEntries = 1 << 16
	maxKey     = 1 << 10 // in bytes; longer keys are counted, but neither seeded nor written back
)

// ledger has the keys that were decided locally and are not yet written back. Decisions hold the lock, mostly for
// reading, while they charge the fallback, so that an entry is written back with all of its charges.
type ledger struct {
	mu      sync.RWMutex
	entries map[stateID]*entry
	serial  uint64       // the serial number of the last entry
	swept   int64        // when full() last removed empty entries, in µs
	owing   atomic.Int64 // the number of entries that are pending
	extra   int          // the number of second writes for a key (see repay); later rounds write that many debts fewer
}

// stateID identifies a state in the shared store.
type stateID struct {
	key         string
	fingerprint uint64
}

// entry is a key during one outage. It has two states in the fallback, the share and the baseline. Both start with
// the units that the shared store had counted. Every charge goes to the share, which decides. The baseline gets
// only the charges that the shared store may have counted as well. So the difference between the two is always the
// debt: the units that the shared store does not know of.
type entry struct {
	key                   string
	shareKey, baselineKey string // the keys of both states in the fallback
	shard                 *shard
	limit                 *sluice.Plan       // nil for an entry that is used once and dropped
	consistency           sluice.Consistency // the consistency with which its debt is written back
	share                 share.Share        // the local allowance
	instances             int64              // the number of instances among which the limit is divided
	touched               atomic.Int64       // µs since the epoch
	pending               atomic.Bool        // a debt has to be written back; until then, the key is decided locally
	writing               bool               // the debt is being written; guarded by the ledger's lock

	// unknownAt is when the entry was last charged for a call to the shared store with an unknown outcome, by the
	// clock of Store.recent.
	unknownAt atomic.Int64
}

// batch has the charges for the fallback in one decision.
type batch struct {
	charges  []sluice.Charge
	receipts []sluice.Receipt
	entries  []*entry // the entry of each of the caller's charges; nil if Deny refuses the charge
}

// decideLocally decides all or some charges of a Take without the shared store. owed means that the shared store
// has certainly not counted the charges, so that they have to be written back. If a charge is denied, nothing is
// taken, and the receipts of the other charges have the present state of their shares.
func (s *Store) decideLocally(ctx context.Context, charges []sluice.Charge, receipts []sluice.Receipt, owed bool) error {
	now := time.Now().UnixMicro()
	denied, denying := deny(charges, receipts, now)
	if denying == len(charges) {
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
	s.fill(b, charges, now, owed, denied)
	if err := b.take(ctx, s.local); err != nil {
		return err
	}
	b.read(charges, receipts, denied)
	return s.punish(ctx, b, charges, receipts)
}

// deny writes the receipts of the charges that Deny refuses. It returns whether these charges deny the request, and
// how many there are.
func deny(charges []sluice.Charge, receipts []sluice.Receipt, now int64) (denied bool, denying int) {
	for i := range charges {
		if c := &charges[i]; denies(c) {
			receipts[i] = sluice.Receipt{Receipt: kernel.Receipt{Now: now}, Origin: sluice.ByOnError}
			denied = denied || !c.Shadow
			denying++
		}
	}
	return denied, denying
}

// denies reports whether on_error refuses a charge. Refunds and owed costs are never refused.
func denies(c *sluice.Charge) bool { return c.OnError == sluice.Deny && c.Cost >= 0 && !c.Owe }

func (s *Store) release(b *batch) {
	clear(b.charges)
	clear(b.entries)
	s.batches.Put(b)
}

// find fills b with the entries of the charges. It returns false if an entry is missing.
func (l *ledger) find(b *batch, charges []sluice.Charge) bool {
	b.entries = b.entries[:0]
	for i := range charges {
		var e *entry
		switch c := &charges[i]; {
		case denies(c):
		case c.Plan.Once:
			e = unlisted(c, 1)
		default:
			if e = l.entries[stateID{c.Key, c.Plan.Fingerprint}]; e == nil {
				return false
			}
		}
		b.entries = append(b.entries, e)
	}
	return true
}

// anyPending reports whether the key of a charge has a debt that must be written back first.
func (l *ledger) anyPending(charges []sluice.Charge) bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	for i := range charges {
		if e := l.entries[stateID{charges[i].Key, charges[i].Plan.Fingerprint}]; e != nil && e.pending.Load() {
			return true
		}
	}
	return false
}

// open is like find, but creates and seeds missing entries. If the ledger is full, a key gets an entry that is used
// once and dropped.
func (s *Store) open(ctx context.Context, b *batch, charges []sluice.Charge, now int64) error {
	l := &s.ledger
	b.entries = b.entries[:0]
	for i := range charges {
		c := &charges[i]
		id := stateID{c.Key, c.Plan.Fingerprint}
		e := l.entries[id]
		switch {
		case denies(c):
			e = nil
		case e != nil:
		case c.Plan.Once:
			e = unlisted(c, 1)
		case len(c.Key) > maxKey || l.full(now):
			e = unlisted(c, s.instances.Load())
		default:
			e = s.newEntry(c)
			if err := s.seed(ctx, e, c); err != nil {
				return err
			}
			id.key = e.key
			l.entries[id] = e
		}
		b.entries = append(b.entries, e)
	}
	return nil
}

// unlisted returns an entry for a key that is not written back. The entry is used once and dropped.
func unlisted(c *sluice.Charge, instances int64) *entry {
	return &entry{shareKey: "k" + c.Key, baselineKey: "o" + c.Key, instances: instances}
}

// full reports whether the ledger is full, even after empty entries are removed.
func (l *ledger) full(now int64) bool {
	if len(l.entries) >= maxEntries && now-l.swept > time.Second.Microseconds() {
		l.swept = now
		for id, e := range l.entries {
			if e.empty(now) {
				l.forget(id, e)
			}
		}
	}
	return len(l.entries) >= maxEntries
}

// forget removes an entry. l.mu is held.
func (l *ledger) forget(id stateID, e *entry) {
	if l.entries[id] != e {
		return // full() has removed the entry already
	}
	delete(l.entries, id)
	l.settled(e)
}

// settled records that e has no debt. l.mu is held.
func (l *ledger) settled(e *entry) {
	if e.pending.CompareAndSwap(true, false) {
		l.owing.Add(-1)
	}
}

// empty reports whether both states of e are empty at now, which is in µs.
func (e *entry) empty(now int64) bool { return e.touched.Load()+e.share.Plan.Lifetime() < now }

func (s *Store) newEntry(c *sluice.Charge) *entry {
	s.ledger.serial++
	id := binary.BigEndian.AppendUint64(nil, s.ledger.serial)
	keys := "s" + string(id) + "g" + string(id)
	e := &entry{
		key:         strings.Clone(c.Key),
		shareKey:    keys[:9],
		baselineKey: keys[9:],
		limit:       c.Plan,
		consistency: writtenBy(c.Consistency),
		instances:   s.instances.Load(),
	}
	var buf [1]*shard
	e.shard = s.touched(buf[:0], []sluice.Charge{*c})[0]
	e.share = share.Of(c.Plan, e.instances)
	return e
}

// writtenBy returns the consistency with which the debt of a charge with consistency c is written back. A synced
// state may be above its limit in the shared store, and only a synced charge leaves such a state as it is.
func writtenBy(c sluice.Consistency) sluice.Consistency {
	if c == sluice.Synced {
		return c
	}
	return sluice.Strict
}

// divides reports whether a share of p starts with the units that the shared store has counted, and is written
// back. This is true except for penalties, permits in flight and distinct values.
func divides(p *sluice.Plan) bool { return p.Kernel != kernel.Lock && !p.Kernel.Permits() }

// seed charges a new entry with the units that the shared store had counted when it last answered for the key.
func (s *Store) seed(ctx context.Context, e *entry, c *sluice.Charge) error {
	if c.OnError != sluice.Local || !divides(c.Plan) {
		return nil
	}
	left := s.recent.remaining(c)
	if left >= c.Plan.Capacity {
		return nil
	}
	owed := s.recent.owed(c)
	used := e.share.Used(left) + owed
	charges := [2]sluice.Charge{
		{Key: e.shareKey, Plan: e.share.Plan, Cost: used, Shadow: true, Owe: owed > 0},
		{Key: e.baselineKey, Plan: e.share.Plan, Cost: used, Shadow: true, Owe: owed > 0},
	}
	var receipts [2]sluice.Receipt
	return s.local.Take(ctx, charges[:], receipts[:])
}

// shareOf returns the share that counts a charge under the limit p.
func (e *entry) shareOf(p *sluice.Plan) share.Share {
	if p == e.limit {
		return e.share
	}
	return share.Of(p, e.instances) // the limit has changed since the entry was created
}

// part converts the caller's charge to a charge of the share. The share refuses charges only if their OnError is
// Local; all others are shadows.
func (e *entry) part(c *sluice.Charge, now int64) sluice.Charge {
	e.touched.Store(now)
	part := e.shareOf(c.Plan)
	cost := part.Cost(c.Cost)
	if c.Owe && c.Cost > 0 {
		cost = part.Owes(c.Cost)
	}
	return sluice.Charge{
		Key: e.shareKey, Plan: part.Plan, Cost: cost, Shadow: c.Shadow || c.OnError != sluice.Local,
		Owe: c.Owe, Permit: c.Permit, Until: c.Until,
	}
}

// fill makes the charges for the fallback. If the shared store may have counted a charge, the baseline is charged,
// too.
func (s *Store) fill(b *batch, charges []sluice.Charge, now int64, owed, denied bool) {
	b.charges = b.charges[:0]
	for i, e := range b.entries {
		if e == nil {
			continue
		}
		c := &charges[i]
		part := e.part(c, now)
		if denied {
			part.Cost = 0
		}
		b.charges = append(b.charges, part)
		switch {
		case !divides(c.Plan): // creates no debt
		case owed || denied:
			s.owe(e, part.Cost)
		default:
			if c.OnError == sluice.Local && c.Cost > 0 {
				e.unknownAt.Store(max(1, int64(s.recent.now())))
			}
			part.Key, part.Shadow = e.baselineKey, true
			b.charges = append(b.charges, part)
		}
	}
}

// owe marks an entry as pending if cost units are taken from its share: these have to be written back before the
// shared store decides the key again.
func (s *Store) owe(e *entry, cost int64) {
	if cost > 0 && !e.pending.Load() && e.limit != nil && e.pending.CompareAndSwap(false, true) {
		s.ledger.owing.Add(1)
	}
}

// take takes the charges from the fallback.
func (b *batch) take(ctx context.Context, local sluice.Store) error {
	if cap(b.receipts) < len(b.charges) {
		b.receipts = make([]sluice.Receipt, len(b.charges))
	}
	b.receipts = b.receipts[:len(b.charges)]
	return local.Take(ctx, b.charges, b.receipts)
}

// read converts the fallback's receipts of shares to receipts of the caller's charges.
func (b *batch) read(charges []sluice.Charge, receipts []sluice.Receipt, denied bool) {
	at := 0
	for i, e := range b.entries {
		if e == nil {
			continue
		}
		c := &charges[i]
		cost := c.Cost
		if denied {
			cost = 0
		}
		share := e.shareOf(c.Plan)
		r := share.Receipt(cost, b.receipts[at])
		r.Cut = share.Units(b.receipts[at].Cut)
		if r.Origin = sluice.ByLocalShare; c.OnError != sluice.Local {
			r.Origin, r.Fits = sluice.ByOnError, true
		}
		receipts[i] = r
		if at++; at < len(b.charges) && b.charges[at].Key == e.baselineKey {
			at++
		}
	}
}

// punish records the offences of a Take that was decided locally. The fallback cannot detect offences itself,
// because there a lock and the limits that it guards have different keys.
func (s *Store) punish(ctx context.Context, b *batch, charges []sluice.Charge, receipts []sluice.Receipt) error {
	for i := range charges {
		if !sluice.Offends(charges, receipts, i) {
			continue
		}
		key := b.entries[i].shareKey
		offence := [2]sluice.Charge{
			{Key: key, Plan: probePlan, Cost: probePlan.Capacity + 1, Shadow: true}, // never fits
			{Key: key, Plan: charges[i].Plan, Cost: 1, Shadow: true},
		}
		var r [2]sluice.Receipt
		if err := s.local.Take(ctx, offence[:], r[:]); err != nil {
			return err
		}
		r[1].Origin = receipts[i].Origin
		receipts[i] = r[1]
	}
	return nil
}
