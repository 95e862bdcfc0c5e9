package main

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/sluicehq/sluice/failover"
	"github.com/sluicehq/sluice/internal/proxy"
	"github.com/sluicehq/sluice/memory"
)

// metrics answers /metrics with what the process and its store are doing.
func metrics(c *counting, connections *proxy.Connections) http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "sluice_connections", Help: "Connections of clients that are open."},
			func() float64 { return float64(connections.Open()) }),
		refused("all", func() uint64 { all, _ := connections.Refused(); return all }),
		refused("address", func() uint64 { _, address := connections.Refused(); return address }),
		memoryCollector{c.memory.Stats},
	)
	if c.failover != nil {
		registry.MustRegister(storeCollector{c.failover.Status})
	}
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
}

func refused(reason string, count func() uint64) prometheus.Collector {
	return prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name:        "sluice_connections_refused_total",
		Help:        "Connections that were closed at once: there were too many in all, or of one address.",
		ConstLabels: prometheus.Labels{"reason": reason},
	}, func() float64 { return float64(count()) })
}

// storeCollector reads a status when it is asked, so that a decision costs nothing more.
type storeCollector struct{ status func() failover.Status }

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("sluice_store_"+name, help, labels, nil)
}

var (
	storeAway      = desc("away", "Parts of the shared store whose circuit is open.")
	storeParts     = desc("parts", "Parts of the shared store that were heard of.")
	storeInstances = desc("instances", "By how many a limit is divided where a share of it decides.")
	storeOwing     = desc("owing_keys", "Keys whose local use is to be written back.")
	storeDecisions = desc("decisions_total", "Decisions by who made them: the shared store, or the stand-in.", "by")
	storeFailures  = desc("failures_total", "Decisions that were asked of the shared store in vain, and why.", "reason")
	storeWritten   = desc("written_back_total", "How often a key's local use was written back.")
)

func (c storeCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{storeAway, storeParts, storeInstances, storeOwing, storeDecisions, storeFailures, storeWritten} {
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
	gauge(storeParts, len(s.Shards))
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
	memoryKeys    = prometheus.NewDesc("sluice_memory_keys", "Keys in memory of which something is used.", nil, nil)
	memoryBytes   = prometheus.NewDesc("sluice_memory_bytes", "What they take.", nil, nil)
	memoryEvicted = prometheus.NewDesc("sluice_memory_evicted_total", "Keys that were forgotten before nothing of theirs was used.", nil, nil)
	memoryFreed   = prometheus.NewDesc("sluice_memory_freed_total", "Those of the evicted that had used more than half of their limit.", nil, nil)
	memoryRefused = prometheus.NewDesc("sluice_memory_refused_total", "Charges of new keys for which there was no room: see --refuse-new-keys.", nil, nil)
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
