package main

import (
	"context"
	"net/http"
	"runtime"
	"runtime/debug"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/sluicehq/sluice/answer"
	"github.com/sluicehq/sluice/cmd/internal/door/proxy"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/promlimit"
	"github.com/sluicehq/sluice/stores"
	"github.com/sluicehq/sluice/telemetry"
)

// measured is what is counted while the process runs. The rest is read when somebody asks.
type measured struct {
	calls    *storeCalls
	recorder *telemetry.Recorder // nil: decisions are not counted
	delays   prometheus.Histogram
	tiers    *tiers
	cuts     *cuts
}

// watch counts the decisions of an engine besides what the recorder does, unless that is nil. Call it
// before the first.
func (m *measured) watch(e *policy.Engine, r *telemetry.Recorder) {
	if r == nil {
		return
	}
	m.recorder = r
	m.delays = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "sluice_queue_delay_seconds",
		Help:    "Time that requests were told to wait for their turn in the queue of a leaky bucket.",
		Buckets: []float64{.01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
	})
	m.tiers = newTiers()
	e.Observe(m.tiers.observe)
	e.Observe(func(_ context.Context, o *policy.Observation) {
		if d := &o.Decision; d.Delay > 0 && d.Allowed && !d.Repeated && o.Request.Mode == policy.Charge {
			m.delays.Observe(d.Delay.Seconds())
		}
	})
}

// metrics answers /metrics with what the process and its store are doing.
func metrics(m *measured, store *stores.Store, connections *proxy.Connections, rules *rules) http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		buildInfo(),
		gauge("sluice_connections", "Open client connections.", connections.Open),
		refused("all", func() uint64 { all, _ := connections.Refused(); return all }),
		refused("address", func() uint64 { _, address := connections.Refused(); return address }),
		gauge("sluice_queue_waiting", "Requests waiting for their turn in the queue of a leaky bucket.", answer.Waiting),
		memoryCollector{store.Memory().Stats},
		policyCollector{rules},
		m.cuts,
	)
	if m.recorder != nil {
		registry.MustRegister(promlimit.New(m.recorder), m.delays, m.tiers)
	}
	if shared := store.Failover(); shared != nil {
		registry.MustRegister(storeCollector{shared.Status})
		m.calls.register(registry)
	}
	if rules.db != nil {
		registry.MustRegister(rulesCollector{rules})
	}
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
}

func gauge(name, help string, read func() int) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 { return float64(read()) })
}

func buildInfo() prometheus.Collector {
	info, _ := debug.ReadBuildInfo()
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name:        "sluice_build_info",
		Help:        "1 for the version of the program.",
		ConstLabels: prometheus.Labels{"version": version(info), "goversion": runtime.Version()},
	}, func() float64 { return 1 })
}

func refused(reason string, count func() uint64) prometheus.Collector {
	return prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name:        "sluice_connections_refused_total",
		Help:        "Connections closed on arrival, by reason: too many in all, or from one address.",
		ConstLabels: prometheus.Labels{"reason": reason},
	}, func() float64 { return float64(count()) })
}
