// Package stores opens the store that a URL names, for use in a service. It adds a fallback for outages of a shared
// store, can start while that store is unavailable, and logs warnings. "sluice serve --store" uses it. It imports
// packages failover, synced, lease, redisstore and memory.
//
//	store, err := stores.Open(ctx, "redis://localhost:6379", stores.Config{})
//	defer store.Close()
//	engine := policy.NewEngine(store, rules)
//
// If you need only some of these packages, use memory, redisstore and failover directly.
package stores

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/failover"
	"github.com/sluicehq/sluice/lease"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/redisstore"
	"github.com/sluicehq/sluice/synced"
)

// Memory is the word to pass to [Open] in place of a URL, for counts in the memory of this process.
const Memory = "memory"

// Config has the settings of a [Store]. The zero value is a good default.
type Config struct {
	// Memory has the settings of the memory store. This is the store itself if Open is called with the word
	// [Memory], and otherwise the fallback.
	Memory memory.Config
	// Deadline is the longest time that a decision waits for a shared store: see [failover.Config].
	Deadline time.Duration
	// Instances is the number of instances that divide a limit while the shared store is unavailable: see
	// [failover.Config].
	Instances int
	// Required makes [Open] fail if the shared store cannot be reached. Otherwise, each charge's OnError decides
	// until the shared store can be reached.
	Required bool
	// Logger gets warnings about dangerous settings of the server and about its errors, and a line for each change
	// between available and unavailable. At most once a minute, it also gets a warning about failed calls for each
	// shard of a shared store, and one about keys for which memory has no room. Nil means slog.Default().
	Logger *slog.Logger
	// OnCall is called after each call to a shared store: see [failover.Config].
	OnCall func(took time.Duration, err error)
}

// Store is a [sluice.Store] that answers even while a shared store is unavailable.
type Store struct {
	store    sluice.Store
	name     string
	failover *failover.Store
	memory   *memory.Store
	cluster  bool
	log      *slog.Logger

	shared      atomic.Pointer[redisstore.Store] // nil until it is open
	opened      chan struct{}                    // see Opened
	byExpiry    atomic.Bool                      // see EvictsByExpiry
	closeShared func() error
	stop        context.CancelFunc
	watching    sync.WaitGroup
}

// Open opens the store that a URL names (see [redisstore.ParseURL] for the forms), or, with the word [Memory], a
// memory store. It takes about five seconds at most. If a shared store cannot be reached, Open returns an error only
// with Required; otherwise, the Store tries again in the background. For settings that can never work, the error
// suggests a change. Close the store when done.
func Open(ctx context.Context, url string, c Config) (*Store, error) {
	c.Logger = cmp.Or(c.Logger, slog.Default())
	local := c.Memory.New()
	if url == Memory {
		return start(&Store{store: local, name: Memory, memory: local, log: c.Logger}), nil
	}
	config, err := redisstore.ParseURL(url)
	if err != nil && strings.HasPrefix(url, Memory) {
		err = fmt.Errorf("%w; for the memory of this process, write only %q", err, Memory)
	}
	if err != nil {
		return nil, err
	}
	s := &Store{name: config.String(), memory: local, cluster: config.Cluster, log: c.Logger, opened: make(chan struct{})}
	shared, err := s.reach(ctx, config, c.Required)
	if err != nil {
		return nil, err
	}
	s.failover = failover.New(shared, failover.Config{Deadline: c.Deadline, Instances: c.Instances, Local: local, Logger: c.Logger, OnCall: c.OnCall})
	s.store, s.closeShared = s.failover, shared.Close
	return start(s), nil
}

// Take implements [sluice.Store].
func (s *Store) Take(ctx context.Context, charges []sluice.Charge, receipts []sluice.Receipt) error {
	return s.store.Take(ctx, charges, receipts)
}

// TakeEach implements [sluice.EachTaker].
func (s *Store) TakeEach(ctx context.Context, calls []sluice.TakeCall) {
	sluice.TakeEach(ctx, s.store, calls)
}

