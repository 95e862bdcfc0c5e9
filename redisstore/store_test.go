package redisstore_test

import (
	"errors"
	"testing"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/redistest"
	"github.com/sluicehq/sluice/redisstore"
	"github.com/sluicehq/sluice/storetest"
)

// open opens a store, again where a busy machine has not answered in the time that Open gives it.
func open(t testing.TB, url string) *redisstore.Store {
	t.Helper()
	s, err := redisstore.Open(t.Context(), url)
	for range 5 {
		if e, ok := errors.AsType[*redisstore.Error](err); !ok || e.Kind != redisstore.Unavailable {
			break
		}
		s, err = redisstore.Open(t.Context(), url)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func TestConformance(t *testing.T) {
	for _, binary := range redistest.Binaries(t) {
		server := redistest.StartBinary(t, binary)
		storetest.Run(t, func(t *testing.T) sluice.Store {
			server.Do("FLUSHALL")
			return open(t, "unix://"+server.Socket)
		})
	}
}

func TestConformanceTimed(t *testing.T) {
	server := redistest.Start(t)
	storetest.RunTimed(t, func(t *testing.T) storetest.TimedStore {
		server.Do("FLUSHALL")
		return redisstore.Timed(open(t, "unix://"+server.Socket))
	})
}
