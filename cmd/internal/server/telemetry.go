package server

import (
	"errors"
	"sync"
	"time"

	"github.com/spf13/pflag"

	"github.com/sluicehq/sluice/cmd/internal/command"
	"github.com/sluicehq/sluice/cmd/internal/recent"
	"github.com/sluicehq/sluice/cmd/internal/server/metrics"
	"github.com/sluicehq/sluice/cmd/internal/server/tracing"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/stores"
	"github.com/sluicehq/sluice/telemetry"
)

// telemetrySettings configure the data about decisions that is recorded in addition to the log.
type telemetrySettings struct {
	enabled bool
	traces  tracing.URL
	recent  command.Size
}

func (s *telemetrySettings) addFlags(f *pflag.FlagSet) {
	f.BoolVar(&s.enabled, "telemetry", true, "count decisions for the console, sluice top, /metrics and the admin API; false saves some memory and time")
	s.recent = 64 << 20
	f.Var(&s.recent, "recent", "maximum memory for recording the requests of the last hour, on which you can try policy changes; 0 records\n"+
		"none. Bodies are not recorded, and keys only in the form that the rule's show_key allows")
	f.Var(&s.traces, "traces", "OTLP/HTTP `URL` to send spans to, such as http://localhost:4318. Requests that belong to a sampled trace get a\n"+
		"span, up to 200 a second. OTEL_EXPORTER_OTLP_HEADERS, OTEL_SERVICE_NAME and similar variables configure the export (default none)")
}

func (s *telemetrySettings) check() error {
	if s.recent != 0 && s.recent < recent.LeastBytes {
		return errors.New("--recent must be 0, or at least 1MiB")
	}
	return nil
}

// newFleet returns the combined telemetry of the instances that share a store.
func newFleet(recorder *telemetry.Recorder, engine *policy.Engine, store *stores.Store, calls *metrics.StoreCalls) *telemetry.Fleet {
	fleet := &telemetry.Fleet{Recorder: recorder, Store: storeStatus(store, calls.Latency()), Refusals: telemetry.KeepRefusals(engine)}
	if board := store.Board(); board != nil {
		fleet.Board = board
	}
	return fleet
}

// newRecent returns the combined rings of recent requests of the instances that share the store.
func (s *server) newRecent(ring *recent.Ring) *recent.Fleet {
	inForce := func() *policy.Document {
		doc, _ := s.rules.Stack().Document()
		return doc
	}
	if board := s.store.Board(); board != nil {
		return recent.NewFleet(ring, board, inForce, s.log)
	}
	return recent.NewFleet(ring, nil, inForce, s.log)
}

// countKeysEvery is the interval of counting the keys in memory, which takes milliseconds.
const countKeysEvery = 10 * time.Second

// storeStatus returns a function that reports the status of a store.
func storeStatus(store *stores.Store, latency *metrics.StoreLatency) func() telemetry.Store {
	var mu sync.Mutex
	var keys uint64
	var counted time.Time
	return func() telemetry.Store {
		mu.Lock()
		defer mu.Unlock()
		if time.Since(counted) >= countKeysEvery {
			keys, counted = uint64(store.Memory().Stats().Keys), time.Now()
		}
		now := telemetry.Store{Kind: "memory", Keys: keys, Evicted: uint64(store.Memory().Losses().Freed)}
		shared := store.Failover()
		if shared == nil {
			return now
		}
		status := shared.Status()
		now.Kind, now.Shards, now.Took = "redis", len(status.Shards), latency.At(time.Now())
		for _, shard := range status.Shards {
			if shard.Unavailable {
				now.Unavailable++
			}
		}
		return now
	}
}
