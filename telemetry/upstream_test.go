package telemetry_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicehq/sluice/internal/seed"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/telemetry"
)

// gateway adds a gateway with upstreams to the fleet of a board.
func gateway(t *testing.T, name string, board telemetry.Board, upstreams ...*telemetry.UpstreamStats) *member {
	return joinBy(t, board, policy.NewEngine(memory.New(), compile(t, blocking)), telemetry.Config{Instance: name, Upstreams: upstreams}, nil)
}

// holdLatency compares a latency with the durations in it. Quantiles may be larger, but at most by a factor of two,
// because they are bounds of a histogram.
func holdLatency(t *testing.T, got telemetry.Latency, all []time.Duration) {
	t.Helper()
	slices.Sort(all)
	for _, q := range []struct {
		percent int
		got     time.Duration
	}{{50, got.P50}, {99, got.P99}} {
		if want := all[(len(all)*q.percent+99)/100-1]; got.Count != uint64(len(all)) || q.got < want || q.got > 2*want {
			t.Errorf("p%d of %d is %v, want at least %v of %d", q.percent, got.Count, q.got, want, len(all))
		}
	}
}

// A view adds up the gateways of a fleet: counts, requests in flight, and the histograms of the quantiles. An instance
// without a gateway has no upstreams, and changes nothing.
func TestUpstreamsOfSeveralGateways(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		board := &wall{}
		alone := join(t, "alone", nil)
		a, b, only := telemetry.NewUpstreamStats("http://up:1"), telemetry.NewUpstreamStats("http://up:1"), telemetry.NewUpstreamStats("http://other:2")
		first, second := gateway(t, "a", board, a, only), gateway(t, "b", board, b)
		service := join(t, "c", board)
		var all []time.Duration
		end := func(u *telemetry.UpstreamStats, status int, took time.Duration) {
			u.Begin().Answered(status, took)
			all = append(all, took)
		}
		for range 300 {
			end(a, 200, 20*time.Millisecond)
		}
		for range 100 { // few, and slow: a mean of two medians would be far off
			end(b, 503, 4*time.Second)
		}
		b.Begin().Failed(telemetry.TimeoutError, 10*time.Second)
		b.Begin().Failed(telemetry.CanceledError, time.Second)
		all = append(all, 10*time.Second, time.Second)
		a.Begin().Failed(telemetry.ConnectError, time.Millisecond)
		for range 3 {
			a.Begin()
		}
		b.Begin()
		time.Sleep(30 * time.Second)
		for _, m := range []*member{first, second, service} {
			v := m.fleet.View()
			if len(v.Upstreams) != 2 || v.Upstreams[0].Name != "http://other:2" || v.Upstreams[1].Name != "http://up:1" {
				t.Fatalf("%+v", v.Upstreams)
			}
			u := &v.Upstreams[1]
			got := u.Latest()
			want := telemetry.UpstreamCounts{Statuses: [telemetry.StatusClasses]uint64{1: 300, 4: 100}, InFlight: 4}
			want.Errors[telemetry.TimeoutError], want.Errors[telemetry.CanceledError], want.Errors[telemetry.ConnectError] = 1, 1, 1
			if got.Statuses != want.Statuses || got.Errors != want.Errors || got.InFlight != want.InFlight || u.InFlight != 4 || got.Failures() != 102 || got.Ended() != 402 {
				t.Errorf("%+v, and %d in flight", got, u.InFlight)
			}
			holdLatency(t, got.Latency(), slices.Clone(all))
			if idle := v.Upstreams[0].Latest(); idle.Ended() != 0 || idle.Latency().Count != 0 {
				t.Errorf("the other upstream has %+v", idle)
			}
		}
		if v := alone.fleet.View(); len(v.Upstreams) != 0 {
			t.Errorf("upstreams without a gateway: %+v", v.Upstreams)
		}
		second.stop()
		time.Sleep(15 * time.Minute)
		u := first.fleet.View().Upstreams[1]
		var hour telemetry.UpstreamCounts
		for i := range u.Recent {
			hour.Add(&u.Recent[i])
		}
		if u.InFlight != 3 || hour.Statuses[4] != 100 {
			t.Errorf("after an instance has ended: %d in flight, %+v", u.InFlight, hour.Statuses)
		}
	})
}

