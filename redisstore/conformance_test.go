package redisstore_test

import (
	"testing"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/redistest"
	"github.com/sluicehq/sluice/redisstore"
	"github.com/sluicehq/sluice/storetest"
)

// Every way to a server or a cluster keeps the contract: opened by URL, and over a client as it comes.
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
	storetest.RunTimed(t, func(t *testing.T) storetest.TimedStore { return timed(t, redistest.Shared(t)) })
}

func TestVectors(t *testing.T) {
	t.Parallel()
	storetest.RunVectors(t, "../testdata/vectors", func(t *testing.T) storetest.TimedStore { return timed(t, redistest.Shared(t)) })
}
