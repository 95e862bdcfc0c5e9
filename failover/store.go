package failover

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/seldom"
	"github.com/sluicehq/sluice/memory"
)

// Config is how a [Store] fails over. The zero value works for one instance, and for several if the shared store
// counts them by heartbeats.
type Config struct {
	// Deadline is the longest time that a decision waits for the shared store. Zero means [DefaultDeadline].
	Deadline time.Duration
	// MaxCalls is the largest number of decisions that wait for the shared store at the same time. Further
	// decisions are made at once: by the shared store if it can decide without a call to its server, and otherwise
	// locally. Zero means [DefaultMaxCalls].
	MaxCalls int
	// Instances is the number of instances among which a limit is divided while the shared store is unavailable.
	// Zero means the number at the last heartbeat: see [Shared]. If that number is unknown, too, limits are not
	// divided.
	Instances int
	// Local is the fallback. Its Take is called under a lock and has to return at once. Do not charge this store in
	// any other way. Nil means a new memory store.
	Local sluice.Store
	// Logger gets one line for each change of state, and warnings about unreadable keys, failed heartbeats and, at
	// most once a minute for each part of the shared store, failed calls. Nil means [slog.Default].
	Logger *slog.Logger
	// OnCall, if not nil, is called after each call to the shared store with the duration and the error of the
	// call, on the goroutine of the caller, which waits for OnCall to return. It is not called for decisions from
	// memory, for calls that their caller canceled, or for errors that match [sluice.ErrUsage]. For a
	// [Store.TakeEach], OnCall is called once for each of its Takes, with the duration of the whole call.
	OnCall func(took time.Duration, err error)
}

// Defaults of a [Config]. A store in the same region that does not answer within 50 ms is probably unavailable and not
// just slow, and callers can afford to wait for that long.
const (
	DefaultDeadline = 50 * time.Millisecond
	DefaultMaxCalls = 1024
)

// Store is a [sluice.Store] that always answers. See the package's documentation.
type Store struct {
	shared         Shared
	local          sluice.Store
	deadline       time.Duration
	maxCalls       int64
	log            *slog.Logger
	warnings       seldom.Gate // for logging failed calls to several shards
	onCall         func(took time.Duration, err error)
	id             string // the ID of this instance
	countInstances bool   // instances is counted by heartbeats, and not configured
	instances      atomic.Int64
	calls          atomic.Int64 // calls under way
	shards         atomic.Pointer[[]*shard]
	growing        sync.Mutex
	recent         *recent
	ledger         ledger
	batches        sync.Pool // of *batch
	count          counters

	complaints complaints

	ctx     context.Context // the context of the goroutines
	cancel  context.CancelFunc
	running sync.WaitGroup
}

// New returns a Store that wraps shared with a deadline, a circuit breaker and a local fallback. Call Close when
// done.
func New(shared Shared, c Config) *Store {
	s := &Store{
		shared:   shared,
		local:    c.Local,
		deadline: c.Deadline,
		maxCalls: int64(c.MaxCalls),
		log:      c.Logger,
		onCall:   c.OnCall,
		id:       rand.Text(),
		recent:   newRecent(),
	}
	if s.deadline <= 0 {
		s.deadline = DefaultDeadline
	}
	if s.maxCalls <= 0 {
		s.maxCalls = DefaultMaxCalls
	}
	if s.local == nil {
		s.local = memory.New()
	}
	if s.log == nil {
		s.log = slog.Default()
	}
	s.batches.New = func() any { return new(batch) }
	s.ledger.entries = map[stateID]*entry{}
	s.countInstances = c.Instances <= 0
	s.instances.Store(int64(max(1, c.Instances)))
	s.ctx, s.cancel = context.WithCancel(context.Background())
	first := s.grow(1)[0]
	if p, ok := shared.(*Lazy); ok && !p.Ready() {
		first.trip(p.reason.Load())
	}
	observeCalls(shared, s.saw)
	s.running.Go(s.writeBack)
	s.running.Go(s.watchIdle)
	return s
}

// Instances returns the number of instances among which limits are divided while the shared store is unavailable.
func (s *Store) Instances() int64 { return s.instances.Load() }

// Close ends all background work. It closes neither the shared store nor the fallback. Units that have not been
// written back by then are lost.
func (s *Store) Close() {
	s.growing.Lock()
	s.cancel()
	s.growing.Unlock()
	s.running.Wait()
}

