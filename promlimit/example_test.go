package promlimit_test

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/promlimit"
	"github.com/sluicehq/sluice/telemetry"
)

func Example() {
	engine := policy.NewEngine(memory.New(), nil)
	prometheus.MustRegister(promlimit.New(telemetry.Watch(engine, telemetry.Config{})))
}
