package failover

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/failsafe-go/failsafe-go/circuitbreaker"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/seldom"
)

const (
	failureRate     = 0.5 // the fraction of failures, among at least minCalls calls in rateWindow, that opens the circuit
	minCalls        = 20
	rateWindow      = time.Second
	maxInRow        = 5 // this many failures without a success, over silentFor or longer, also open the circuit
	silentFor       = 300 * time.Millisecond
	minDelay        = 400 * time.Millisecond
	maxDelay        = 600 * time.Millisecond
	successes       = 3 // streaks of successful probes that close the circuit
	probePause      = 25 * time.Millisecond
	minRecovery     = 60 * time.Millisecond // how long all probes have to succeed before a shard is used again
	maxRecovery     = 900 * time.Millisecond
	flapping        = 5 * time.Second // if the circuit opens again within this time, probes have to succeed for longer
	settlingTime    = 2 * time.Second
	maxProbeKeys    = 4096
	maxShards       = 256
	warnEvery       = time.Minute // how often failed calls are logged, at most, for each shard
	probesPerSecond = 1000
)

// shard is a part of the shared store that fails independently, with its circuit breaker. Decisions read inUse, and
// record their results, which can open the circuit. All other work is done by the goroutine in watch.
type shard struct {
	s     *Store
	index int
	// inUse is true while the circuit is closed. settling is true for settlingTime after an outage.
	inUse, settling atomic.Bool
	circuit         circuitbreaker.CircuitBreaker[any]
	failuresInRow   atomic.Int64 // failures since the last success
	firstFailure    atomic.Int64 // the time of the first of these failures, in ns since the epoch
	wake            chan struct{}
	key             string      // the key that probes charge
	warnings        seldom.Gate // for logging failed calls

	mu       sync.Mutex // guards the fields below, and writes of inUse
	since    time.Time
	last     error         // the last failure
	recovery time.Duration // how long all probes have to succeed before the shard is used again: see minRecovery
}

func newShard(s *Store, index int) *shard {
	h := &shard{s: s, index: index, wake: make(chan struct{}, 1), since: time.Now()}
	h.inUse.Store(true)
	h.circuit = circuitbreaker.NewBuilder[any]().
		WithFailureRateThreshold(failureRate, minCalls, rateWindow).
		WithRandomDelay(minDelay, maxDelay).
		WithSuccessThreshold(successes).
		WithSuccessThresholdRatio(successes, successes).
		OnStateChanged(func(circuitbreaker.StateChangedEvent) { h.changed() }).
		Build()
	return h
}

func (h *shard) succeeded() {
	if h.failuresInRow.Load() != 0 {
		h.failuresInRow.Store(0)
	}
	if h.inUse.Load() {
		h.circuit.RecordSuccess()
	}
}

func (h *shard) failed(err error) {
	h.mu.Lock()
	h.last = err
	h.mu.Unlock()
	if !h.inUse.Load() {
		return
	}
	h.circuit.RecordFailure()
	now := time.Now().UnixNano()
	if n := h.failuresInRow.Add(1); n == 1 {
		h.firstFailure.Store(now)
	} else if n >= maxInRow && now-h.firstFailure.Load() >= int64(silentFor) {
		h.circuit.Open()
	}
	h.suspect()
}

// trip opens the circuit at once.
func (h *shard) trip(err error) {
	h.mu.Lock()
	h.last = err
	h.mu.Unlock()
	h.circuit.Open()
}

// logFailure logs a failed call, with the shards that it used and that have a closed circuit. It logs at most one call in
// warnEvery for each shard, and one for calls to several shards. Without this line, the log would have no error while
// the circuits stay closed.
func (s *Store) logFailure(shards []*shard, err error) {
	gate := &s.warnings
	if len(shards) == 1 {
		gate = &shards[0].warnings
	}
	var called []int
	for _, h := range shards {
		if h.inUse.Load() {
			called = append(called, h.index)
		}
	}
	if len(called) > 0 && gate.Opens(warnEvery) {
		s.log.Warn("a call to the shared store has failed", "shards", called, "error", err)
	}
}

