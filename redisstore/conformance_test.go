package redisstore_test

import (
	"testing"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/redistest"
	"github.com/sluicehq/sluice/redisstore"
	"github.com/sluicehq/sluice/storetest"
)

// Every way to a server or a cluster keeps the contract: opened by URL, over a client as it comes, and
// over one with the options that are worth setting.
func TestConformance(t *testing.T) {
	t.Parallel()
	server, cluster := redistest.Shared(t), redistest.SharedCluster(t)
	usual := clientOf(server)
	tuned := usual
	tuned.ConnWriteTimeout, tuned.DisableAutoPipelining, tuned.BlockingPoolSize, tuned.DisableCache = 5*time.Second, true, 50, true
	stores := map[string]func(t *testing.T) sluice.Store{
		"opened":       func(t *testing.T) sluice.Store { return open(t, server.URL()) },
		"client":       func(t *testing.T) sluice.Store { return over(t, usual, redisstore.Keys{}) },
		"tuned client": func(t *testing.T) sluice.Store { return over(t, tuned, redisstore.Keys{}) },
		"cluster":      func(t *testing.T) sluice.Store { return open(t, cluster.URL()) },
		"cluster client": func(t *testing.T) sluice.Store {
			return over(t, clientOf(cluster.Nodes[0]), redisstore.Keys{Prefix: cluster.Prefix})
		},
	}
	for _, other := range redistest.Binaries(t)[1:] {
		stores[other] = func(t *testing.T) sluice.Store { return open(t, redistest.StartBinary(t, other).URL()) }
	}
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
