package lease

import (
	"context"
	"hash/maphash"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/kernel"
)

// Shared is the store that a [Store] wraps, such as redisstore.Store. Its methods have the semantics of
// failover.SharedEach.
type Shared interface {
	sluice.EachTaker
	TakeWithin(ctx context.Context, wait time.Duration, charges []sluice.Charge, receipts []sluice.Receipt) error
	TakeEachWithin(ctx context.Context, wait time.Duration, calls []sluice.TakeCall)
	Shard(key string) int
	Heartbeat(ctx context.Context, id string) (instances int, err error)
}

// Store spends units that it has reserved in a shared store. It implements [Shared] itself, and is safe for
// concurrent use. See the package's documentation.
type Store struct {
	shared Shared
	base   time.Time
	seed   maphash.Seed

	pools    table
	counters [counters]atomic.Uint64
	joints   sync.Pool
	listener atomic.Pointer[func(*sluice.Charge, *sluice.Receipt)] // see ObserveCalls

	inserting sync.Mutex // guards the following fields
	held      []*pool    // the pools in the table
	sweeper   *time.Timer
	closed    atomic.Bool // set under inserting
	running   sync.WaitGroup
}

var _ Shared = (*Store)(nil)

// New returns a Store that leases from shared. Call Close when done.
func New(shared Shared) *Store {
	s := &Store{shared: shared, base: time.Now().Add(-time.Millisecond), seed: maphash.MakeSeed()}
	s.joints.New = func() any { return new(joint) }
	return s
}

// now returns the time by the clock of s, in microseconds. It is never 0.
func (s *Store) now() int64 {
	return int64(time.Since(s.base) / time.Microsecond)
}

// track counts background work for which Close has to wait. It returns false if s is closed.
func (s *Store) track() bool {
	s.inserting.Lock()
	defer s.inserting.Unlock()
	if s.closed.Load() {
		return false
	}
	s.running.Add(1)
	return true
}

// closeFor is the longest time that Close takes to give back units.
const closeFor = time.Second

// Close stops all background work, and gives back the reserved units that can be given back, which takes at most a
// second. It leaves the shared store open. Later Takes go to the shared store.
func (s *Store) Close() {
	s.inserting.Lock()
	again := s.closed.Swap(true)
	if s.sweeper != nil {
		s.sweeper.Stop()
	}
	s.inserting.Unlock()
	if again {
		return
	}
	s.running.Wait()
	var calls []sluice.TakeCall
	for _, p := range s.all() {
		calls = append(calls, s.end(p)...)
	}
	if len(calls) > 0 {
		s.shared.TakeEachWithin(context.Background(), closeFor, calls)
	}
}

// Shard implements [Shared].
func (s *Store) Shard(key string) int { return s.shared.Shard(key) }

// Heartbeat implements [Shared].
func (s *Store) Heartbeat(ctx context.Context, id string) (instances int, err error) {
	return s.shared.Heartbeat(ctx, id)
}

// ObserveCalls registers a function that is called with the shared store's receipts of reservations. No Take returns
// these receipts. The function is called from any goroutine, and must be quick. A failover.Store registers one.
func (s *Store) ObserveCalls(listener func(c *sluice.Charge, r *sluice.Receipt)) {
	s.listener.Store(&listener)
}

// unbounded is the wait of a Take without a time limit.
const unbounded = -1

// Take implements [sluice.Store]. Receipts of units spent from a lease have the Origin [sluice.ByLease]; their Now
// is the latest time that the server's clock can show at that moment.
func (s *Store) Take(ctx context.Context, charges []sluice.Charge, receipts []sluice.Receipt) error {
	if len(charges) == 1 && len(receipts) == 1 && s.takeFast(&charges[0], &receipts[0]) {
		return nil
	}
	return s.take(ctx, unbounded, charges, receipts)
}

// TakeWithin is Take, but returns within the given wait. If the wait is 0, it decides only charges that need no
// server.
func (s *Store) TakeWithin(ctx context.Context, wait time.Duration, charges []sluice.Charge, receipts []sluice.Receipt) error {
	if len(charges) == 1 && len(receipts) == 1 && s.takeFast(&charges[0], &receipts[0]) {
		return nil
	}
	return s.take(ctx, max(0, wait), charges, receipts)
}

// takeFast takes a charge from the current batch. If that is impossible, it returns false and changes nothing.
func (s *Store) takeFast(c *sluice.Charge, r *sluice.Receipt) bool {
	if c.Consistency != sluice.Leased || c.Cost <= 0 || c.Owe || c.Plan == nil {
		return false
	}
	p := s.find(s.hash(c), c)
	if p == nil || c.Cost > p.most || !p.like(c.Plan) {
		return false
	}
	b := p.batch.Load()
	if b == nil {
		return false
	}
	to := b.latest(s.now())
	first, low, ok := b.spend(c.Cost, to)
	if !ok {
		return false
	}
	if low {
		s.renew(p)
	}
	b.admit(r, to, b.n-first-c.Cost+p.queued.Load())
	return true
}

