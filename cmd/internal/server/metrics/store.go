package metrics

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluicehq/sluice/failover"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/redisstore"
)

// StoreCalls measures how long calls to a shared store take, and counts failed calls by reason.
type StoreCalls struct {
	took   prometheus.Histogram
	failed *prometheus.CounterVec // by reason
}

// Reasons for failures in addition to the kinds of a [redisstore.Error].
const (
	timedOut     = "timeout"
	otherFailure = "other"
)

var storeFailed = prometheus.CounterOpts{Name: "sluice_store_failures_total", Help: "Decisions that the shared store failed to make, by reason: timeout; unavailable (no server could be reached); outcome_unknown (the connection broke before the reply); loading, busy, read_only, out_of_memory, cluster_down or denied (errors that the server reports); bad_reply (a reply that Sluice does not understand); not_sent (canceled before it was sent); misconfigured; other; overflow (too many calls under way); unreadable (a key contains foreign data; on_error decides for that key)."}

// NewStoreCalls returns StoreCalls that have not measured any call.
func NewStoreCalls() *StoreCalls {
	c := &StoreCalls{
		took: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:        "sluice_store_duration_seconds",
			Help:        "Time that decisions wait for the shared store. Denials from memory, without a call to the store, are not included.",
			Buckets:     []float64{.00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, 1},
			ConstLabels: prometheus.Labels{"store": "redis"},
		}),
		failed: prometheus.NewCounterVec(storeFailed, []string{"reason"}),
	}
	reasons := []string{timedOut, otherFailure}
	for k := redisstore.Unavailable; k < redisstore.Foreign; k++ { // failover counts the kind Foreign as "unreadable"
		reasons = append(reasons, kindLabel(k))
	}
	for _, reason := range reasons { // creates a series for each reason
		c.failed.WithLabelValues(reason)
	}
	return c
}

// kindLabel returns the label of a kind of error.
func kindLabel(k redisstore.Kind) string {
	return strings.NewReplacer(" ", "_", "-", "_").Replace(k.String())
}

// Note records a call. It is used as OnCall of a [stores.Config].
func (c *StoreCalls) Note(took time.Duration, err error) {
	c.took.Observe(took.Seconds())
	if err != nil {
		c.failed.WithLabelValues(reasonOf(err)).Inc()
	}
}

// reasonOf returns the label of a failure's reason.
func reasonOf(err error) string {
	if errors.Is(err, context.DeadlineExceeded) {
		return timedOut
	}
	if e, ok := errors.AsType[*redisstore.Error](err); ok && e.Kind >= redisstore.Unavailable && e.Kind < redisstore.Foreign {
		return kindLabel(e.Kind)
	}
	return otherFailure
}

func storeDesc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("sluice_store_"+name, help, labels, nil)
}

var (
	storeUnavailable = storeDesc("unavailable", "Shards of the shared store (masters of a cluster) with an open circuit breaker. For the keys of these shards, on_error decides.")
	storeAway        = storeDesc("away", "Deprecated: use sluice_store_unavailable.")
	storeShards      = storeDesc("shards", "Known shards of the shared store.")
	storeInstances   = storeDesc("instances", "Instances among which a limit is divided while the shared store is unavailable.")
	storeOwing       = storeDesc("owing_keys", "Keys whose usage during an outage was counted locally and is not yet written back to the shared store.")
	storeDecisions   = storeDesc("decisions_total", "Decisions by source: store (the shared store) or stand_in (the fallback: on_error decided without the shared store).", "by")
	storeOpen        = storeDesc("circuit_open", "1 while the circuit breaker of a shard of the shared store is open.", "shard")
	storeFailures    = prometheus.NewDesc(storeFailed.Name, storeFailed.Help, nil, prometheus.Labels{"reason": "overflow"})
	storeForeign     = prometheus.NewDesc(storeFailed.Name, storeFailed.Help, nil, prometheus.Labels{"reason": "unreadable"})
	storeWritten     = storeDesc("written_back_total", "Write-backs of a key's local usage to the shared store.")
)

// storeMetrics returns metrics about the state of the shared store.
func storeMetrics(shared *failover.Store) collector {
	return func(send sender) {
		s := shared.Status()
		unavailable := 0.0
		for i, shard := range s.Shards {
			unavailable += yes[shard.Unavailable]
			send.gauge(storeOpen, yes[shard.Unavailable], strconv.Itoa(i))
		}
		send.gauge(storeUnavailable, unavailable)
		send.gauge(storeAway, unavailable)
		send.gauge(storeShards, float64(len(s.Shards)))
		send.gauge(storeInstances, float64(s.Instances))
		send.gauge(storeOwing, float64(s.Owing))
		send.counter(storeDecisions, s.Shared, "store")
		send.counter(storeDecisions, s.Local, "stand_in")
		send.counter(storeFailures, s.Overflow)
		send.counter(storeForeign, s.Unreadable)
		send.counter(storeWritten, s.WrittenBack)
	}
}

var (
	memoryKeys    = prometheus.NewDesc("sluice_memory_keys", "Keys in memory that have used part of their limit.", nil, nil)
	memoryBytes   = prometheus.NewDesc("sluice_memory_bytes", "Memory used by counters, in bytes.", nil, nil)
	memoryEvicted = prometheus.NewDesc("sluice_memory_evicted_total", "Keys evicted although they had used part of their limit. If this grows, --memory-size is too small.", nil, nil)
	memoryFreed   = prometheus.NewDesc("sluice_memory_freed_total", "Evicted keys that had used more than half of their limit. If this grows, a client can get its full limit back by filling the memory with new keys: raise --memory-size, or set --refuse-new-keys.", nil, nil)
	memoryRefused = prometheus.NewDesc("sluice_memory_refused_total", "Charges that were denied because their key is new and the memory is full, with --refuse-new-keys.", nil, nil)
)

// memoryMetrics returns metrics about a memory store.
func memoryMetrics(m *memory.Store) collector {
	return func(send sender) {
		s := m.Stats()
		send.gauge(memoryKeys, float64(s.Keys))
		send.gauge(memoryBytes, float64(s.Bytes))
		send.counter(memoryEvicted, uint64(s.Evicted))
		send.counter(memoryFreed, uint64(s.Freed))
		send.counter(memoryRefused, uint64(s.Refused))
	}
}
