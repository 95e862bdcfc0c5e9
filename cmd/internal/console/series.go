package console

import (
	"iter"
	"slices"
	"time"

	"github.com/sluicehq/sluice/telemetry"
)

// steps has counts over time. The last step is still being counted.
type steps struct {
	counts []telemetry.Counts
	step   time.Duration
	begin  time.Time // the start of the first step
	now    time.Time
	since  time.Time // the time from which requests were counted
}

func recentSteps(v *telemetry.View, s *telemetry.Series) steps {
	return stepsOf(v, s.Recent, telemetry.Step)
}

func longSteps(v *telemetry.View, s *telemetry.Series) steps {
	return stepsOf(v, s.Days, telemetry.LongStep)
}

func stepsOf(v *telemetry.View, counts []telemetry.Counts, step time.Duration) steps {
	s := newSteps(v, len(counts), step)
	s.counts = counts
	return s
}

// newSteps returns n steps without counts.
func newSteps(v *telemetry.View, n int, step time.Duration) steps {
	return steps{step: step, begin: v.At.Truncate(step).Add(-time.Duration(n-1) * step), now: v.At, since: v.Since}
}

// inMinutes returns the steps of each minute, the latest minute last. It omits the first steps if they do not fill
// a minute.
func inMinutes[T any](recent []T) iter.Seq[[]T] {
	const perMinute = int(time.Minute / telemetry.Step)
	return slices.Chunk(recent[len(recent)%perMinute:], perMinute)
}

// at returns the time at which a step begins.
func (s steps) at(i int) time.Time { return s.begin.Add(time.Duration(i) * s.step) }

// lasts returns the part of a step's time in which requests were counted.
func (s steps) lasts(i int) time.Duration {
	from, to := s.at(i), s.at(i+1)
	if s.now.Before(to) {
		to = s.now
	}
	if s.since.After(from) {
		from = s.since
	}
	return max(0, to.Sub(from))
}

// within returns the sum of the steps that begin in the period [from, to), and the time in which those requests
// were counted.
func (s steps) within(from, to time.Time) (sum telemetry.Counts, lasted time.Duration) {
	for i := s.first(from); i < min(s.first(to), len(s.counts)); i++ {
		sum.Add(&s.counts[i])
		lasted += s.lasts(i)
	}
	return sum, lasted
}

// first returns the index of the first step that begins at or after a time.
func (s steps) first(t time.Time) int {
	return max(0, int((t.Sub(s.begin)+s.step-1)/s.step))
}

// index returns the index of the step that contains a time, or -1 if nothing was counted then.
func (s steps) index(t time.Time) int {
	i := int(t.Sub(s.begin) / s.step)
	if t.Before(s.begin) || i >= len(s.counts) || s.lasts(i) == 0 {
		return -1
	}
	return i
}

// perSecond returns n divided by a time in seconds. A time of less than a second counts as a second.
func perSecond(n uint64, in time.Duration) float64 {
	return float64(n) / max(1, in.Seconds())
}

// lookedBack describes the time for which numbers are available.
func lookedBack(v *telemetry.View) string {
	if v.Since.IsZero() {
		return "yet"
	}
	return "in the last " + last(max(time.Minute, min(v.At.Sub(v.Since), 48*time.Hour)))
}

// lately returns the counts of the last minute, including the present step.
func lately(v *telemetry.View, s *telemetry.Series) (telemetry.Counts, time.Duration) {
	r := recentSteps(v, s)
	return r.within(v.At.Add(-time.Minute-telemetry.Step+1), v.At.Add(1))
}

// yesterday returns the counts of the [telemetry.LongStep] that contains the time a day before t.
func yesterday(v *telemetry.View, s *telemetry.Series, t time.Time) (c telemetry.Counts, lasted time.Duration, known bool) {
	l := longSteps(v, s)
	i := l.index(t.Add(-24 * time.Hour))
	if i < 0 {
		return c, 0, false
	}
	return l.counts[i], l.lasts(i), true
}

// windowLength has the lengths of telemetry's windows.
var windowLength = [telemetry.Windows]time.Duration{time.Minute, time.Hour, 24 * time.Hour}

// sumOf adds counts up.
func sumOf(all []telemetry.Counts) (n telemetry.Counts) {
	for i := range all {
		n.Add(&all[i])
	}
	return n
}

// countsIn returns the counts of a window that ends now.
func countsIn(v *telemetry.View, s *telemetry.Series, w telemetry.Window) telemetry.Counts {
	switch w {
	case telemetry.Minute:
		c, _ := lately(v, s)
		return c
	case telemetry.Hour:
		return sumOf(s.Recent)
	}
	steps := int(24*time.Hour/telemetry.LongStep) + 1
	return sumOf(s.Days[max(0, len(s.Days)-steps):])
}

// total returns the number of counted requests.
func total(all []telemetry.Counts) uint64 {
	n := sumOf(all)
	return n.Total()
}
