package telemetry

import "math"

// steps has counts of the latest steps of one length, by the number of the step since the Unix
// epoch. Counts stop at 2^32-1 a step.
type steps struct {
	last  int64             // the latest step
	cells [][columns]uint32 // of step n at n modulo their number
}

func (s *steps) cell(n int64) *[columns]uint32 { return &s.cells[uint64(n)%uint64(len(s.cells))] }

// move makes n the latest step. What is later than that never was.
func (s *steps) move(n int64) {
	from, to := s.last, n
	if n < s.last {
		from, to = n, s.last
	}
	if to-from >= int64(len(s.cells)) {
		clear(s.cells)
	} else {
		for i := from + 1; i <= to; i++ {
			*s.cell(i) = [columns]uint32{}
		}
	}
	s.last = n
}

// first returns the earliest step that has a cell.
func (s *steps) first() int64 { return s.last - int64(len(s.cells)) + 1 }

// add adds to a count of a step, unless it is too old or still to come.
func (s *steps) add(step int64, c int, n uint64) {
	if step >= s.first() && step <= s.last {
		v := &s.cell(step)[c]
		*v = uint32(min(uint64(*v)+n, math.MaxUint32))
	}
}

// addLatest adds to the latest step.
func (s *steps) addLatest(d *column) {
	for c, n := range d {
		s.add(s.last, c, n)
	}
}

// addSteps adds all steps of another list.
func (s *steps) addSteps(of *steps) {
	for n := max(of.first(), 0); n <= of.last; n++ {
		for c, v := range of.cell(n) {
			s.add(n, c, uint64(v))
		}
	}
}

// sum returns the sum of n steps.
func (s *steps) sum(from, n int64) (sum column) {
	for step := from; step < from+n; step++ {
		for c, v := range s.cell(step) {
			sum[c] += uint64(v)
		}
	}
	return sum
}

// latest returns the sum of the latest n steps.
func (s *steps) latest(n int64) column { return s.sum(s.last-n+1, n) }

// since returns the first step from a step on: at least the latest is.
func (s *steps) since(from int64) int64 { return max(min(from, s.last), s.first()) }

// series are the counts of one rule, or of all requests, over time, of one instance or of all.
type series struct{ recent, days steps }

func newSeries(at int64) *series {
	s := &series{
		steps{cells: make([][columns]uint32, RecentSteps)},
		steps{cells: make([][columns]uint32, LongSteps)},
	}
	s.recent.last, s.days.last = recentStep(at), longStep(at)
	return s
}

// Times are in seconds since the Unix epoch.
func recentStep(at int64) int64 { return at / int64(Step.Seconds()) }
func longStep(at int64) int64   { return at / int64(LongStep.Seconds()) }

func (s *series) add(at int64, d *column) {
	s.move(at)
	s.recent.addLatest(d)
	s.days.addLatest(d)
}

func (s *series) addSeries(of *series) {
	s.recent.addSteps(&of.recent)
	s.days.addSteps(&of.days)
}

func (s *series) move(at int64) {
	s.recent.move(recentStep(at))
	s.days.move(longStep(at))
}

// idle reports whether nothing was counted in all of it.
func (s *series) idle() bool {
	for i := range s.days.cells {
		if s.days.cells[i] != [columns]uint32{} {
			return false
		}
	}
	return true
}
