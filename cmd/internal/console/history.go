package console

import (
	"sync"
	"time"

	"github.com/sluicehq/sluice/cmd/internal/control"
	"github.com/sluicehq/sluice/cmd/internal/source"
	"github.com/sluicehq/sluice/telemetry"
)

// sample has the values of one step. Telemetry keeps only their present values.
type sample struct {
	step int64         // the number of the step, counted from the Unix epoch
	slow time.Duration // as returned by slowest
	who  uint64        // the number of subjects denied in the last minute
}

// history keeps samples as long as a telemetry.View keeps counts: short steps for the last hour, and long steps for
// two days.
type history struct {
	mu     sync.Mutex
	recent [telemetry.RecentSteps]sample
	days   [telemetry.LongSteps]sample
}

// note adds the values of a view. A step keeps the maximum of its values.
func (h *history) note(v *telemetry.View) {
	slow, who := slowest(v), refusedIn(v, telemetry.Minute, telemetry.Deny)
	h.mu.Lock()
	defer h.mu.Unlock()
	keep(h.recent[:], v.At.Unix()/int64(telemetry.Step.Seconds()), slow, who)
	keep(h.days[:], v.At.Unix()/int64(telemetry.LongStep.Seconds()), slow, who)
}

func keep(ring []sample, step int64, slow time.Duration, who uint64) {
	s := &ring[step%int64(len(ring))]
	if s.step != step {
		*s = sample{step: step}
	}
	s.slow, s.who = max(s.slow, slow), max(s.who, who)
}

// lastHour returns a value for each minute of the last hour, or -1 for a minute without a sample.
func (h *history) lastHour(now time.Time, of func(*sample) float64) []float64 {
	const perMinute = int64(time.Minute / telemetry.Step)
	h.mu.Lock()
	defer h.mu.Unlock()
	all := make([]float64, 60)
	last := now.Unix() / int64(telemetry.Step.Seconds())
	for i := range all {
		all[i] = -1
		for j := range perMinute {
			step := last - int64(len(all)-1-i)*perMinute - j
			if s := &h.recent[step%telemetry.RecentSteps]; s.step == step {
				all[i] = max(all[i], of(s))
			}
		}
	}
	return all
}

// yesterday returns the sample from the same time a day ago.
func (h *history) yesterday(now time.Time) (s sample, known bool) {
	step := now.Add(-24*time.Hour).Unix() / int64(telemetry.LongStep.Seconds())
	h.mu.Lock()
	defer h.mu.Unlock()
	s = h.days[step%telemetry.LongSteps]
	return s, s.step == step
}

// watch adds a sample to the history in each step until the channel done is closed, even if no page is open. So a
// page has a past to show when it is opened.
func (s *server) watch(done <-chan struct{}) {
	self := control.Caller{Name: via, Role: source.Viewer}
	tick := time.NewTicker(telemetry.Step)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return
		case <-tick.C:
			if v, err := s.Control.View(self); err == nil && !v.At.IsZero() {
				s.history.note(v)
			}
		}
	}
}

// slowest returns the p99 of the instance with the slowest decisions.
func slowest(v *telemetry.View) (p99 time.Duration) {
	for i := range v.Instances {
		if one := &v.Instances[i]; !one.Stale && one.Took.Count > 0 {
			p99 = max(p99, one.Took.P99)
		}
	}
	return p99
}
