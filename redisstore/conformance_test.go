package redisstore_test

import (
	"testing"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/plantest"
	"github.com/sluicehq/sluice/internal/redistest"
	"github.com/sluicehq/sluice/redisstore"
	"github.com/sluicehq/sluice/storetest"
)

// Stores opened by URL and stores with a default client conform to the contract of [sluice.Store], and so do stores
// opened on the other installed servers.
func TestConformance(t *testing.T) {
	t.Parallel()
	server, cluster := redistest.Shared(t), redistest.SharedCluster(t)
	stores := map[string]func(t *testing.T) sluice.Store{
		"opened": func(t *testing.T) sluice.Store { return open(t, server.URL()) },
		"client": func(t *testing.T) sluice.Store { return over(t, clientOf(server), redisstore.Keys{}) },
		"client of a cluster": func(t *testing.T) sluice.Store {
			return over(t, clientOf(cluster.Nodes[0]), redisstore.Keys{Prefix: cluster.Prefix})
		},
	}
	for _, other := range redistest.Binaries(t)[1:] {
		stores[other] = func(t *testing.T) sluice.Store { return open(t, redistest.StartBinary(t, other).URL()) }
	}
	testConformance(t, stores)
}

func testConformance(t *testing.T, stores map[string]func(t *testing.T) sluice.Store) {
	for name, store := range stores {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			storetest.Run(t, store)
		})
	}
}

func TestConformanceTimed(t *testing.T) {
	t.Parallel()
	storetest.RunTimed(t, func(t *testing.T) storetest.TimedStore {
		t.Parallel() // the tests spend nearly all of their time on round trips
		return timed(t, redistest.Shared(t))
	})
}

func TestVectors(t *testing.T) {
	t.Parallel()
	const atOnce = 4
	server, free := redistest.Shared(t), make(chan *redisstore.TimedStore, atOnce)
	for range atOnce {
		free <- timed(t, server)
	}
	storetest.RunVectors(t, "../testdata/vectors", func(t *testing.T) storetest.TimedStore {
		t.Parallel()
		store := <-free
		t.Cleanup(func() { free <- store })
		return store
	})
}

// Concurrent Takes have the same results as if they had run one after the other.
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
