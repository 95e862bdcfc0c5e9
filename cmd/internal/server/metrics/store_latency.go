package metrics

import (
	"math"
	"sync"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/sluicehq/sluice/telemetry"
)

// StoreLatency measures the time for which decisions waited for the shared store in the last minute.
type StoreLatency struct {
	calls *StoreCalls
	mu    sync.Mutex
	past  []countedCalls // the oldest first
}

// Latency returns a StoreLatency of the calls.
func (c *StoreCalls) Latency() *StoreLatency { return &StoreLatency{calls: c} }

// countedCalls has the calls from the start of the process to the time at.
type countedCalls struct {
	at      time.Time
	count   uint64
	buckets []*dto.Bucket
}

const (
	latencyOver  = time.Minute
	latencyEvery = 10 * time.Second // the minimum time between the entries of past
)

// At returns the latency of the minute before the time now, which must not decrease between calls.
func (l *StoreLatency) At(now time.Time) (latency telemetry.Latency) {
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

// since returns the quantile q of the latency of the calls between the counts before and c. The result is the upper
// bound of the quantile's bucket, or the last bound if the quantile is above all bounds.
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