// Take calls the shared store, or decides without it by each charge's OnError; the receipts' Origin shows which. It
// returns no error of the shared store, except one that matches [sluice.ErrUsage], such as for too many charges. It
// also returns an error if charges break the contract, or if the context has ended; in the latter case, it is unknown
// whether anything was charged. A fallback other than a memory store may also return errors.
func (s *Store) Take(ctx context.Context, charges []sluice.Charge, receipts []sluice.Receipt) error {
	if err := sluice.CheckCharges(charges, receipts); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil || len(charges) == 0 {
		return err
	}
	var buf [4]*shard
	shards := s.touched(buf[:0], charges)
	if !s.usable(shards, charges) {
		return s.insteadOfShared(ctx, charges, receipts, true)
	}
	err := s.ask(ctx, charges, receipts)
	if err == nil {
		for _, h := range s.record(shards, charges, receipts) {
			h.succeeded()
		}
		return nil
	}
	if gone := ctx.Err(); gone != nil {
		// The caller did not wait, which proves little about the store, but is a reason to probe.
		suspect(shards)
		return gone
	}
	if errors.Is(err, sluice.ErrUsage) {
		return err
	}
	s.failed(shards, err)
	return s.insteadOfShared(ctx, charges, receipts, notCharged(err))
}

// insteadOfShared makes and counts a local decision.
func (s *Store) insteadOfShared(ctx context.Context, charges []sluice.Charge, receipts []sluice.Receipt, owed bool) error {
	s.count.local.Add(1)
	return s.decideLocally(ctx, charges, receipts, owed)
}

// ask calls the shared store within the deadline. If MaxCalls calls are under way, it accepts only decisions that
// need no server.
func (s *Store) ask(ctx context.Context, charges []sluice.Charge, receipts []sluice.Receipt) error {
	defer s.calls.Add(-1)
	if s.calls.Add(1) > s.maxCalls {
		err := s.shared.TakeWithin(ctx, 0, charges, receipts)
		if err != nil && !errors.Is(err, sluice.ErrUsage) {
			return errBusy
		}
		return err
	}
	began := time.Now()
	err := s.shared.TakeWithin(ctx, s.deadline, charges, receipts)
	if _, odd := unreadable(err); odd {
		within, cancel := context.WithDeadline(ctx, began.Add(s.deadline))
		defer cancel()
		err = s.withoutUnreadable(within, err, charges, receipts)
	}
	s.reportCall(ctx, began, err, receipts)
	return err
}

// reportCall calls OnCall after a call of the shared store.
func (s *Store) reportCall(ctx context.Context, began time.Time, err error, receipts []sluice.Receipt) {
	switch {
	case s.onCall == nil:
	case err == nil && remembered(receipts):
	case err != nil && (ctx.Err() != nil || errors.Is(err, sluice.ErrUsage)):
	default:
		s.onCall(time.Since(began), err)
	}
}

// remembered reports whether the shared store has made all decisions from memory, without its server.
func remembered(receipts []sluice.Receipt) bool {
	return !slices.ContainsFunc(receipts, func(r sluice.Receipt) bool { return !fromMemory(r.Origin) })
}

// fromMemory reports whether a charge was decided from memory, which does not prove that the server is alive.
func fromMemory(o sluice.Origin) bool {
	return o == sluice.ByDenyCache || o == sluice.ByLease || o == sluice.BySync
}

// record records the answers of the shared store, and returns the shards that have answered. Decisions from memory
// are not answers of a shard.
func (s *Store) record(shards []*shard, charges []sluice.Charge, receipts []sluice.Receipt) []*shard {
	s.count.shared.Add(1)
	remembered := false
	for i := range charges {
		o := receipts[i].Origin
		remembered = remembered || fromMemory(o)
		s.saw(&charges[i], &receipts[i])
	}
	if remembered {
		shards = s.answered(shards[:0], charges, receipts)
	}
	return shards
}

// saw remembers the state of a key, with which a local allowance starts.
func (s *Store) saw(c *sluice.Charge, r *sluice.Receipt) {
	if r.Origin != sluice.ByStore && r.Origin != sluice.BySync { // the receipt of a lease has only the units of this instance
		return
	}
	if c.OnError == sluice.Local && !c.Plan.Once {
		s.recent.put(c, *r)
	}
}

// answered appends the shards of the charges that were not decided from memory.
func (s *Store) answered(dst []*shard, charges []sluice.Charge, receipts []sluice.Receipt) []*shard {
	for i := range charges {
		if !fromMemory(receipts[i].Origin) {
			dst = s.touched(dst, charges[i:i+1])
		}
	}
	return dst
}

func (s *Store) failed(shards []*shard, err error) {
	s.count.failed(err)
	if err == errBusy {
		return
	}
	s.logFailure(shards, err)
	if len(shards) == 1 {
		shards[0].failed(err)
		return
	}
	suspect(shards) // only a probe shows which of several shards has failed
}

// usable reports whether to call the shared store. It returns true if every shard is in use and, while one of them is
// settling, no key has a debt that must be written back first.
func (s *Store) usable(shards []*shard, charges []sluice.Charge) bool {
	settling := false
	for _, h := range shards {
		if !h.inUse.Load() {
			return false
		}
		settling = settling || h.settling.Load()
	}
	return !settling || !s.ledger.anyPending(charges)
}