// suspect requests a probe. If calls are few, or callers cancel them before the deadline (which is not a failure), only
// failed probes open the circuit.
func (h *shard) suspect() {
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

func suspect(shards []*shard) {
	for _, h := range shards {
		h.suspect()
	}
}

// changed updates inUse after a transition of the circuit. Transitions may be reported out of order, so changed
// reads the present state of the circuit.
func (h *shard) changed() {
	h.mu.Lock()
	inUse := h.circuit.IsClosed()
	if inUse == h.inUse.Load() {
		h.mu.Unlock()
		return
	}
	now := time.Now()
	lasted, last := now.Sub(h.since), h.last
	h.since = now
	h.failuresInRow.Store(0)
	h.settling.Store(inUse)
	h.inUse.Store(inUse)
	if !inUse {
		h.recovery = min(4*h.recovery, maxRecovery)
		if h.recovery == 0 || lasted > flapping {
			h.recovery = minRecovery
		}
	}
	h.mu.Unlock()
	if inUse {
		h.s.log.Info("shared store is available again", "shard", h.index, "unavailable_for", lasted)
		return
	}
	h.suspect()
	h.s.log.Warn("shared store is unavailable: on_error decides", "shard", h.index, "error", last)
}

// watch probes the shard when a probe is requested, until ctx ends.
func (h *shard) watch(ctx context.Context) {
	for settled := (<-chan time.Time)(nil); ; {
		select {
		case <-ctx.Done():
			return
		case <-settled:
			h.settling.Store(false)
		case <-h.wake:
			h.examine(ctx)
			if h.recover(ctx) {
				settled = time.After(settlingTime)
			}
		}
	}
}

// examine probes a shard that is suspected to have failed, until the shard answers or the circuit opens.
func (h *shard) examine(ctx context.Context) {
	for h.inUse.Load() && ctx.Err() == nil {
		err := h.probe(ctx)
		if err == nil {
			h.failuresInRow.Store(0)
		} else {
			h.failed(err)
		}
		pause(ctx, jittered(probePause))
		if err == nil {
			return
		}
	}
}

// recover waits until an unavailable shard is in use again, and reports whether the shard was unavailable.
func (h *shard) recover(ctx context.Context) bool {
	unavailable := !h.inUse.Load()
	for !h.inUse.Load() && ctx.Err() == nil {
		pause(ctx, h.circuit.RemainingDelay())
		if !h.circuit.TryAcquirePermit() {
			continue
		}
		if err := h.streak(ctx); err != nil {
			h.failed(err)
			h.circuit.RecordFailure()
		} else {
			h.circuit.RecordSuccess()
		}
	}
	return unavailable
}

// streak probes the shard for 1/successes of the recovery time. It fails if a probe fails.
func (h *shard) streak(ctx context.Context) error {
	h.mu.Lock()
	end := time.Now().Add(h.recovery / successes)
	h.mu.Unlock()
	for {
		if err := h.probe(ctx); err != nil {
			return err
		}
		pause(ctx, jittered(probePause))
		if !time.Now().Before(end) {
			return ctx.Err()
		}
	}
}

var probePlan = func() *sluice.Plan {
	p, err := sluice.NewPlan(sluice.Limit{Count: probesPerSecond, Period: time.Second})
	if err != nil {
		panic(err) // the limit is a constant
	}
	return p
}()

// probe charges a unit to a key that only probes use. A probe has to write, because a server that is loading or
// read-only still answers reads.
func (h *shard) probe(ctx context.Context) error {
	charges := []sluice.Charge{{Key: h.probeKey(), Plan: probePlan, Cost: 1}}
	var receipts [1]sluice.Receipt
	if err := h.s.shared.TakeWithin(ctx, h.s.deadline, charges, receipts[:]); err != nil {
		if _, odd := unreadable(err); odd {
			return nil // a store that answers is healthy, even if it cannot read the key
		}
		return err
	}
	if !receipts[0].Fits {
		return errors.New("failover: the shared store denies a probe that is below its limit")
	}
	return nil
}

// probeKey returns a key of this instance that the shard counts. The keys that a shard counts may have changed
// since the last probe.
func (h *shard) probeKey() string {
	for n := 0; n < maxProbeKeys && (h.key == "" || h.s.shardOf(h.key) != h.index); n++ {
		h.key = "failover/" + h.s.id + "/" + strconv.Itoa(n)
	}
	return h.key
}

// touched appends the shards that count the charges, without duplicates.
func (s *Store) touched(dst []*shard, charges []sluice.Charge) []*shard {
	shards := *s.shards.Load()
	for i := range charges {
		n := s.shardOf(charges[i].Key)
		if n >= len(shards) {
			shards = s.grow(n + 1)
		}
		if !slices.Contains(dst, shards[n]) {
			dst = append(dst, shards[n])
		}
	}
	return dst
}

// shardOf returns the number of the shard that counts the key.
func (s *Store) shardOf(key string) int {
	return min(max(0, s.shared.Shard(key)), maxShards-1)
}

// grow returns the shards, at least n, and starts the goroutines of new ones.
func (s *Store) grow(n int) []*shard {
	s.growing.Lock()
	defer s.growing.Unlock()
	var all []*shard
	if p := s.shards.Load(); p != nil {
		all = *p
	}
	all = all[:len(all):len(all)]
	for len(all) < n {
		h := newShard(s, len(all))
		all = append(all, h)
		if s.ctx.Err() == nil {
			s.running.Go(func() { h.watch(s.ctx) })
		}
	}
	s.shards.Store(&all)
	return all
}

// pause waits, or returns early when the context ends.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// jittered returns a random time from d/2 to 3·d/2.
func jittered(d time.Duration) time.Duration { return d/2 + rand.N(d) }
