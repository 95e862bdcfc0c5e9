package main

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/sluicehq/sluice/failover"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/redisstore"
	"github.com/sluicehq/sluice/stores"
)

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
	return storeSettings{url: stores.Memory, timeout: period(failover.DefaultDeadline), memory: 64 << 20}
}

func (s *storeSettings) flags(f *pflag.FlagSet) {
	f.StringVar(&s.url, "store", s.url, "where counters live: \"memory\", or the `URL` of a Redis or Valkey: redis://, rediss://, redis-cluster://, redis-sentinel://, unix://")
	f.Var(&s.timeout, "store-timeout", "longest wait for the store; then each rule's on_error decides")
	f.IntVar(&s.instances, "instances", 0, "how many instances share a limit while the store is away; 0 means as many as were last seen")
	f.BoolVar(&s.required, "require-store", false, "exit if the store is unreachable at startup")
	f.Var(&s.memory, "memory-size", "most memory for counters: those of --store memory, or of the stand-in while another store is away")
	f.BoolVar(&s.refuseNew, "refuse-new-keys", false, "when the memory of --memory-size is full of keys above half of their limit, refuse new keys rather than evict one of those")
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

// open opens the store. Asked is told of what a shared one is asked for.
func (s *storeSettings) open(ctx context.Context, log *slog.Logger, asked func(time.Duration, error)) (*stores.Store, error) {
	return stores.Open(ctx, s.url, stores.Config{
		Memory:    memory.Config{MaxBytes: int64(s.memory), RefuseNew: s.refuseNew},
		Deadline:  time.Duration(s.timeout),
		Instances: s.instances,
		Required:  s.required,
		Logger:    log,
		Asked:     asked,
	})
}

// logCrossSlot says if there are rules that a cluster cannot charge in one step.
func logCrossSlot(log *slog.Logger, store *stores.Store, p *policy.Policy) {
	if !store.Cluster() {
		return
	}
	if _, apart := p.Cluster(); len(apart) > 0 {
		log.Info("the cluster charges some rules one after the other: see sluice validate --cluster", "rules", len(apart), "problem", apart[0].String())
	}
}

// logEvicted warns if new keys of one rule can evict those of clients that have used up another.
func logEvicted(log *slog.Logger, store *stores.Store, p *policy.Policy) {
	if !store.EvictsByExpiry() {
		return
	}
	if short, long := outlived(p.Plans()); len(short) > 0 {
		log.Warn("maxmemory-policy is volatile-ttl: when memory is full, a flood of new keys of one rule frees clients that have used up others, whose keys expire sooner; set it to noeviction, or give the rules periods of similar length",
			"flooded", long, "freed", strings.Join(short, ", "))
	}
}

// outlived returns the rule whose new keys are kept the longest, and the rules whose keys are kept for a
// shorter time even where all is used up.
func outlived(plans []policy.RulePlan) (short []string, long string) {
	var longest time.Duration
	for _, r := range plans {
		if first, _ := redisstore.Kept(r.Plan); first > longest {
			longest, long = first, r.Rule
		}
	}
	for _, r := range plans {
		if _, last := redisstore.Kept(r.Plan); last < longest && !slices.Contains(short, r.Rule) {
			short = append(short, r.Rule)
		}
	}
	return short, long
}
