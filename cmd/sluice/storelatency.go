package main

import (
	"math"
	"sync"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/sluicehq/sluice/telemetry"
)

// storeLatency says how long decisions have waited for the shared store in the last minute, from what
// storeCalls has counted since the start.
type storeLatency struct {
	calls *storeCalls
	mu    sync.Mutex
	past  []countedCalls // the oldest first
}

type countedCalls struct {
	at      time.Time
	count   uint64
	buckets []*dto.Bucket
}

const (
	latencyOver  = time.Minute
	latencyEvery = 10 * time.Second // how often what was counted is remembered
)

func (l *storeLatency) at(now time.Time) (latency telemetry.Latency) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var m dto.Metric
	if l.calls.took.Write(&m) != nil {
		return latency
	}
	seen := countedCalls{now, m.Histogram.GetSampleCount(), m.Histogram.Bucket}
	if n := len(l.past); n == 0 || now.Sub(l.past[n-1].at) >= latencyEvery {
		l.past = append(l.past, seen)
	}
	for len(l.past) > 1 && now.Sub(l.past[1].at) >= latencyOver {
		l.past = l.past[1:]
	}
	before := l.past[0]
	latency.Count = seen.count - before.count
	latency.P50, latency.P99 = seen.since(before, 0.5), seen.since(before, 0.99)
	return latency
}

// since returns the bound of a quantile of what came after before; of what is beyond all bounds, the
// last of them.
func (c countedCalls) since(before countedCalls, q float64) time.Duration {
	need := uint64(math.Ceil(q * float64(c.count-before.count)))
	if need == 0 {
		return 0
	}
	bound := 0.0
	for i, b := range c.buckets {
		if bound = b.GetUpperBound(); b.GetCumulativeCount()-before.buckets[i].GetCumulativeCount() >= need {
			break
		}
	}
	return time.Duration(bound * float64(time.Second))
}
