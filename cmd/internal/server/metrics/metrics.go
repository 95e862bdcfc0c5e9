// Package metrics serves GET /metrics. It counts decisions as they are made, and reads all other values at each
// scrape from parts of the gateway. Package server imports it and provides these parts.
package metrics

import (
	"context"
	"log/slog"
	"net/http"
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/sluicehq/sluice/answer"
	"github.com/sluicehq/sluice/cmd/internal/door/proxy"
	"github.com/sluicehq/sluice/cmd/internal/server/rules"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/promlimit"
	"github.com/sluicehq/sluice/stores"
	"github.com/sluicehq/sluice/telemetry"
)

// Config has the parts of a gateway from which metrics are read.
type Config struct {
	Version  string
	Engine   *policy.Engine
	Store    *stores.Store
	Calls    *StoreCalls         // the calls of a shared store
	Recorder *telemetry.Recorder // nil if telemetry is off
	Rules    *rules.Rules
	// Upstreams has the counters of the gateway's upstreams.
	Upstreams []*telemetry.UpstreamStats
	Log       *slog.Logger
}

// Metrics counts decisions, and serves all metrics.
type Metrics struct {
	config  Config
	delays  prometheus.Histogram
	tiers   *tiers
	settled *settlements
}

// New returns Metrics that count from now on. Call it before the first decision.
func New(c Config) *Metrics {
	m := &Metrics{config: c, settled: newSettlements(c.Engine, c.Log)}
	if c.Recorder == nil {
		return m
	}
	m.delays = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "sluice_queue_delay_seconds",
		Help:    "Wait of requests in the queue of a leaky bucket.",
		Buckets: []float64{.01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
	})
	m.tiers = newTiers()
	c.Engine.Observe(m.tiers.observe)
	c.Engine.Observe(func(_ context.Context, o *policy.Observation) {
		if d := &o.Decision; d.Delay > 0 && d.Allowed && !d.Repeated && o.Request.Mode == policy.Charge {
			m.delays.Observe(d.Delay.Seconds())
		}
	})
	return m
}

// Handler returns a handler that answers scrapes. The parameter connections counts the connections of the gateway's
// clients.
func (m *Metrics) Handler(connections *proxy.Connections) http.Handler {
	c := &m.config
	registry := prometheus.NewRegistry()
	registry.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		processMetrics(c.Version, connections),
		memoryMetrics(c.Store.Memory()),
		policyMetrics(c.Engine, c.Rules),
		collector(m.settled.collect),
		upstreamMetrics(c.Upstreams),
	)
	if c.Recorder != nil {
		registry.MustRegister(promlimit.New(c.Recorder), m.delays, m.tiers.decisions, m.tiers.refused, m.tiers.near)
	}
	if shared := c.Store.Failover(); shared != nil {
		registry.MustRegister(storeMetrics(shared), c.Calls.took, c.Calls.failed)
	}
	if db := c.Rules.Database(); db != nil {
		registry.MustRegister(databaseMetrics(db))
	}
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
}

// collector is a function that sends metrics to a scrape.
type collector func(send sender)

// Describe does not describe metrics, so the registry accepts any metric.
func (collector) Describe(chan<- *prometheus.Desc) {}

func (c collector) Collect(ch chan<- prometheus.Metric) { c(sender{ch}) }

// sender sends metrics to a scrape.
type sender struct{ ch chan<- prometheus.Metric }

func (s sender) gauge(d *prometheus.Desc, v float64, labels ...string) {
	s.ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
}

func (s sender) counter(d *prometheus.Desc, v uint64, labels ...string) {
	s.ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
}

// yes is the value of a gauge that is true or false.
var yes = map[bool]float64{true: 1}

var (
	buildInfo          = prometheus.NewDesc("sluice_build_info", "Always 1; the labels contain the version of the program.", []string{"version", "goversion"}, nil)
	openConnections    = prometheus.NewDesc("sluice_connections", "Open client connections of the gateway.", nil, nil)
	refusedConnections = prometheus.NewDesc("sluice_connections_refused_total", "Connections to the gateway that were closed on arrival, by reason: all (too many in total) or address (too many from one address).", []string{"reason"}, nil)
	queueWaiting       = prometheus.NewDesc("sluice_queue_waiting", "Requests waiting for their turn in the queue of a leaky bucket.", nil, nil)
)

// processMetrics returns the metrics of this process.
func processMetrics(version string, connections *proxy.Connections) collector {
	return func(send sender) {
		send.gauge(buildInfo, 1, version, runtime.Version())
		send.gauge(openConnections, float64(connections.Open()))
		all, address := connections.Refused()
		send.counter(refusedConnections, all, "all")
		send.counter(refusedConnections, address, "address")
		send.gauge(queueWaiting, float64(answer.Waiting()))
	}
}
