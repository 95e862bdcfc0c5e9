package main

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

// storeCalls measures the decisions that a shared store is asked for.
type storeCalls struct {
	took   prometheus.Histogram
	failed map[string]prometheus.Counter // by reason; it does not change
}

// Reasons besides the kinds of a [redisstore.Error].
const (
	timedOut     = "timeout"
	otherFailure = "other"
)

// storeFailed is what a shared store cannot do for a decision, by its reason.
var storeFailed = prometheus.CounterOpts{Name: "sluice_store_failures_total", Help: "Decisions the shared store failed to make, by reason: timeout; unavailable, outcome_unknown, where the connection broke; loading, busy, read_only, out_of_memory, cluster_down, denied, as the server says; bad_reply, not_sent, misconfigured, other; overflow of the calls under way; unreadable, where a key held something else, which was decided by on_error alone."}

func newStoreCalls() *storeCalls {
	c := &storeCalls{
		took: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:        "sluice_store_duration_seconds",
			Help:        "Time that decisions wait for the shared store, without those answered from its deny cache.",
			Buckets:     []float64{.00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, 1},
			ConstLabels: prometheus.Labels{"store": "redis"},
		}),
		failed: map[string]prometheus.Counter{},
	}
	reasons := []string{timedOut, otherFailure}
	for k := redisstore.Unavailable; k < redisstore.Foreign; k++ { // what is foreign is "unreadable"
		reasons = append(reasons, kindLabel(k))
	}
	for _, reason := range reasons {
		opts := storeFailed
		opts.ConstLabels = prometheus.Labels{"reason": reason}
		c.failed[reason] = prometheus.NewCounter(opts)
	}
	return c
}

// kindLabel returns the name of a kind as that of a reason.
func kindLabel(k redisstore.Kind) string {
	return strings.NewReplacer(" ", "_", "-", "_").Replace(k.String())
}

func (c *storeCalls) note(took time.Duration, err error) {
	c.took.Observe(took.Seconds())
	if err != nil {
		c.failed[reasonOf(err)].Inc()
	}
}

// reasonOf returns why the store has failed: one of the reasons that are counted.
func reasonOf(err error) string {
	if errors.Is(err, context.DeadlineExceeded) {
		return timedOut
	}
	if e, ok := errors.AsType[*redisstore.Error](err); ok && e.Kind >= redisstore.Unavailable && e.Kind < redisstore.Foreign {
		return kindLabel(e.Kind)
	}
	return otherFailure
}

func (c *storeCalls) register(r *prometheus.Registry) {
	r.MustRegister(c.took)
	for _, failed := range c.failed {
		r.MustRegister(failed)
	}
}

// storeCollector reads a status when it is asked, so that a decision costs nothing more.
type storeCollector struct{ status func() failover.Status }

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("sluice_store_"+name, help, labels, nil)
}

var (
	storeAway      = desc("away", "Shards of the shared store (each master of a cluster) whose circuit breaker is open; above 0, on_error decides.")
	storeShards    = desc("shards", "Known shards of the shared store.")
	storeInstances = desc("instances", "Instances that share a limit while the shared store is away.")
	storeOwing     = desc("owing_keys", "Keys whose local use has yet to be written back.")
	storeDecisions = desc("decisions_total", "Decisions by who made them: the shared store or the local stand-in.", "by")
	storeOpen      = desc("circuit_open", "1 while the circuit breaker of a shard of the shared store is open.", "shard")
	storeFailures  = prometheus.NewDesc(storeFailed.Name, storeFailed.Help, nil, prometheus.Labels{"reason": "overflow"})
	storeForeign   = prometheus.NewDesc(storeFailed.Name, storeFailed.Help, nil, prometheus.Labels{"reason": "unreadable"})
	storeWritten   = desc("written_back_total", "Write-backs of a key's local use to the shared store.")
)

func (c storeCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{storeAway, storeShards, storeInstances, storeOwing, storeDecisions, storeOpen, storeFailures, storeForeign, storeWritten} {
		ch <- d
	}
}

func (c storeCollector) Collect(ch chan<- prometheus.Metric) {
	s := c.status()
	gauge := func(d *prometheus.Desc, v int, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(v), labels...)
	}
	away := 0
	for i, shard := range s.Shards {
		open := 0
		if shard.Away {
			open = 1
		}
		away += open
		gauge(storeOpen, open, strconv.Itoa(i))
	}
	counter := func(d *prometheus.Desc, v uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	gauge(storeAway, away)
	gauge(storeShards, len(s.Shards))
	gauge(storeInstances, s.Instances)
	gauge(storeOwing, s.Owing)
	counter(storeDecisions, s.Shared, "store")
	counter(storeDecisions, s.Local, "stand_in")
	counter(storeFailures, s.Overflow)
	counter(storeForeign, s.Unreadable)
	counter(storeWritten, s.WrittenBack)
}

// memoryCollector reads what the memory holds when it is asked.
type memoryCollector struct{ stats func() memory.Stats }

var (
	memoryKeys    = prometheus.NewDesc("sluice_memory_keys", "Keys in memory with something used.", nil, nil)
	memoryBytes   = prometheus.NewDesc("sluice_memory_bytes", "Memory used by counters, in bytes.", nil, nil)
	memoryEvicted = prometheus.NewDesc("sluice_memory_evicted_total", "Keys evicted before they had drained; if it grows, the memory is too small.", nil, nil)
	memoryFreed   = prometheus.NewDesc("sluice_memory_freed_total", "Evicted keys that had used more than half of their limit; if it grows, clients can buy a fresh limit.", nil, nil)
	memoryRefused = prometheus.NewDesc("sluice_memory_refused_total", "Charges of new keys refused for lack of memory: see --refuse-new-keys.", nil, nil)
)

func (c memoryCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{memoryKeys, memoryBytes, memoryEvicted, memoryFreed, memoryRefused} {
		ch <- d
	}
}

func (c memoryCollector) Collect(ch chan<- prometheus.Metric) {
	s := c.stats()
	send := func(d *prometheus.Desc, kind prometheus.ValueType, v int64) {
		ch <- prometheus.MustNewConstMetric(d, kind, float64(v))
	}
	send(memoryKeys, prometheus.GaugeValue, int64(s.Keys))
	send(memoryBytes, prometheus.GaugeValue, s.Bytes)
	send(memoryEvicted, prometheus.CounterValue, s.Evicted)
	send(memoryFreed, prometheus.CounterValue, s.Freed)
	send(memoryRefused, prometheus.CounterValue, s.Refused)
}
