package metrics

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluicehq/sluice/telemetry"
)

var (
	upstreamDuration = prometheus.NewDesc("sluice_upstream_duration_seconds", "Time until the head of an upstream's response, by class of status. The time starts when the gateway begins to open a connection, or when it has read the last bytes of the request's body from the client, whichever is later. Requests without a response are in sluice_upstream_errors_total.", []string{"upstream", "status"}, nil)
	upstreamErrors   = prometheus.NewDesc("sluice_upstream_errors_total", "Requests to an upstream without a response, by kind: connect; tls; timeout (no head in time); closed (before the head); malformed (the response is not HTTP, or not valid for this request); canceled (the client left, or its body broke off); other.", []string{"upstream", "kind"}, nil)
	upstreamInFlight = prometheus.NewDesc("sluice_upstream_in_flight", "Requests to an upstream that wait for the head of the response.", []string{"upstream"}, nil)
)

// upstreamBuckets has the bounds of the histogram. Each is also a bound of telemetry's histograms.
var upstreamBuckets = []time.Duration{
	time.Millisecond, 2 * time.Millisecond, 5 * time.Millisecond, 10 * time.Millisecond, 20 * time.Millisecond, 50 * time.Millisecond,
	100 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond,
	time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 20 * time.Second, time.Minute,
}

// upstreamMetrics returns metrics of the gateway's upstreams.
func upstreamMetrics(all []*telemetry.UpstreamStats) collector {
	return func(send sender) {
		for _, u := range all {
			t := u.Totals()
			for class := range t.Took {
				if h := upstreamHistogram(&t.Took[class], u.Name(), class+1); h != nil {
					send.ch <- h
				}
			}
			for kind, n := range t.Errors {
				send.counter(upstreamErrors, n, u.Name(), telemetry.UpstreamError(kind).String())
			}
			send.gauge(upstreamInFlight, float64(u.InFlight()), u.Name())
		}
	}
}

// upstreamHistogram returns the histogram of a class of status codes. It returns nil for the class 1xx until the
// first such response.
func upstreamHistogram(h *telemetry.Histogram, upstream string, class int) prometheus.Metric {
	buckets := make(map[float64]uint64, len(upstreamBuckets))
	total, next := uint64(0), 0
	for i, n := range h.Counts {
		total += n
		if next < len(upstreamBuckets) && i < len(h.Bounds) && h.Bounds[i] == upstreamBuckets[next] {
			buckets[h.Bounds[i].Seconds()] = total
			next++
		}
	}
	if class == 1 && total == 0 {
		return nil
	}
	return prometheus.MustNewConstHistogram(upstreamDuration, total, h.Sum.Seconds(), buckets, upstream, strconv.Itoa(class)+"xx")
}
