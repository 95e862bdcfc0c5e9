package console

import (
	"math"
	"strings"
	"time"

	"github.com/sluicehq/sluice/telemetry"
)

const maxUpstreams = 12 // rows of the table

// upstreamRow is a row of the table of upstreams.
type upstreamRow struct {
	Name                       string
	Rate                       float64 // requests per second
	P50, P99                   time.Duration
	Usual                      time.Duration // the usual P50; 0: unknown
	Timed                      bool          // P50 and P99 are known
	Failing                    float64       // the fraction of requests that failed
	Reasons                    string
	InFlight                   uint64
	Slow, Failed               bool // an alert about the upstream is active
	Latency, Failures, Waiting spark
}

// upstreamRows returns the rows of the table, with upstreams that have an alert first, and the number of all
// upstreams.
func upstreamRows(v *telemetry.View) (rows []upstreamRow, all int) {
	slow, failing := map[string]bool{}, map[string]bool{}
	for _, a := range v.Alerts(math.MaxInt) {
		slow[a.Upstream] = slow[a.Upstream] || strings.HasPrefix(a.Alert, "upstream-slow:")
		failing[a.Upstream] = failing[a.Upstream] || strings.HasPrefix(a.Alert, "upstream-failing:")
	}
	for _, first := range []bool{true, false} {
		for i := range v.Upstreams {
			u := &v.Upstreams[i]
			if trouble := slow[u.Name] || failing[u.Name]; trouble != first || len(rows) == maxUpstreams {
				continue
			}
			rows = append(rows, upstreamRowOf(v, u))
			row := &rows[len(rows)-1]
			row.Slow, row.Failed = slow[u.Name], failing[u.Name]
		}
	}
	return rows, len(v.Upstreams)
}

func upstreamRowOf(v *telemetry.View, u *telemetry.Upstream) upstreamRow {
	now := u.Latest()
	took := now.Latency()
	lasted := min(time.Minute+v.At.Sub(v.At.Truncate(telemetry.Step)), v.At.Sub(v.Since))
	row := upstreamRow{
		Name: u.Name, P50: took.P50, P99: took.P99, Timed: took.Count > 0, Usual: u.Usual.P50,
		Failing: shareOf(now.Failures(), now.Ended()), InFlight: u.InFlight, Reasons: failureWords(&now),
		Rate: perSecond(now.Ended()+now.Errors[telemetry.CanceledError], lasted),
	}
	minutes := upstreamMinutes(u)
	row.Latency = sparkOf(each(minutes, func(c *telemetry.UpstreamCounts) float64 {
		l := c.Latency()
		if l.Count == 0 {
			return -1
		}
		return l.P50.Seconds()
	}))
	row.Failures = sparkOf(each(minutes, func(c *telemetry.UpstreamCounts) float64 { return shareOf(c.Failures(), c.Ended()) }))
	row.Waiting = sparkOf(each(minutes, func(c *telemetry.UpstreamCounts) float64 { return float64(c.InFlight) }))
	return row
}

// failureWords describes the number of failed requests by reason.
func failureWords(c *telemetry.UpstreamCounts) string {
	var all []string
	add := func(n uint64, what string) {
		if n > 0 {
			all = append(all, what+" "+number(n))
		}
	}
	add(c.Statuses[telemetry.StatusClasses-1], "5xx")
	for kind, n := range c.Errors {
		add(n, telemetry.UpstreamError(kind).String())
	}
	return strings.Join(all, ", ")
}

// upstreamMinutes returns the counts of each of the last 60 minutes, except minutes before the first count.
func upstreamMinutes(u *telemetry.Upstream) (all []telemetry.UpstreamCounts) {
	for minute := range inMinutes(u.Recent) {
		var sum telemetry.UpstreamCounts
		for i := range minute {
			sum.Add(&minute[i])
		}
		all = append(all, sum)
	}
	return all
}

func each(all []telemetry.UpstreamCounts, of func(*telemetry.UpstreamCounts) float64) []float64 {
	values := make([]float64, len(all))
	for i := range all {
		values[i] = of(&all[i])
	}
	return values
}
