package synced

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/kernel"
)

// take is the state of one running Take.
type take struct {
	held  []held // one for each charge
	rest  []sluice.Charge
	got   []sluice.Receipt
	at    []int   // for each charge in rest, its index in the Take, or -1 for an added charge
	order []*pool // in the order in which they are locked
	// refused is true if a locally counted charge denies the Take. Then the shared store must not count any charge
	// in rest.
	refused bool
}

// held is a charge of a Take.
type held struct {
	pool   *pool        // nil if the shared store counts the charge
	units  int64        // taken from the pool
	window int64        // the window of units
	before kernel.State // state of the pool before the charge
	after  kernel.State
	asked  bool // this Take has read the state from the store
	passed bool // the charge is in rest, too, because the shared store has to give back units
}

// TakeWithin implements failover.Shared. Its errors have the methods NotCharged and Unreadable. Unreadable returns
// indexes in charges, where the shared store's error has indexes in the charges that it got.
func (s *Store) TakeWithin(ctx context.Context, wait time.Duration, charges []sluice.Charge, receipts []sluice.Receipt) error {
	if !slices.ContainsFunc(charges, func(c sluice.Charge) bool { return c.Consistency == sluice.Synced }) {
		return s.shared.TakeWithin(ctx, wait, charges, receipts)
	}
	if len(charges) == 1 && len(receipts) == 1 && s.takeKnown(ctx, &charges[0], &receipts[0]) {
		return nil
	}
	call := [1]sluice.TakeCall{{Charges: charges, Receipts: receipts}}
	s.TakeEachWithin(ctx, wait, call[:])
	return call[0].Err
}

// takeKnown decides a charge without the shared store, if it can, and reports whether it did.
func (s *Store) takeKnown(ctx context.Context, c *sluice.Charge, r *sluice.Receipt) bool {
	if c.Cost < 0 || !s.counts(c) || ctx.Err() != nil {
		return false
	}
	at := s.clock()
	id := stateID{c.Key, c.Plan.Fingerprint}
	t := s.table(c.Key)
	t.mu.Lock()
	p := t.pools[id]
	if p == nil {
		t.mu.Unlock()
		return false
	}
	p.mu.Lock()
	t.mu.Unlock()
	defer p.mu.Unlock()
	p.use(s, c.Plan)
	if !p.fresh(at) {
		return false
	}
	p.asked = at
	*r = p.take(at, c.Cost, c.Owe)
	return true
}

// TakeEachWithin implements failover.SharedEach.
func (s *Store) TakeEachWithin(ctx context.Context, wait time.Duration, calls []sluice.TakeCall) {
	until := time.Now().Add(wait)
	takes := make([]*take, len(calls))
	for i := range calls {
		takes[i] = s.takes.Get().(*take)
		calls[i].Err = takes[i].begin(s, ctx, &calls[i])
	}
	s.ask(ctx, wait, calls, takes)
	var rest []sluice.TakeCall
	for i, k := range takes {
		if c := &calls[i]; c.Err == nil {
			if k.reserve(s, c); len(k.rest) > 0 {
				rest = append(rest, sluice.TakeCall{Charges: k.rest, Receipts: k.got})
			}
		}
	}
	sent := s.clock()
	if len(rest) > 0 {
		left := wait
		if wait > 0 {
			left = max(time.Until(until), time.Microsecond)
		}
		s.takeEach(ctx, left, rest)
	}
	for i, k := range takes {
		if c := &calls[i]; c.Err == nil && len(k.rest) > 0 {
			c.Err = k.finish(s, c, sent, rest[0].Err)
			rest = rest[1:]
		}
		k.end()
		s.takes.Put(k)
	}
}

// takeEach makes all calls to the shared store, within one wait.
func (s *Store) takeEach(ctx context.Context, wait time.Duration, calls []sluice.TakeCall) {
	if each, ok := s.shared.(sharedEach); ok && len(calls) > 1 {
		each.TakeEachWithin(ctx, wait, calls)
		return
	}
	until := time.Now().Add(wait)
	for i := range calls {
		c := &calls[i]
		c.Err = s.shared.TakeWithin(ctx, wait, c.Charges, c.Receipts)
		if wait > 0 {
			wait = max(time.Until(until), time.Microsecond)
		}
	}
}