// String returns the URL without secrets, or the word [Memory].
func (s *Store) String() string { return s.name }

// Memory returns the memory store, which is the fallback of a shared store.
func (s *Store) Memory() *memory.Store { return s.memory }

// Failover returns the failover.Store in front of a shared store, or nil for memory.
func (s *Store) Failover() *failover.Store { return s.failover }

// Cluster reports whether the store is a Redis or Valkey Cluster.
func (s *Store) Cluster() bool { return s.cluster }

// EvictsByExpiry reports whether the shared store's settings, when it was opened, made it evict the keys that expire
// first: see [redisstore.Store.EvictsByExpiry].
func (s *Store) EvictsByExpiry() bool { return s.byExpiry.Load() }

// Opened returns a channel that is closed as soon as a shared store is open and its settings have been read: see
// EvictsByExpiry. For memory, it returns nil.
func (s *Store) Opened() <-chan struct{} { return s.opened }

// Instances returns the number of instances that divide a limit while the shared store is unavailable. It is 1 for
// memory.
func (s *Store) Instances() int64 {
	if s.failover == nil {
		return 1
	}
	return s.failover.Instances()
}

// Answers reports whether the store answers, including all shards of a shared store. Memory always does.
func (s *Store) Answers() bool { return s.failover == nil || !s.failover.Status().Degraded() }

// Close ends the work in the background, and closes the connections.
func (s *Store) Close() error {
	s.stop()
	s.watching.Wait()
	if s.failover == nil {
		return nil
	}
	s.failover.Close()
	return s.closeShared()
}

// closer is a shared store that can be closed.
type closer interface {
	failover.Shared
	Close() error
}

// layered is a shared store behind the layers that count in this process: synced and lease.
type layered struct {
	*synced.Store
	leased *lease.Store
	shared *redisstore.Store
}

// layer puts these layers in front of a shared store.
func layer(shared *redisstore.Store) *layered {
	leased := lease.New(shared)
	return &layered{synced.New(leased), leased, shared}
}

// Close reports to the shared store the units that it has not counted yet, and closes it.
func (l *layered) Close() error {
	l.Store.Close()
	l.leased.Close()
	return l.shared.Close()
}

// reach opens the shared store. If it is unavailable but not required, the store that reach returns opens it later.
func (s *Store) reach(ctx context.Context, config redisstore.Config, required bool) (closer, error) {
	shared, err := config.Open(ctx)
	if err == nil {
		return s.use(ctx, shared), nil
	}
	switch k := kind(err); {
	case required && k == redisstore.Unavailable:
		return nil, fmt.Errorf("%w: start the server, or correct the URL", err)
	case required, k == 0, k == redisstore.Misconfigured, k == redisstore.Denied:
		return nil, err
	}
	s.log.Warn("the store is unavailable: each rule's on_error decides until it is available; start it, or correct its URL", "store", s.name, "error", err)
	return failover.OpenLater(s.opener(config, err)), nil
}

// opener returns a function that tries again to open a store. The parameter problem is the error of the first
// attempt. The function logs an error if it is of another kind than the previous one.
func (s *Store) opener(config redisstore.Config, problem error) func(context.Context) (failover.Shared, error) {
	last := kind(problem)
	return func(ctx context.Context) (failover.Shared, error) {
		shared, err := config.Open(ctx)
		if err != nil {
			if k := kind(err); k != last && ctx.Err() == nil {
				last = k
				s.log.Warn("the store is still unavailable, for another reason", "store", s.name, "error", err)
			}
			return nil, err
		}
		return s.use(ctx, shared), nil
	}
}

// use sets the shared store, once it is open.
func (s *Store) use(ctx context.Context, shared *redisstore.Store) *layered {
	s.shared.Store(shared)
	s.logDangers(ctx, shared)
	close(s.opened)
	return layer(shared)
}
