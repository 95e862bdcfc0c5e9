package replay

import "time"

// maxSteps is how many steps a series has at most.
const maxSteps = 500

// stepSeconds are the lengths that a step can have, each a multiple of the one before.
var stepSeconds = [...]int64{1, 5, 15, 60, 5 * 60, 15 * 60, 3600, 6 * 3600, 86400, 7 * 86400, 28 * 86400, 364 * 86400}

// axis is the time of series: steps of one length, from one on. When it is full, the steps become longer.
type axis struct {
	level int   // of stepSeconds
	begin int64 // number of the first step since the Unix epoch
	steps int   // 0: nothing has happened yet

	last      int   // the step that was asked for last
	from, end int64 // its times
}

func (a *axis) micros() int64 { return stepSeconds[a.level] * 1e6 }

// at returns the step of a time, and how often each series is to be coarsened before. A time before the
// first is in the first.
func (a *axis) at(t int64) (i int, coarser []coarsening) {
	if a.from <= t && t < a.end {
		return a.last, nil
	}
	if a.steps == 0 {
		a.begin, a.steps = floorDiv(t, a.micros()), 1
	}
	for {
		i = int(max(0, floorDiv(t, a.micros())-a.begin))
		if i < maxSteps || a.level == len(stepSeconds)-1 {
			break
		}
		coarser = append(coarser, a.coarsen())
	}
	i = min(i, maxSteps-1)
	a.steps = max(a.steps, i+1)
	a.last, a.from = i, floorDiv(t, a.micros())*a.micros()
	a.end = a.from + a.micros()
	return i, coarser
}

// coarsening says how steps become longer ones: step i becomes (shift + i) / ratio.
type coarsening struct{ shift, ratio int64 }

// coarsen makes the steps as long as the next longer ones.
func (a *axis) coarsen() coarsening {
	ratio := stepSeconds[a.level+1] / stepSeconds[a.level]
	begin := floorDiv(a.begin, ratio)
	c := coarsening{a.begin - begin*ratio, ratio}
	a.level, a.begin, a.end = a.level+1, begin, 0
	a.steps = int((c.shift+int64(a.steps)-1)/ratio) + 1
	return c
}

// apply coarsens the counts of a series.
func (c coarsening) apply(counts []int64) []int64 {
	n := 0
	for i, v := range counts {
		to := int((c.shift + int64(i)) / c.ratio)
		if to == i {
			n = i + 1
			continue
		}
		counts[i] = 0
		counts[to] += v
		n = to + 1
	}
	return counts[:n]
}

// add adds n at a step.
func add(counts []int64, i int, n int64) []int64 {
	for len(counts) <= i {
		counts = append(counts, 0)
	}
	counts[i] += n
	return counts
}

// shifted returns counts as if they had begun so many steps earlier.
func shifted(counts []int64, by int64) []int64 {
	if by <= 0 || len(counts) == 0 {
		return counts
	}
	return append(make([]int64, by), counts...)
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

func (a *axis) begins() time.Time { return time.UnixMicro(a.begin * a.micros()).UTC() }
