package redisstore_test

import (
	"testing"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/plantest"
	"github.com/sluicehq/sluice/internal/redistest"
)

// Concurrent takes look as if they had come one after the other.
func TestLinearizable(t *testing.T) {
	t.Parallel()
	for name, url := range map[string]string{"server": redistest.Shared(t).URL(), "cluster": redistest.SharedCluster(t).URL()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, subjects := range [][]sluice.Charge{
				{{Key: "{k}window", Plan: plantest.Plan(t, "10/10d as fixed_window")}},
				{{Key: "{k}counter", Plan: plantest.Plan(t, "20/10d as sliding_window_counter")}, {Key: "{k}log", Plan: plantest.Plan(t, "5000/10d as sliding_window_log_exact")}},
			} {
				plantest.Linear{Remembers: true, Least: -3}.Check(t, open(t, url), subjects, 16, 60, 1)
			}
		})
	}
}
