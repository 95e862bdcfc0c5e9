package synced

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

// Shared is a store that a [Store] can wrap. The methods have the contract of failover.Shared. A Shared may also
// have the method TakeEachWithin of failover.SharedEach.
type Shared interface {
	TakeWithin(ctx context.Context, wait time.Duration, charges []sluice.Charge, receipts []sluice.Receipt) error
	Shard(key string) int
	Heartbeat(ctx context.Context, id string) (instances int, err error)
}

type sharedEach interface {
	TakeEachWithin(ctx context.Context, wait time.Duration, calls []sluice.TakeCall)
}

// maxPools is the maximum number of keys that are counted locally. [Store.Keys] returns the present number.
const maxPools = 1 << 16

const shards = 64

// Store decides [sluice.Synced] charges itself: see the package's documentation. It is a failover.SharedEach, and
// safe for concurrent use.
type Store struct {
	shared Shared
	base   time.Time // when clock was 0
	seed   maphash.Seed
	tables [shards]table
	pools  atomic.Int64 // number of pools in the tables
	serial atomic.Int64 // serial number of the newest pool
	takes  sync.Pool    // of *take
	plans  sync.Map     // *counted by *sluice.Plan
	known  atomic.Int64 // number of plans in plans
	fleet  fleet
	// siblings are the plans that share states.
	siblings kernel.Siblings

	stop    context.CancelFunc
	running sync.WaitGroup
	closed  atomic.Bool
}

type table struct {
	mu    sync.Mutex
	pools map[stateID]*pool
}

// stateID is the identity of a state.
type stateID struct {
	key         string
	fingerprint uint64
}

// New returns a Store that wraps a shared store. Call Close when done.
func New(shared Shared) *Store {
	s := &Store{shared: shared, base: time.Now().Add(-time.Microsecond), seed: maphash.MakeSeed()}
	for i := range s.tables {
		s.tables[i].pools = map[stateID]*pool{}
	}
	s.takes.New = func() any { return new(take) }
	ctx, stop := context.WithCancel(context.Background())
	s.stop = stop
	s.running.Go(func() { s.keepReporting(ctx) })
	return s
}

// Close waits for reports that are under way, and then reports all unreported units to the shared store. Each report
// takes at most a second. Close does not close the shared store, to which later Takes are passed on. Call Close when
// no Take is running.
func (s *Store) Close() {
	if s.closed.Swap(true) {
		return
	}
	s.stop()
	s.running.Wait()
	s.reportLast()
}

// Shard implements failover.Shared.
func (s *Store) Shard(key string) int { return s.shared.Shard(key) }

// Heartbeat implements failover.Shared.
func (s *Store) Heartbeat(ctx context.Context, id string) (instances int, err error) {
	if instances, err = s.shared.Heartbeat(ctx, id); err == nil {
		s.fleet.counted(instances, s.clock())
	}
	return instances, err
}

// Instances returns the assumed number of instances that share the store, from the last heartbeats. In the first
// three seconds, and without a heartbeat, it is at least 4.
func (s *Store) Instances() int { return s.fleet.assumed(s.clock()) }

// ObserveCalls implements failover.Observable for the shared store.
func (s *Store) ObserveCalls(listener func(c *sluice.Charge, r *sluice.Receipt)) {
	if o, ok := s.shared.(interface {
		ObserveCalls(func(*sluice.Charge, *sluice.Receipt))
	}); ok {
		o.ObserveCalls(listener)
	}
}

// clock returns the time of this Store, which is never 0.
func (s *Store) clock() time.Duration { return time.Since(s.base) }

// maxPlans bounds the remembered plans. Plans change only when policies do.
const maxPlans = 1 << 14

// counts reports whether this Store decides a charge itself.
func (s *Store) counts(c *sluice.Charge) bool {
	if c.Consistency != sluice.Synced || c.Plan == nil || c.Plan.Tick < 1 || s.closed.Load() {
		return false
	}
	return s.counted(c.Plan).can
}

// counted describes how a plan is counted locally.
type counted struct {
	can  bool
	wide atomic.Pointer[wide]
}

// wide has the plan by which states that several instances share are counted. The plan has room for the units that
// a state keeps anyway (most), and for the units by which the instances together can exceed the limit.
type wide struct {
	instances int
	most      int64
	plan      *sluice.Plan
}

func (s *Store) counted(p *sluice.Plan) *counted {
	if known, ok := s.plans.Load(p); ok {
		return known.(*counted)
	}
	c := &counted{can: Can(p) == nil}
	if s.known.Add(1) > maxPlans {
		s.plans.Clear()
		s.known.Store(1)
	}
	s.plans.Store(p, c)
	return c
}

// widened returns the plan by which the states of p are counted for the given number of instances. [Can] must
// accept p.
func (s *Store) widened(p *sluice.Plan, instances int) *sluice.Plan {
	c, most := s.counted(p), s.siblings.Most(&p.Plan)
	if w := c.wide.Load(); w != nil && w.instances == instances && w.most == most {
		return w.plan
	}
	w := &wide{instances, most, widened(p, most, instances)}
	c.wide.Store(w)
	return w.plan
}

// pin returns the pool of a charge, or nil if there are too many pools. The pool is kept until its release.
func (s *Store) pin(c *sluice.Charge, at time.Duration) *pool {
	id := stateID{c.Key, c.Plan.Fingerprint}
	t := s.table(c.Key)
	t.mu.Lock()
	p := t.pools[id]
	if p == nil {
		if s.pools.Load() >= maxPools {
			t.mu.Unlock()
			return nil
		}
		s.pools.Add(1)
		id.key = strings.Clone(c.Key)
		p = &pool{serial: s.serial.Add(1)}
		t.pools[id] = p
	}
	p.mu.Lock()
	t.mu.Unlock()
	p.use(s, c.Plan)
	p.pins++
	p.asked = at
	p.mu.Unlock()
	return p
}

func (p *pool) release() {
	p.mu.Lock()
	p.pins--
	p.mu.Unlock()
}

func (s *Store) table(key string) *table { return &s.tables[maphash.String(s.seed, key)%shards] }

// Keys returns the number of keys that are counted locally.
func (s *Store) Keys() int { return int(s.pools.Load()) }
