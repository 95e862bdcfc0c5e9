package control

import "github.com/sluicehq/sluice/telemetry"

// UpstreamStats has the health of one upstream, summed over all gateways.
type UpstreamStats struct {
	Upstream string         `json:"upstream"`
	InFlight uint64         `json:"in_flight"` // the present number of requests in flight
	Minute   UpstreamCounts `json:"minute"`
	Hour     UpstreamCounts `json:"hour"`
	// Usual is the latency over the latest hour in which the upstream was not slow, or null if unknown.
	Usual *Latency `json:"usual"`
}

// UpstreamCounts has the requests to an upstream that ended within some time. A missing class or kind is 0.
type UpstreamCounts struct {
	Statuses map[string]uint64 `json:"statuses"`  // by class, such as "2xx"
	Errors   map[string]uint64 `json:"errors"`    // by kind: see telemetry.UpstreamError
	InFlight uint64            `json:"in_flight"` // the maximum number of requests in flight
	Took     Latency           `json:"took"`      // the time until the head of the response, a timeout or a cancellation
}

var statusClasses = [telemetry.StatusClasses]string{"1xx", "2xx", "3xx", "4xx", "5xx"}

func upstreamsOf(v *telemetry.View) []UpstreamStats {
	all := []UpstreamStats{}
	for i := range v.Upstreams {
		u := &v.Upstreams[i]
		out := UpstreamStats{
			Upstream: u.Name, InFlight: u.InFlight,
			Minute: upstreamCountsOf(u.Latest()), Hour: upstreamCountsOf(u.Last(telemetry.RecentSteps)),
		}
		if u.Usual.Count > 0 {
			usual := latencyOf(u.Usual)
			out.Usual = &usual
		}
		all = append(all, out)
	}
	return all
}

func upstreamCountsOf(sum telemetry.UpstreamCounts) UpstreamCounts {
	out := UpstreamCounts{Statuses: map[string]uint64{}, Errors: map[string]uint64{}, InFlight: sum.InFlight, Took: latencyOf(sum.Latency())}
	for class, n := range sum.Statuses {
		if n > 0 {
			out.Statuses[statusClasses[class]] = n
		}
	}
	for kind, n := range sum.Errors {
		if n > 0 {
			out.Errors[telemetry.UpstreamError(kind).String()] = n
		}
	}
	return out
}