// ask calls the shared store.
func (s *Store) ask(ctx context.Context, wait time.Duration, charges []sluice.Charge, receipts []sluice.Receipt) error {
	if wait == unbounded {
		return s.shared.Take(ctx, charges, receipts)
	}
	return s.shared.TakeWithin(ctx, wait, charges, receipts)
}

// concerned reports whether any of the charges can be leased, or ends a lease.
func concerned(charges []sluice.Charge) bool {
	for i := range charges {
		if c := &charges[i]; c.Consistency == sluice.Leased || c.Cost < 0 || c.Owe {
			return true
		}
	}
	return false
}

// take decides all charges that takeFast cannot decide.
func (s *Store) take(ctx context.Context, wait time.Duration, charges []sluice.Charge, receipts []sluice.Receipt) error {
	if !concerned(charges) {
		return s.ask(ctx, wait, charges, receipts)
	}
	if err := sluice.CheckCharges(charges, receipts); err != nil {
		return err
	}
	if s.drops(charges) {
		err := s.ask(ctx, wait, charges, receipts)
		s.drops(charges) // ends leases that started in the meantime
		return err
	}
	if !s.leases(charges) {
		return s.ask(ctx, wait, charges, receipts)
	}
	if len(charges) > 1 {
		return s.takeJoint(ctx, wait, charges, receipts)
	}
	c := &charges[0]
	p := s.pool(c)
	if p == nil {
		return s.ask(ctx, wait, charges, receipts)
	}
	began := s.now()
	decided, err := s.await(ctx, wait, began, p, c, &receipts[0])
	if decided || err != nil {
		return err
	}
	sent := s.now()
	if err := s.ask(ctx, s.remains(wait, began), charges, receipts); err != nil {
		return err
	}
	p.learn(c.Cost, &receipts[0], sent, s.now()+1)
	return nil
}

// remains returns the rest of a wait, given its start by the clock s.now.
func (s *Store) remains(wait time.Duration, start int64) time.Duration {
	if wait == unbounded {
		return wait
	}
	return max(0, wait-time.Duration(s.now()-start)*time.Microsecond)
}

// drops ends the lease of each key with a charge that gives back or is owed, and reports whether there is such a
// charge. For a charge that is owed, it gives back the reserved units.
func (s *Store) drops(charges []sluice.Charge) (any bool) {
	for i := range charges {
		c := &charges[i]
		if c.Cost >= 0 && !c.Owe {
			continue
		}
		any = true
		switch p := s.find(s.hash(c), c); {
		case p == nil:
		case c.Owe:
			s.settle(s.end(p))
		default:
			s.drop(p)
		}
	}
	return any
}

// settle makes calls that give back units, in the background.
func (s *Store) settle(calls []sluice.TakeCall) {
	if len(calls) == 0 || !s.track() {
		return
	}
	go func() {
		defer s.running.Done()
		s.shared.TakeEachWithin(context.Background(), fetchFor, calls)
	}()
}

// drop ends a lease without giving anything back.
func (s *Store) drop(p *pool) {
	p.mu.Lock()
	p.kill()
	p.mu.Unlock()
	s.remove(p)
}

// leases reports whether any of the charges can be leased. If one of them is a lock, none can be leased, because
// the shared store has to see all charges that the lock watches.
func (s *Store) leases(charges []sluice.Charge) (any bool) {
	if s.closed.Load() {
		return false
	}
	for i := range charges {
		c := &charges[i]
		if c.Plan.Kernel == kernel.Lock {
			return false
		}
		any = any || c.Consistency == sluice.Leased && c.Cost > 0
	}
	return any
}

// pool returns the pool that decides a charge, or nil if the shared store has to decide. It counts the demand for a
// key without a pool, and creates a pool if that is worthwhile.
func (s *Store) pool(c *sluice.Charge) *pool {
	if c.Consistency != sluice.Leased || c.Cost <= 0 {
		return nil
	}
	hash := s.hash(c)
	p := s.find(hash, c)
	switch {
	case p == nil:
		if at := s.now(); s.demanded(hash, c.Cost, enough(c.Plan), at) {
			s.begin(hash, c, at)
		}
		return nil
	case !p.like(c.Plan):
		s.drop(p) // the limit has changed
		return nil
	case c.Cost > p.most:
		return nil
	}
	return p
}

