package promlimit_test

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/promlimit"
	"github.com/sluicehq/sluice/telemetry"
)

func Example() {
	engine := policy.NewEngine(memory.New(), nil)
	prometheus.MustRegister(promlimit.New(telemetry.Watch(engine, telemetry.Config{})))
}

func ExampleLimiter() {
	store := memory.New()
	logins, err := sluice.NewLimiter(store, "logins", sluice.Limit{Count: 5, Period: time.Minute})
	if err != nil {
		panic(err)
	}
	jobs, err := sluice.NewSemaphore(store, "jobs", 3)
	if err != nil {
		panic(err)
	}
	prometheus.MustRegister(promlimit.Limiter(logins), promlimit.Semaphore(jobs))
}
