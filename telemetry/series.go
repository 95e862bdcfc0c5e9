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

// add counts in the latest step.
func (s *steps) add(d *column) {
	c := s.cell(s.last)
	for i, n := range d {
		c[i] = uint32(min(uint64(c[i])+n, math.MaxUint32))
	}
}

// series are the counts of one rule, or of all requests, over time.
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
	s.recent.add(d)
	s.days.add(d)
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
