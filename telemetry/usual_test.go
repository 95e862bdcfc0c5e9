package telemetry

import (
	"math"
	"testing"
	"time"
)

// The usual rate of denials is learned only from times without an attack.
func TestUsual(t *testing.T) {
	t.Parallel()
	const since, passed = -30 * time.Hour, 100.0 // passed: allowed requests a second
	traffic := func(time.Duration) float64 { return passed }
	steady := func(rate float64) func(time.Duration) float64 { return func(time.Duration) float64 { return rate } }
	// Times are relative to now, which is noon.
	from := func(begin time.Duration, rate, before float64) func(time.Duration) float64 {
		return func(at time.Duration) float64 {
			if at >= begin {
				return rate
			}
			return before
		}
	}
	during := func(begin, end time.Duration, rate, else_ float64) func(time.Duration) float64 {
		return func(at time.Duration) float64 {
			if at >= begin && at < end {
				return rate
			}
			return else_
		}
	}
	daytime := func(at time.Duration) bool {
		h := (at + 48*time.Hour) % (24 * time.Hour)
		return h >= 20*time.Hour || h < 8*time.Hour
	}
	for name, c := range map[string]struct {
		since           time.Duration
		refused, passed func(at time.Duration) float64
		want            float64 // negative: unknown
		alarm           bool    // now
	}{
		"nothing refused":         {since, steady(0), traffic, 0, false},
		"always the same":         {since, steady(2), traffic, 2, false},
		"blocked, beside":         {since, steady(2), traffic, 2, false},
		"an attack of a minute":   {since, from(-time.Minute, 40, 0.5), traffic, 0.5, true},
		"an attack of 27 minutes": {-50 * time.Minute, from(-27*time.Minute, 40, 0.5), traffic, 0.5, true},
		"an attack of 26 hours":   {since, from(-26*time.Hour, 40, 0.5), traffic, 0.5, true},
		"an attack that is over":  {-6 * time.Hour, during(-5*time.Hour, -time.Hour, 40, 0.5), traffic, 0.5, false},
		"yesterday's attack":      {since, during(-25*time.Hour, -23*time.Hour, 40, 0.5), traffic, 0.5, false},
		"yesterday's, and now again": {since, func(at time.Duration) float64 {
			return during(-25*time.Hour, -23*time.Hour, 40, during(-20*time.Minute, time.Hour, 40, 0.5)(at))(at)
		}, traffic, 0.5, true},
		"busier than at night":        {-12 * time.Hour, from(-4*time.Hour, 2, 0.1), from(-4*time.Hour, 2000, 100), (8*0.1 + (4-1.0/6)*2) / (12 - 1.0/6), false},
		"as yesterday by day":         {since, func(at time.Duration) float64 { return map[bool]float64{true: 2, false: 0.1}[daytime(at)] }, traffic, 2, false},
		"small and new, for an hour":  {since, from(-time.Hour, 2, 0), traffic, 0, true},
		"small and new, for a day":    {since, from(-25*time.Hour, 2, 0), traffic, 2, false},
		"the process is new":          {-20 * time.Minute, steady(2), traffic, -1, false},
		"and much is refused":         {-20 * time.Minute, steady(40), traffic, -1, true},
		"much is refused for 5 hours": {-5 * time.Hour, steady(40), traffic, -1, true},
	} {
		const now = 1_800_014_400/86400*86400 + 43200
		begin := now + int64(c.since.Seconds())
		all, one := newSeries(now), newSeries(now)
		for at := begin; at < now; at++ {
			ago := time.Duration(at-now) * time.Second
			for _, s := range []*series{all, one} {
				if name == "blocked, beside" {
					for _, column := range []int{int(Deny), blockedColumn} {
						s.recent.add(recentStep(at), column, 3000)
						s.days.add(longStep(at), column, 3000)
					}
				}
				s.recent.add(recentStep(at), int(Deny), uint64(1000*c.refused(ago)))
				s.days.add(longStep(at), int(Deny), uint64(1000*c.refused(ago)))
				s.recent.add(recentStep(at), int(Allow), uint64(1000*c.passed(ago)))
				s.days.add(longStep(at), int(Allow), uint64(1000*c.passed(ago)))
			}
		}
		got := spansOf(all, time.Unix(begin, 0), now).usual(one)
		got.rate /= 1000 // the counts are a thousand times as large, to avoid fractions
		if got.rate < 0 != (c.want < 0) || c.want >= 0 && math.Abs(got.rate-c.want) > 0.05*c.want+0.001 {
			t.Errorf("%s: the usual rate is %v, want %v", name, got.rate, c.want)
		}
		rate, share := c.refused(-1), c.refused(-1)/(c.refused(-1)+c.passed(-1))
		if alarm := got.exceeded(refusing{rate, share, share}); alarm != c.alarm {
			t.Errorf("%s: alarm %v, want %v; the usual rate is %+v", name, alarm, c.alarm, got)
		}
	}
}