// served is an upstream that the test makes fast or slow.
type served struct {
	t     *testing.T
	stats *telemetry.UpstreamStats
	fleet *telemetry.Fleet
	rate  float64 // requests a second
	// end ends a request, with a random duration and result.
	end    func(telemetry.UpstreamCall, *rand.Rand)
	random *rand.Rand
	due    float64
	began  time.Time
}

func serve(t *testing.T, rate float64) *served {
	time.Sleep(time.Until(time.Now().Truncate(time.Hour).Add(time.Hour)))
	s := &served{t: t, stats: telemetry.NewUpstreamStats("up"), rate: rate, random: rand.New(rand.NewPCG(seed.Of(t), 1)), began: time.Now()}
	s.fleet = gateway(t, "a", nil, s.stats).fleet
	s.end = lasting(50*time.Millisecond, 0)
	return s
}

// lasting returns an end for requests that take about the given time, or ten times that for one in fifty. The fraction
// failing of them fails.
func lasting(about time.Duration, failing float64) func(telemetry.UpstreamCall, *rand.Rand) {
	return func(c telemetry.UpstreamCall, r *rand.Rand) {
		took := time.Duration(float64(about) * (0.5 + r.Float64()))
		if r.IntN(50) == 0 {
			took *= 10
		}
		switch f := r.Float64(); {
		case f < failing/2:
			c.Failed(telemetry.ClosedError, took)
		case f < failing:
			c.Answered(502, took)
		default:
			c.Answered(200, took)
		}
	}
}

// alerts sends requests for a time, and returns the alerts at its end. Once a minute, and during the last seconds, all
// alerts must be in among.
func (s *served) alerts(lasts time.Duration, among ...string) (all []telemetry.Headline) {
	s.t.Helper()
	for i := range int(lasts / time.Second) {
		for s.due += s.rate * 2 * s.random.Float64(); s.due >= 1; s.due-- {
			s.end(s.stats.Begin(), s.random)
		}
		time.Sleep(time.Second)
		if i%60 != 0 && i < int(lasts/time.Second)-10 {
			continue
		}
		all = s.fleet.View().Alerts(9)
		for _, a := range all {
			if !slices.Contains(among, a.Alert) {
				s.t.Errorf("after %v: %s: %s", time.Since(s.began), a.Alert, a.Text)
			}
		}
	}
	return all
}

const slowUp, failingUp = "upstream-slow:up", "upstream-failing:up"

// hold checks that alert is the only one, began at about the time since, and contains words.
func hold(t *testing.T, all []telemetry.Headline, alert string, since time.Time, words ...string) {
	t.Helper()
	if len(all) != 1 || all[0].Alert != alert || all[0].Level != telemetry.Bad || all[0].Upstream != "up" {
		t.Fatalf("%+v", all)
	}
	if off := all[0].Since.Sub(since); off < -20*time.Second || off > 20*time.Second {
		t.Errorf("the alert began at %v, want about %v", all[0].Since, since)
	}
	for _, w := range words {
		if !strings.Contains(all[0].Text, w) {
			t.Errorf("%q is missing: %s", w, all[0].Text)
		}
	}
}

// The alert for a slow upstream lasts as long as the upstream is slower than in the last hour in which it was not slow.
func TestUpstreamSlow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, 5)
		s.alerts(40 * time.Minute)
		s.end = lasting(110*time.Millisecond, 0) // twice as slow is no reason for an alert
		s.alerts(20 * time.Minute)
		s.end = lasting(50*time.Millisecond, 0)
		s.alerts(20 * time.Minute)
		s.end = lasting(time.Second, 0)
		begins := time.Now()
		s.alerts(time.Minute, slowUp)
		hold(t, s.alerts(time.Minute, slowUp), slowUp, begins, "Since "+begins.UTC().Format("15:04"), "upstream up is slow", "half of them wait at most 70 ms")
		hold(t, s.alerts(20*time.Minute, slowUp), slowUp, begins)
		all := s.alerts(100*time.Minute, slowUp)
		if len(all) != 1 || all[0].Since.Before(begins.Add(-10*time.Minute)) || all[0].Since.After(begins.Add(10*time.Minute)) {
			t.Errorf("after two hours in all: %+v", all)
		}
		s.end = lasting(50*time.Millisecond, 0)
		s.alerts(time.Minute, slowUp)
		s.alerts(30 * time.Minute)
	})
}

