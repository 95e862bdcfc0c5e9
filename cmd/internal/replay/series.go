package replay

import "time"

// maxSteps is the maximum number of steps in a series.
const maxSteps = 500

// stepSeconds are the lengths that a step can have, each a multiple of the one before.
var stepSeconds = [...]int64{1, 5, 15, 60, 5 * 60, 15 * 60, 3600, 6 * 3600, 86400, 7 * 86400, 28 * 86400, 364 * 86400}

// axis is the time axis of all series. Its steps have the same length. When the axis is full, all steps become
// longer.
type axis struct {
	level int   // index in stepSeconds
	begin int64 // the number of the first step, counted from the Unix epoch
	steps int   // 0 means that nothing has happened yet

	last      int   // the latest result of axis.at
	from, end int64 // the start and the end of that step
}

func (a *axis) micros() int64 { return stepSeconds[a.level] * 1e6 }

func (a *axis) begins() time.Time { return time.UnixMicro(a.begin * a.micros()).UTC() }

// at returns the step of a time. A time before the first step belongs to the first step. For a time that is too
// late for the series, the result room is false, and the caller has to make the steps longer; if they cannot become
// longer, the time belongs to the last step.
func (a *axis) at(t int64) (i int, room bool) {
	number := t / a.micros()
	if a.steps == 0 {
		a.begin = number
	}
	i = int(max(0, number-a.begin))
	if i >= maxSteps && a.level < len(stepSeconds)-1 {
		return 0, false
	}
	a.last = min(i, maxSteps-1)
	a.steps = max(a.steps, a.last+1)
	a.from, a.end = number*a.micros(), (number+1)*a.micros()
	return a.last, true
}

// lengthen changes the steps to the next longer length. Step i becomes step (shift + i) / ratio.
func (a *axis) lengthen() (shift, ratio int64) {
	ratio = stepSeconds[a.level+1] / stepSeconds[a.level]
	shift = a.begin % ratio
	a.level, a.begin, a.end = a.level+1, a.begin/ratio, 0
	a.steps = int((shift+int64(a.steps)-1)/ratio) + 1
	return shift, ratio
}

// lengthened returns the counts of a series after step i has become step (shift + i) / ratio.
func lengthened(counts []int64, shift, ratio int64) []int64 {
	var sums []int64
	for i, n := range counts {
		sums = add(sums, int((shift+int64(i))/ratio), n)
	}
	return sums
}

// Coarser returns the series with longer steps. The new length must be a multiple of the old one.
func (s Series) Coarser(step time.Duration) Series {
	if step <= s.Step || s.Step <= 0 {
		return s
	}
	ratio := int64(step / s.Step)
	first := s.Begin.Unix() / int64(s.Step/time.Second) // the steps count from the Unix epoch
	shift := first % ratio
	return Series{
		Begin: time.Unix(first/ratio*int64(step/time.Second), 0).UTC(), Step: step,
		Requests: lengthened(s.Requests, shift, ratio), Refused: lengthened(s.Refused, shift, ratio),
	}
}

// add adds n to the count of a step, and returns the counts.
func add(counts []int64, i int, n int64) []int64 {
	for len(counts) <= i {
		counts = append(counts, 0)
	}
	counts[i] += n
	return counts
}