// begin creates the pool of a key, if leasing the key pays off. The next call reserves its first units, because a
// reservation now would compete with the present request.
func (s *Store) begin(hash uint64, c *sluice.Charge, at int64) {
	h := horizon(c.Plan)
	if h == 0 {
		return
	}
	most := largest(c.Plan, h)
	p := &pool{
		hash: hash, key: strings.Clone(c.Key), plan: c.Plan, onError: c.OnError,
		horizon: h, most: most, budget: budget(c.Plan, h),
		demand: max(worth, c.Cost), measured: at, grewAt: at,
	}
	s.insert(p)
}

// late is the error of a Take that must not wait any longer.
type late struct{}

func (late) Error() string {
	return "lease: the shared store has to decide, and the deadline leaves no time to call it"
}
func (late) NotCharged() bool { return true }
func (late) Unwrap() error    { return context.DeadlineExceeded }

// await decides a charge by its pool, waiting for a reservation if need be. It reports false if the shared store
// has to decide, because the lease has ended or a reservation has failed.
func (s *Store) await(ctx context.Context, wait time.Duration, began int64, p *pool, c *sluice.Charge, r *sluice.Receipt) (decided bool, err error) {
	for tries := 0; ; tries++ {
		pending := s.try(p, c, r)
		switch {
		case pending == nil:
			return r.Origin == sluice.ByLease, nil
		case wait == 0:
			return false, late{}
		case tries == 0:
			p.wait(c.Cost)
			defer p.wait(-c.Cost)
		}
		if err := s.waitFor(ctx, wait, began, pending.over); err != nil {
			return false, err
		}
		if pending.err != nil {
			return false, nil
		}
	}
}

// waitFor waits for a reservation until the wait is over. The start of the wait is by the clock s.now.
func (s *Store) waitFor(ctx context.Context, wait time.Duration, start int64, pending <-chan struct{}) error {
	var over <-chan time.Time
	if wait != unbounded {
		t := time.NewTimer(s.remains(wait, start))
		defer t.Stop()
		over = t.C
	}
	select {
	case <-pending:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-over:
		return late{}
	}
}

// try decides a charge by its pool, or returns the reservation to wait for, which it starts if necessary. If the
// shared store has to decide instead, try returns nil, and the receipt's Origin is not ByLease.
func (s *Store) try(p *pool, c *sluice.Charge, r *sluice.Receipt) (pending *fetching) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r.Origin = sluice.ByStore
	at := s.now()
	b, first, low, ok := p.spend(c.Cost, at)
	switch {
	case ok:
		if low {
			s.fetchLocked(p, at, 0)
		}
		b.admit(r, b.latest(at), b.n-first-c.Cost+p.queued.Load())
		return nil
	case p.dead.Load():
		return nil
	case p.refuses(c.Cost, at):
		p.refuse(c, r, at)
		return nil
	case p.draining(at):
		p.refused += c.Cost // counted as demand
		return nil
	}
	if s.fetchLocked(p, at, c.Cost); p.fetching == nil {
		p.refused += c.Cost
		return nil // reserving is not worth it, or s is being closed
	}
	return p.fetching
}

// refuse writes the receipt of a charge that has to wait. p.mu is held.
func (p *pool) refuse(c *sluice.Charge, r *sluice.Receipt, at int64) {
	p.refused += c.Cost
	k, wait := &p.known, p.again-at
	now := k.receipt.Now + max(0, at-k.back-1)
	*r = refused(p.plan, c.Cost, now, wait)
	var last sluice.Receipt
	switch {
	case k.back == 0:
		return
	case p.plan.Kernel != kernel.Meter:
		p.plan.Step(kernel.State{Tick: k.receipt.Tick, Used: k.receipt.Used, Prev: k.receipt.Prev}, now, 0, &last.Receipt)
	case k.receipt.Used <= p.plan.Size:
		return
	default: // the level is above the limit
		last = sluice.Receipt{Receipt: kernel.Receipt{Now: now, Used: drained(p.plan, k.receipt.Used, k.receipt.Now, now)}}
	}
	// The wait for a window or a debt may be longer than the time until the pool calls the store again.
	last.Fits, last.Origin = false, sluice.ByLease
	if p.plan.Decide(c.Cost, last).RetryAfter > p.plan.Decide(c.Cost, *r).RetryAfter {
		*r = last
	}
}

// renew starts a reservation of more units.
func (s *Store) renew(p *pool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.dead.Load() {
		s.fetchLocked(p, s.now(), 0)
	}
}

// fetchLocked starts a reservation, unless one is under way or no units are needed. p.mu is held.
func (s *Store) fetchLocked(p *pool, at, need int64) {
	if p.fetching != nil || need == 0 && at < p.again || p.draining(at) {
		return
	}
	p.measure(at)
	if !p.worthwhile(at) {
		return
	}
	p.tidy(at)
	n, all := p.wants(at, need)
	if n <= 0 || !s.track() {
		return
	}
	p.fetching = newFetching()
	go s.fetch(p, n, all, need)
}