// begin finds the pools of a call.
func (k *take) begin(s *Store, ctx context.Context, c *sluice.TakeCall) error {
	k.held, k.rest, k.got, k.at, k.refused = k.held[:0], k.rest[:0], k.got[:0], k.at[:0], false
	if err := sluice.CheckCharges(c.Charges, c.Receipts); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return &failure{err: err, uncharged: true}
	}
	now := s.clock()
	for i := range c.Charges {
		var h held
		if s.counts(&c.Charges[i]) && !watched(c.Charges, i) {
			h.pool = s.pin(&c.Charges[i], now)
		}
		k.held = append(k.held, h)
	}
	return nil
}

// watched reports whether a charge has a penalty, which is a lock under the same key. Then the shared store has to
// decide, because an exceeded limit starts the penalty there.
func watched(charges []sluice.Charge, i int) bool {
	return slices.ContainsFunc(charges, func(c sluice.Charge) bool {
		return c.Plan.Kernel == kernel.Lock && c.Key == charges[i].Key
	})
}

// end releases all pools.
func (k *take) end() {
	for i := range k.held {
		if p := k.held[i].pool; p != nil {
			p.release()
		}
	}
	clear(k.held)
	clear(k.rest)
}

var errNoWait error = &failure{err: context.DeadlineExceeded, uncharged: true}

// ask requests new states from the shared store if the known ones are too old to decide from. If that fails, it
// sets the Err of the calls.
func (s *Store) ask(ctx context.Context, wait time.Duration, calls []sluice.TakeCall, takes []*take) {
	type asked struct{ call, charge int }
	var which []asked
	var asks []sluice.TakeCall
	sent := s.clock()
	for i, k := range takes {
		if calls[i].Err != nil {
			continue
		}
		for j := range k.held {
			h, c := &k.held[j], &calls[i].Charges[j]
			if h.pool == nil || c.Cost < 0 || h.pool.isFresh(sent) {
				continue
			}
			if wait <= 0 {
				calls[i].Err = errNoWait
				break
			}
			h.asked = true
			which = append(which, asked{i, j})
			asks = append(asks, sluice.TakeCall{Charges: []sluice.Charge{h.pool.peek(c)}, Receipts: make([]sluice.Receipt, 1)})
		}
	}
	if len(asks) == 0 {
		return
	}
	s.takeEach(ctx, wait, asks)
	back := s.clock()
	for n, a := range which {
		h, c := &takes[a.call].held[a.charge], &calls[a.call]
		switch err := asks[n].Err; {
		case err == nil:
			h.pool.mu.Lock()
			// It is unknown whether this answer includes a report that is on its way.
			if h.pool.underWay == 0 || !h.pool.fresh(back) {
				h.pool.learn(&asks[n].Receipts[0], sent, back)
			}
			h.pool.mu.Unlock()
		case c.Err == nil:
			c.Err = &failure{err: err, uncharged: true, indexes: []int{a.charge}}
		}
	}
}

// peek returns a charge that reads the state of c.
func (p *pool) peek(c *sluice.Charge) sluice.Charge {
	p.mu.Lock()
	defer p.mu.Unlock()
	return sluice.Charge{Key: c.Key, Plan: p.wide, OnError: c.OnError}
}

func (p *pool) isFresh(at time.Duration) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.fresh(at)
}

// reserve takes from all pools or from none, and sets rest to the charges for the shared store.
func (k *take) reserve(s *Store, c *sluice.TakeCall) {
	at := s.clock()
	k.lock()
	refuser := -1
	for i := range k.held {
		if h, charge := &k.held[i], &c.Charges[i]; h.pool != nil {
			c.Receipts[i] = h.look(s, at, charge)
			if !c.Receipts[i].Fits && charge.Refuses() && refuser < 0 {
				refuser = i
			}
		}
	}
	k.refused = refuser >= 0
	for i := range k.held {
		h, charge := &k.held[i], c.Charges[i]
		if h.pool != nil && !k.refused {
			h.take(at, &charge, &c.Receipts[i])
		}
		switch {
		case h.pool == nil: // the shared store counts it
		case h.passed:
			charge.Plan = h.pool.wide
			if charge.Cost != sluice.All {
				charge.Cost -= h.units
			}
		default:
			continue
		}
		charge.Consistency = sluice.Strict
		k.rest, k.at = append(k.rest, charge), append(k.at, i)
	}
	if k.refused && len(k.rest) > 0 { // add a charge that never fits, so that the shared store counts nothing
		charge := c.Charges[refuser]
		charge.Plan, charge.Consistency = k.held[refuser].pool.wide, sluice.Strict
		charge.Cost = charge.Plan.Capacity + 1
		k.rest, k.at = append(k.rest, charge), append(k.at, -1)
	}
	k.unlock()
	k.got = slices.Grow(k.got[:0], len(k.rest))[:len(k.rest)]
}

