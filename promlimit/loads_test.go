package promlimit_test

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/promlimit"
	"github.com/sluicehq/sluice/telemetry"
)

// The metrics of automatic limits are added up over the keys of a rule.
func TestLoads(t *testing.T) {
	t.Parallel()
	auto := policy.InFlight{Auto: true, Least: 1, Most: 2}
	engine := policy.NewEngine(memory.New(), compiled(t,
		policy.Rule{Name: "capacity", Key: []string{"host"}, InFlight: auto},
		policy.Rule{Name: "watched", InFlight: auto, Shadow: true},
		policy.Rule{Name: "tests", Headers: map[string]string{"X-Test": "*"}, Class: "sheddable"}))
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(promlimit.New(telemetry.Watch(engine, telemetry.Config{})))
	for range 3 {
		for _, host := range []string{"a.example", "b.example"} {
			engine.Decide(t.Context(), &policy.Request{Path: "/", Host: host, Door: "gateway", Ends: true, Timed: true})
		}
	}
	engine.Decide(t.Context(), &policy.Request{Path: "/", Host: "a.example", Door: "gateway", Ends: true, Timed: true, Header: map[string][]string{"X-Test": {"1"}}})
	p := scrape(t, registry)
	for _, want := range []struct {
		name, labels string
		value        float64
	}{
		{"sluice_load_refusals_total", "rule=capacity,class=normal,outcome=deny", 2},
		{"sluice_load_refusals_total", "rule=capacity,class=sheddable,outcome=deny", 1},
		{"sluice_load_refusals_total", "rule=watched,class=normal,outcome=would_deny", 2},
		{"sluice_load_refusals_total", "rule=watched,class=normal,outcome=deny", 0},
		{"sluice_requests_overloaded_total", "door=gateway,class=normal", 2},
		{"sluice_decisions_total", "rule=capacity,outcome=deny", 3},
		{"sluice_decisions_total", "rule=tests,outcome=allow", 1},
		{"sluice_requests_total", "door=gateway,outcome=deny", 3},
	} {
		if got := p.value(want.name, want.labels); got != want.value {
			t.Errorf("%s{%s} is %v, want %v", want.name, want.labels, got, want.value)
		}
	}
	for name, want := range map[string]float64{"sluice_load_limit": 4, "sluice_load_in_flight": 4, "sluice_load_latency_seconds": 0} {
		if got := p[name].GetMetric()[0].GetGauge().GetValue(); got != want {
			t.Errorf("%s of capacity is %v, want %v", name, got, want)
		}
	}
}
