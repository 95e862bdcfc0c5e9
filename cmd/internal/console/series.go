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

// inMinutes returns the steps of each minute, the latest minute last. It leaves out the first steps if they are
// less than a minute.
func inMinutes[T any](recent []T) iter.Seq[[]T] {
	const perMinute = int(time.Minute / telemetry.Step)
	return slices.Chunk(recent[len(recent)%perMinute:], perMinute)
}

// at returns when a step begins.
func (s steps) at(i int) time.Time { return s.begin.Add(time.Duration(i) * s.step) }

// lasts returns for how long requests were counted in a step.
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

// within returns the counts of the steps that begin at or after from and before to, and how long those steps were
// counted.
func (s steps) within(from, to time.Time) (sum telemetry.Counts, lasted time.Duration) {
	for i := s.first(from); i < min(s.first(to), len(s.counts)); i++ {
		sum.Add(&s.counts[i])
		lasted += s.lasts(i)
	}
	return sum, lasted
}

// first returns the index of the first step that begins at a time or later.
func (s steps) first(t time.Time) int {
	return max(0, int((t.Sub(s.begin)+s.step-1)/s.step))
}

// index returns the index of the step with a time, or -1 if nothing was counted then.
func (s steps) index(t time.Time) int {
	i := int(t.Sub(s.begin) / s.step)
	if t.Before(s.begin) || i >= len(s.counts) || s.lasts(i) == 0 {
		return -1
	}
	return i
}

// perSecond returns a number per second. A time of less than a second counts as one.
func perSecond(n uint64, in time.Duration) float64 {
	return float64(n) / max(1, in.Seconds())
}

// lookedBack returns how far back the numbers reach, in words.
func lookedBack(v *telemetry.View) string {
	if v.Since.IsZero() {
		return "yet"
	}
	return "in the last " + last(max(time.Minute, min(v.At.Sub(v.Since), 48*time.Hour)))
}

// lately returns the counts of the last minute, including the step that has begun.
func lately(v *telemetry.View, s *telemetry.Series) (telemetry.Counts, time.Duration) {
	r := recentSteps(v, s)
	return r.within(v.At.Add(-time.Minute-telemetry.Step+1), v.At.Add(1))
}

// yesterday returns the counts around this time yesterday, in steps of [telemetry.LongStep].
func yesterday(v *telemetry.View, s *telemetry.Series, t time.Time) (c telemetry.Counts, lasted time.Duration, known bool) {
	l := longSteps(v, s)
	i := l.index(t.Add(-24 * time.Hour))
	if i < 0 {
		return c, 0, false
	}
	return l.counts[i], l.lasts(i), true
}

// windowLength has the lengths of the windows of a view.
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

// total returns how many requests were counted.
func total(all []telemetry.Counts) uint64 {
	n := sumOf(all)
	return n.Total()
}