// lock locks the pools, in an order that is the same for all Takes.
func (k *take) lock() {
	k.order = k.order[:0]
	for i := range k.held {
		if p := k.held[i].pool; p != nil {
			k.order = append(k.order, p)
		}
	}
	slices.SortFunc(k.order, func(a, b *pool) int { return cmp.Compare(a.serial, b.serial) })
	for _, p := range k.order {
		p.mu.Lock()
	}
}

func (k *take) unlock() {
	for _, p := range k.order {
		p.mu.Unlock()
	}
	clear(k.order)
}

// look returns the receipt of a charge without taking anything.
func (h *held) look(s *Store, at time.Duration, c *sluice.Charge) sluice.Receipt {
	h.pool.use(s, c.Plan)
	r := h.pool.look(at)
	if c.Cost > 0 {
		r.Fits = h.pool.fits(&r, c.Cost)
	}
	if h.asked {
		r.Origin = sluice.ByStore
	}
	return r
}

// take makes a charge that fits or is owed. If the charge gives units back, take gives back the units that this
// process has taken and not reported yet; the shared store has to give back the others.
func (h *held) take(at time.Duration, c *sluice.Charge, r *sluice.Receipt) {
	p, origin := h.pool, r.Origin
	h.before = p.state
	switch late := p.back > 0 && c.Until != 0 && r.Now > c.Until; {
	case c.Cost == 0, !r.Fits && !c.Owe, late:
	case c.Cost > 0:
		h.units = c.Cost
		p.taken = at
	case c.Cost == sluice.All:
		h.units, h.passed = -p.own, true
	default:
		if p.back > 0 {
			h.units = -min(-c.Cost, max(0, p.own))
		}
		h.passed = c.Cost < h.units
	}
	if h.units != 0 {
		p.step(at, h.units, r)
		h.units -= r.Cut
		p.own += h.units
	}
	r.Origin = origin
	h.window, h.after = p.window, p.state
}

// putBack undoes take, and sets r to the receipt without the units.
func (h *held) putBack(at time.Duration, r *sluice.Receipt) {
	p := h.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	fits, origin := r.Fits, r.Origin
	switch {
	case p.state == h.after:
		p.state, p.own = h.before, p.own-h.units
	case p.window == h.window || p.plan.Limit.Algorithm != sluice.FixedWindow:
		p.step(at, -h.units, r)
		p.own -= h.units
	}
	h.units = 0
	*r = p.look(at)
	r.Fits, r.Origin = fits, origin
}

// finish gives back the units taken from pools if the shared store has failed or denied the Take. If the store has
// not failed, finish copies its receipts.
func (k *take) finish(s *Store, c *sluice.TakeCall, sent time.Duration, err error) error {
	at := s.clock()
	if !k.refused && (err != nil || !sluice.Admitted(k.rest, k.got)) {
		for i := range k.held {
			if h := &k.held[i]; h.pool != nil {
				h.putBack(at, &c.Receipts[i])
			}
		}
	}
	if err != nil {
		return k.failure(err)
	}
	for n, i := range k.at {
		switch {
		case i < 0:
		case k.held[i].pool == nil:
			c.Receipts[i] = k.got[n]
		default: // add the units that this process has taken and not reported yet
			c.Receipts[i] = k.held[i].pool.received(at, &k.got[n], sent)
		}
	}
	return nil
}

// failure is an error of the shared store about some charges of a Take.
type failure struct {
	err       error
	uncharged bool
	indexes   []int // index in the Take of each charge that was sent, or -1
}

func (e *failure) Error() string { return e.err.Error() }
func (e *failure) Unwrap() error { return e.err }

// NotCharged implements failover.Uncharged.
func (e *failure) NotCharged() bool { return e.uncharged || notCharged(e.err) }

// Unreadable implements failover.Unreadable.
func (e *failure) Unreadable() (indexes []int) {
	for _, n := range unreadable(e.err) {
		if n < len(e.indexes) && e.indexes[n] >= 0 {
			indexes = append(indexes, e.indexes[n])
		}
	}
	return indexes
}

func (k *take) failure(err error) error {
	if len(unreadable(err)) == 0 {
		return err
	}
	return &failure{err: err, indexes: slices.Clone(k.at)}
}

func notCharged(err error) bool {
	e, ok := errors.AsType[interface {
		error
		NotCharged() bool
	}](err)
	return ok && e.NotCharged()
}

func unreadable(err error) []int {
	e, ok := errors.AsType[interface {
		error
		Unreadable() []int
	}](err)
	if !ok {
		return nil
	}
	return e.Unreadable()
}