// An upstream is also slow if a tenth of its requests takes much longer than any before, or if clients leave before it
// responds.
func TestUpstreamSlowForSome(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, 20)
		s.alerts(40 * time.Minute)
		usual := s.end
		s.end = func(c telemetry.UpstreamCall, r *rand.Rand) {
			if r.IntN(10) == 0 {
				c.Answered(200, 8*time.Second)
				return
			}
			usual(c, r)
		}
		begins := time.Now()
		s.alerts(2*time.Minute, slowUp)
		hold(t, s.alerts(time.Minute, slowUp), slowUp, begins, "99 % of them")
		s.end = usual
		s.alerts(time.Minute, slowUp)
		s.alerts(20 * time.Minute)
		s.end = func(c telemetry.UpstreamCall, r *rand.Rand) { c.Failed(telemetry.CanceledError, time.Second) }
		begins = time.Now()
		s.alerts(2*time.Minute, slowUp)
		hold(t, s.alerts(time.Minute, slowUp), slowUp, begins, "half of them")
	})
}

// The alert for an upstream that hangs begins before the first request times out, and lasts until the requests end.
func TestUpstreamHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, 5)
		s.alerts(40 * time.Minute)
		usual, begins := s.end, time.Now()
		var held []telemetry.UpstreamCall
		s.end = func(c telemetry.UpstreamCall, _ *rand.Rand) { held = append(held, c) }
		s.alerts(80*time.Second, slowUp)
		hold(t, s.alerts(time.Minute, slowUp), slowUp, begins, "has not responded")
		for _, c := range held {
			c.Answered(200, c.Elapsed())
		}
		s.end = usual
		s.alerts(2*time.Minute, slowUp)
		s.alerts(20 * time.Minute)
		for range 19 { // too few requests for an alert
			s.stats.Begin()
		}
		s.rate = 0
		s.alerts(30 * time.Minute)
	})
}

// The alert for a failing upstream lasts as long as the upstream fails, and can begin in the first minute of a process.
func TestUpstreamFailing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, 5)
		s.end = lasting(50*time.Millisecond, 0.02)
		s.alerts(30 * time.Minute)
		s.end = lasting(50*time.Millisecond, 0.5)
		begins := time.Now()
		s.alerts(30*time.Second, failingUp)
		hold(t, s.alerts(time.Minute, failingUp), failingUp, begins, "upstream up fails", "in the last minute", "got a status of 5xx", "lost the connection")
		hold(t, s.alerts(50*time.Minute, failingUp), failingUp, begins)
		s.end = lasting(50*time.Millisecond, 0.02)
		s.alerts(2*time.Minute, failingUp)
		s.alerts(20 * time.Minute)
		s.end = lasting(time.Millisecond, 1)
		s.rate = 0.05 // three a minute
		s.alerts(5*time.Minute, failingUp)
		if all := s.alerts(6*time.Minute, failingUp); len(all) != 1 || !strings.Contains(all[0].Text, "minutes, ") {
			t.Errorf("with three requests a minute: %+v", all)
		}
	})
}

// Little traffic with some slow and failed requests causes no alert, and neither do clients that leave.
func TestUpstreamsOfLittleTraffic(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, 0.02)
		s.end = func(c telemetry.UpstreamCall, r *rand.Rand) {
			took := time.Duration(r.ExpFloat64() * float64(100*time.Millisecond))
			switch r.IntN(20) {
			case 0:
				c.Answered(500, took)
			case 1:
				c.Failed(telemetry.CanceledError, took)
			case 2:
				c.Answered(200, 30*time.Second)
			default:
				c.Answered(200, took)
			}
		}
		s.alerts(3 * time.Hour)
	})
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, 5)
		s.end = func(c telemetry.UpstreamCall, _ *rand.Rand) { c.Failed(telemetry.CanceledError, time.Millisecond) }
		s.alerts(time.Hour)
	})
}
