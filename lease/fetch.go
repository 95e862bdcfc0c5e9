package lease

import (
	"context"
	"errors"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/kernel"
)

// fetchFor is the time limit of the call that reserves units. Units that arrive later would expire almost at once.
const fetchFor = Horizon

// turns divides the horizon: a pool to which the store has refused units tries again after 1/turns of the horizon.
const turns = 4

// longestTurn is the longest time, in microseconds, for which a pool refuses charges after a refusal by the store.
// It is short, because other processes may give back units.
const longestTurn = 1_000_000

// fetch reserves n of the wanted units. If the store has fewer, it tries a second time with fewer units, but at least
// with the units that are needed at once.
func (s *Store) fetch(p *pool, n, wanted, needed int64) {
	defer s.running.Done()
	var b *batch
	var err error
	for range 2 {
		if b, err = s.reserve(p, n); b != nil || err != nil {
			break
		}
		p.mu.Lock()
		room := p.plan.Decide(0, p.known.receipt).Remaining
		p.mu.Unlock()
		if room < max(1, needed) {
			break
		}
		n = max(1, needed, room/2)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	drained := s.fetched(p, b, wanted, needed, err)
	if b == nil || p.dead.Load() || p.last > 0 {
		return
	}
	if more := p.deposit(b.n, b.beneath, b.level, s.now()); more > 0 && p.fetching == nil {
		p.fetching = newFetching()
		p.mu.Unlock()
		b, err = s.reserve(p, more)
		p.mu.Lock()
		drained = s.fetched(p, b, 0, 0, err)
	}
	if drained {
		at := s.now()
		p.drains, p.enough = max(at+p.horizon/turns, p.shallow+p.horizon/2), p.refused+worth
	}
}

// reserve takes n units from the shared store. It returns nil if they do not fit.
func (s *Store) reserve(p *pool, n int64) (*batch, error) {
	charges := [1]sluice.Charge{{Key: p.key, Plan: p.plan, Cost: n, OnError: p.onError}}
	var receipts [1]sluice.Receipt
	sent := s.now()
	if err := s.shared.TakeWithin(context.Background(), fetchFor, charges[:], receipts[:]); err != nil {
		return nil, err
	}
	back := s.now() + 1
	r := &receipts[0]
	if listener := s.listener.Load(); listener != nil {
		(*listener)(&charges[0], r)
	}
	p.mu.Lock()
	p.latency = max(back-sent, p.latency-p.latency/8)
	p.mu.Unlock()
	p.learn(n, r, sent, back)
	if !r.Fits {
		return nil, nil
	}
	b := granted(p.plan, n, p.others(), r, sent, back)
	if b.n == 0 {
		charges[0].Cost, charges[0].Until = -n, (r.Tick+1)*p.plan.Span*p.plan.Tick
		if err := s.shared.TakeWithin(context.Background(), fetchFor, charges[:], receipts[:]); err != nil {
			return nil, err
		}
		return nil, errBehind
	}
	return b, nil
}

// learn records the store's receipt for a charge of n units. The times at which the call was sent and its receipt came
// back are by the clock of the Store.
func (p *pool) learn(n int64, r *sluice.Receipt, sent, back int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r.Now < p.known.receipt.Now && sent-p.known.sent <= longestTurn {
		return
	}
	if r.Fits {
		p.own += n * p.plan.Unit
	}
	switch took := r.Now - p.since.Now; {
	case p.known.back == 0:
		p.since, p.own = *r, 0
	case took >= p.horizon/8: // a measurement over a shorter time would be mostly chance
		p.drift = float64(r.Used-p.own-p.since.Used) / float64(took)
		p.since, p.own = *r, 0
	}
	p.known = known{*r, sent, back}
}

// errBehind is the result of a reservation in a window that the server's clock has not reached, because the clock
// was set back. Until the clock reaches that window, the store decides.
var errBehind = errors.New("lease: the clock of the shared store was set back: it is before the window that the store has counted")

// fetching is a reservation that is under way.
type fetching struct {
	over chan struct{} // closed when the reservation is over
	err  error         // set before over is closed
}

func newFetching() *fetching { return &fetching{over: make(chan struct{})} }

// errDrained is the result of a reservation that has too few units left when its receipt arrives: the level is so
// low that units drain before that. Callers that waited for the reservation call the store instead of waiting for
// another.
var errDrained = errors.New("lease: the reserved units have drained before they arrived")

// others returns the largest number of units that all processes together can give back within [Horizon].
func (p *pool) others() int64 {
	if p.budget == nil {
		return 0
	}
	return 2 * p.budget.Capacity
}

// fetched records the result of a reservation, as fetch has made it for the wanted units. It returns true if so many
// units have drained that fewer than max(1, needed) are left. p.mu is held.
func (s *Store) fetched(p *pool, b *batch, wanted, needed int64, err error) (drained bool) {
	at := s.now()
	over := p.fetching
	over.err = err
	p.fetching, p.last = nil, 0
	granted := int64(0)
	if b != nil {
		granted = b.n
		if drained = b.left(b.latest(at)) < max(1, needed); drained {
			over.err = errDrained
		}
		if !p.dead.Load() { // the units of a dead pool are not given back, and drain
			p.add(b, at)
		}
	}
	close(over.over)
	if err != nil || granted >= wanted {
		return drained
	}
	switch room := p.room(at); {
	case p.plan.Kernel == kernel.Meter && (granted == 0 || room <= 2*p.perTurn()):
		p.last, p.again = max(1, granted), at+p.horizon/turns
	case p.plan.Limit.Algorithm == sluice.SlidingWindowCounter && (granted == 0 || room <= p.perTurn()/4):
		p.again = at + p.horizon/turns/4
	case p.plan.Limit.Algorithm == sluice.FixedWindow && granted == 0:
		_, _, end := p.plan.WindowAt(p.known.receipt.Now)
		p.again = at + min(end-p.known.receipt.Now, longestTurn)
	}
	return drained
}

// end ends a pool, and returns calls of the shared store that give back the pool's units.
func (s *Store) end(p *pool) []sluice.TakeCall {
	p.mu.Lock()
	rest := p.kill()
	p.mu.Unlock()
	s.remove(p)
	return p.giveBack(rest, s.now())
}

// giveBack returns calls of the shared store that give back the units of closed batches.
func (p *pool) giveBack(batches []*batch, at int64) (calls []sluice.TakeCall) {
	for _, b := range batches {
		first, now := b.next.Load(), b.latest(at)
		if p.budget != nil { // give back only as many units as the budget holds: those that last longest
			first = max(first, b.first(now), b.n-p.budget.Capacity)
		}
		n := b.n - first
		if n <= 0 || now > b.until(first) {
			continue
		}
		charges := []sluice.Charge{{Key: p.key, Plan: p.plan, Cost: -n, Until: b.until(first)}}
		if p.budget != nil {
			charges = append(charges, sluice.Charge{Key: p.key, Plan: p.budget, Cost: n})
		}
		calls = append(calls, sluice.TakeCall{Charges: charges, Receipts: make([]sluice.Receipt, len(charges))})
	}
	return calls
}

// sweepEvery is the interval at which pools are examined.
const sweepEvery = Horizon / 8

// sweepLater starts a sweep after sweepEvery. s.inserting is held.
func (s *Store) sweepLater() {
	if s.sweeper == nil {
		s.sweeper = time.AfterFunc(sweepEvery, s.sweep)
		return
	}
	s.sweeper.Reset(sweepEvery)
}

// sweep ends pools that are no longer used, and gives back their units.
func (s *Store) sweep() {
	if !s.track() {
		return
	}
	defer s.running.Done()
	var calls []sluice.TakeCall
	for _, p := range s.all() {
		idle, old := p.look(s.now())
		calls = append(calls, p.giveBack(old, s.now())...)
		if idle {
			calls = append(calls, s.end(p)...)
		}
	}
	if len(calls) > 0 {
		// Units that cannot be given back drain, or expire with their window.
		s.shared.TakeEachWithin(context.Background(), fetchFor, calls)
	}
	s.inserting.Lock()
	if len(s.held) > 0 && !s.closed.Load() {
		s.sweepLater()
	}
	s.inserting.Unlock()
}

// keptFor is how long an unused pool is kept, in microseconds.
const keptFor = 1_000_000

// look reports whether a pool is no longer worth keeping, and returns the batches to give back. It returns all
// batches if nothing was requested for as long as six units usually take: such a pause is hardly ever chance.
func (p *pool) look(at int64) (idle bool, old []*batch) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.trim(at)
	if total := p.total(); total != p.swept || p.fetching != nil {
		p.swept, p.grewAt = total, at
	}
	quiet := at - p.grewAt
	if quiet >= max(sweepEvery.Microseconds(), 6*p.horizon/p.demand) {
		p.old = p.empty()
	}
	if at-p.measured >= 4*p.horizon {
		p.measure(at)
	}
	old, p.old = p.old, nil
	return quiet >= keptFor || p.demand < fewest/2, old
}
