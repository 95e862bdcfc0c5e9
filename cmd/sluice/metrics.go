package main

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/sluicehq/sluice/failover"
	"github.com/sluicehq/sluice/internal/proxy"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/stores"
)

// metrics answers /metrics with what the process and its store are doing.
func metrics(store *stores.Store, connections *proxy.Connections, rules *rules) http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "sluice_connections", Help: "Open client connections."},
			func() float64 { return float64(connections.Open()) }),
		refused("all", func() uint64 { all, _ := connections.Refused(); return all }),
		refused("address", func() uint64 { _, address := connections.Refused(); return address }),
		memoryCollector{store.Memory().Stats},
	)
	if shared := store.Failover(); shared != nil {
		registry.MustRegister(storeCollector{shared.Status})
	}
	if rules.db != nil {
		registry.MustRegister(rulesCollector{rules})
	}
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
}

func refused(reason string, count func() uint64) prometheus.Collector {
	return prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name:        "sluice_connections_refused_total",
		Help:        "Connections closed on arrival, by reason: too many in all, or from one address.",
		ConstLabels: prometheus.Labels{"reason": reason},
	}, func() float64 { return float64(count()) })
}

// storeCollector reads a status when it is asked, so that a decision costs nothing more.
type storeCollector struct{ status func() failover.Status }

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("sluice_store_"+name, help, labels, nil)
}

var (
	storeAway      = desc("away", "Shards of the shared store whose circuit breaker is open.")
	storeShards    = desc("shards", "Known shards of the shared store.")
	storeInstances = desc("instances", "Instances that share a limit while the shared store is away.")
	storeOwing     = desc("owing_keys", "Keys whose local use has yet to be written back.")
	storeDecisions = desc("decisions_total", "Decisions by who made them: the shared store or the local stand-in.", "by")
	storeFailures  = desc("failures_total", "Decisions the shared store failed to make, by reason.", "reason")
	storeWritten   = desc("written_back_total", "Write-backs of a key's local use to the shared store.")
)

func (c storeCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{storeAway, storeShards, storeInstances, storeOwing, storeDecisions, storeFailures, storeWritten} {
		ch <- d
	}
}

func (c storeCollector) Collect(ch chan<- prometheus.Metric) {
	s := c.status()
	away := 0
	for _, shard := range s.Shards {
		if shard.Away {
			away++
		}
	}
	gauge := func(d *prometheus.Desc, v int) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(v))
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
	counter(storeFailures, s.TimedOut, "timeout")
	counter(storeFailures, s.Failed, "error")
	counter(storeFailures, s.Overflow, "overflow")
	counter(storeFailures, s.Unreadable, "unreadable")
	counter(storeWritten, s.WrittenBack)
}

// memoryCollector reads what the memory holds when it is asked.
type memoryCollector struct{ stats func() memory.Stats }

var (
	memoryKeys    = prometheus.NewDesc("sluice_memory_keys", "Keys in memory with something used.", nil, nil)
	memoryBytes   = prometheus.NewDesc("sluice_memory_bytes", "Memory that counters take, in bytes.", nil, nil)
	memoryEvicted = prometheus.NewDesc("sluice_memory_evicted_total", "Keys evicted before they had drained.", nil, nil)
	memoryFreed   = prometheus.NewDesc("sluice_memory_freed_total", "Evicted keys that had used more than half of their limit.", nil, nil)
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

// rulesCollector reads how following a database of rules goes when it is asked.
type rulesCollector struct{ rules *rules }

var (
	rulesVersion  = prometheus.NewDesc("sluice_policy_version", "Version of the database of rules that was last read.", nil, nil)
	rulesStaying  = prometheus.NewDesc("sluice_policy_refused", "1 while what the database says is not in force, and an older policy stays: see the log.", nil, nil)
	rulesRefused  = prometheus.NewDesc("sluice_policy_refused_total", "How often what the database says was not put into force.", nil, nil)
	rulesAway     = prometheus.NewDesc("sluice_rules_away", "1 while the database of rules does not answer.", nil, nil)
	rulesFailures = prometheus.NewDesc("sluice_rules_failures_total", "How often the database of rules did not answer.", nil, nil)
	rulesAsked    = prometheus.NewDesc("sluice_rules_asked_timestamp_seconds", "When the database of rules last answered; 0 if it has not since the start.", nil, nil)
)

func (c rulesCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{rulesVersion, rulesStaying, rulesRefused, rulesAway, rulesFailures, rulesAsked} {
		ch <- d
	}
}

func (c rulesCollector) Collect(ch chan<- prometheus.Metric) {
	s := c.rules.db.Status()
	send := func(d *prometheus.Desc, kind prometheus.ValueType, v float64) {
		ch <- prometheus.MustNewConstMetric(d, kind, v)
	}
	flag := map[bool]float64{true: 1}
	send(rulesVersion, prometheus.GaugeValue, float64(s.Version))
	send(rulesStaying, prometheus.GaugeValue, flag[c.rules.staying.Load()])
	send(rulesRefused, prometheus.CounterValue, float64(c.rules.refused.Load()))
	send(rulesAway, prometheus.GaugeValue, flag[s.Away])
	send(rulesFailures, prometheus.CounterValue, float64(s.Failures))
	asked := 0.0
	if !s.Asked.IsZero() {
		asked = float64(s.Asked.UnixMilli()) / 1000
	}
	send(rulesAsked, prometheus.GaugeValue, asked)
}
