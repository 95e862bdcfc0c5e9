package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/spf13/pflag"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/failover"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/redisstore"
)

// inMemory is the word for counts that this process keeps for itself.
const inMemory = "memory"

const leastMemory = 64 << 10

// storeSettings say where counters live.
type storeSettings struct {
	url       string
	timeout   period
	instances int
	required  bool
	memory    size
	refuseNew bool
}

func newStoreSettings() storeSettings {
	return storeSettings{url: inMemory, timeout: period(failover.DefaultDeadline), memory: 64 << 20}
}

func (s *storeSettings) flags(f *pflag.FlagSet) {
	f.StringVar(&s.url, "store", s.url, "where counters live: \"memory\", or the `URL` of a Redis or Valkey: redis://, rediss://, redis-cluster://, redis-sentinel://, unix://")
	f.Var(&s.timeout, "store-timeout", "longest wait for the store; then each rule's on_error decides")
	f.IntVar(&s.instances, "instances", 0, "how many instances share a limit while the store is away; 0 means as many as were last seen")
	f.BoolVar(&s.required, "require-store", false, "exit if the store is unreachable at startup")
	f.Var(&s.memory, "memory-size", "most memory for counters: those of --store memory, or of the stand-in while another store is away")
	f.BoolVar(&s.refuseNew, "refuse-new-keys", false, "when that memory is full of keys above half of their limit, refuse new keys rather than evict one of those")
}

func (s *storeSettings) check() error {
	switch {
	case s.timeout == 0:
		return errors.New("--store-timeout must not be 0: a store that hangs would hold every request")
	case s.memory < leastMemory:
		return errors.New("--memory-size must be at least 64KiB")
	case s.instances < 0:
		return errors.New("--instances must not be negative: 0 means as many as were last seen")
	}
	return nil
}

// openStore is a store that has been opened, and what comes with it if it is shared.
type openStore struct {
	sluice.Store
	where    string          // without secrets
	failover *failover.Store // nil if it is not shared
	memory   *memory.Store   // what counts here, or stands in
	cluster  bool
	close    func()
}

// open opens the store. A shared one that cannot be reached yet is not an error unless
// it is required; one that could never be reached with these settings is.
func (s *storeSettings) open(ctx context.Context, log *slog.Logger) (*openStore, error) {
	if s.url == inMemory {
		local := s.local()
		return &openStore{Store: local, where: inMemory, memory: local, close: func() {}}, nil
	}
	config, err := redisstore.ParseURL(s.url)
	if err != nil {
		return nil, err
	}
	shared, err := config.Open(ctx)
	switch k := kind(err); {
	case err != nil && s.required && k == redisstore.Unavailable:
		return nil, fmt.Errorf("%w: start the server, or correct the URL", err)
	case err != nil && (s.required || k == 0 || k == redisstore.Misconfigured || k == redisstore.Denied):
		return nil, err
	}
	if err == nil {
		logDangers(ctx, log, shared)
		return s.failOver(config, shared, func() { _ = shared.Close() }, log), nil
	}
	log.Warn("the store cannot be reached: each rule's on_error decides until it can; start it, or correct --store", "store", config.String(), "error", err)
	later := failover.OpenLater(opener(config, err, log))
	return s.failOver(config, later, func() { _ = later.Close() }, log), nil
}

// opener returns a function that opens a store that could not be opened because of problem.
// It says so where there is another kind of problem than before.
func opener(config redisstore.Config, problem error, log *slog.Logger) func(context.Context) (failover.Shared, error) {
	last := kind(problem)
	return func(ctx context.Context) (failover.Shared, error) {
		shared, err := config.Open(ctx)
		if err != nil {
			if k := kind(err); k != last && ctx.Err() == nil {
				last = k
				log.Warn("the store still cannot be reached, for another reason", "store", config.String(), "error", err)
			}
			return nil, err
		}
		logDangers(ctx, log, shared)
		return shared, nil
	}
}

func kind(err error) redisstore.Kind {
	if e, ok := errors.AsType[*redisstore.Error](err); ok {
		return e.Kind
	}
	return 0
}

func (s *storeSettings) local() *memory.Store {
	return memory.Config{MaxBytes: int64(s.memory), RefuseNew: s.refuseNew}.New()
}

func (s *storeSettings) failOver(config redisstore.Config, shared failover.Shared, closeShared func(), log *slog.Logger) *openStore {
	local := s.local()
	f := failover.New(shared, failover.Config{Deadline: time.Duration(s.timeout), Instances: s.instances, Local: local, Logger: log})
	return &openStore{Store: f, where: config.String(), failover: f, memory: local, cluster: config.Cluster, close: func() {
		f.Close()
		closeShared()
	}}
}

// logDangers says what about a server is dangerous for limits.
func logDangers(ctx context.Context, log *slog.Logger, s *redisstore.Store) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	found, err := s.Dangers(ctx)
	if err != nil {
		log.Warn("the store's settings could not be read", "error", err)
	}
	for _, d := range found {
		log.Warn("the store is set up dangerously", "danger", d)
	}
}

// shared reports whether the shared store answers; memory always does.
func (o *openStore) shared() bool {
	return o.failover == nil || !o.failover.Status().Degraded()
}

// logCrossSlot says if there are rules that a cluster cannot charge in one step.
func (o *openStore) logCrossSlot(log *slog.Logger, p *policy.Policy) {
	if !o.cluster {
		return
	}
	if _, apart := p.Cluster(); len(apart) > 0 {
		log.Info("the cluster charges some rules one after the other: see sluice validate --cluster", "rules", len(apart), "problem", apart[0].String())
	}
}

// Losses of the memory are looked for every second and told once a minute at most.
const (
	lossesLooked = time.Second
	lossesTold   = time.Minute
)

// watch says in the log when more keys are limited than the memory has room for, until ctx ends.
func (o *openStore) watch(ctx context.Context, log *slog.Logger) {
	ticker := time.NewTicker(lossesLooked)
	defer ticker.Stop()
	var told memory.Losses
	var next time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			l := o.memory.Losses()
			if l.Freed == told.Freed && l.Refused == told.Refused || now.Before(next) {
				continue
			}
			log.Warn("more keys are limited than the memory has room for: find out who sends so many, or raise --memory-size",
				"freed", l.Freed-told.Freed, "refused", l.Refused-told.Refused)
			told, next = l, now.Add(lossesTold)
		}
	}
}
