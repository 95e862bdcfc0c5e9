package server

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/spf13/pflag"

	"github.com/sluicehq/sluice/cmd/internal/command"
	"github.com/sluicehq/sluice/failover"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/stores"
)

const leastMemory = 64 << 10

// storeSettings configure the store of the counters.
type storeSettings struct {
	url           string
	timeout       command.Duration
	instances     int
	required      bool
	memory        command.Size
	refuseNew     bool
	degradedField bool
}

func (s *storeSettings) addFlags(f *pflag.FlagSet) {
	s.timeout, s.memory = command.Duration(failover.DefaultDeadline), 64<<20
	f.StringVar(&s.url, "store", stores.Memory, "where counters are stored: \"memory\", or the `URL` of a Redis or Valkey server: redis://, rediss://, redis-cluster://, redis-sentinel://, unix://")
	f.Var(&s.timeout, "store-timeout", "maximum wait for the store; after that, each rule's on_error decides")
	f.IntVar(&s.instances, "instances", 0, "number of instances among which a limit is divided while the store is unavailable; 0 means the number that was last seen")
	f.BoolVar(&s.required, "require-store", false, "exit if the store is unreachable at startup")
	f.Var(&s.memory, "memory-size", "maximum memory for counters: all of them with --store memory, otherwise those that this instance keeps while the store is unavailable")
	f.BoolVar(&s.refuseNew, "refuse-new-keys", false, "when memory is full of keys that have used more than half of their limit, deny requests with new keys; without this flag, one of the old keys is evicted")
	f.BoolVar(&s.degradedField, "degraded-field", false, "add X-RateLimit-Degraded: true to the responses to requests that were decided without the store")
}

func (s *storeSettings) check() error {
	switch {
	case s.timeout == 0:
		return errors.New("--store-timeout must not be 0: a store that hangs would block every request")
	case s.memory < leastMemory:
		return errors.New("--memory-size must be at least 64KiB")
	case s.instances < 0:
		return errors.New("--instances must not be negative: 0 means as many as were last seen")
	}
	return nil
}

// open opens the store. onCall runs after each call to a shared store.
func (s *storeSettings) open(ctx context.Context, log *slog.Logger, onCall func(time.Duration, error)) (*stores.Store, error) {
	return stores.Open(ctx, s.url, stores.Config{
		Memory:    memory.Config{MaxBytes: int64(s.memory), RefuseNew: s.refuseNew},
		Deadline:  time.Duration(s.timeout),
		Instances: s.instances,
		Required:  s.required,
		Logger:    log,
		OnCall:    onCall,
	})
}
