package telemetry

import "math"

// counted are the counts of one step, of a rule or of an upstream.
type counted interface {
	[columns]uint32 | [upstreamColumns]uint32
}

// steps has counts of the latest steps of one length, by the number of the step since the Unix
// epoch. Counts stop at 2^32-1 a step.
type steps[C counted] struct{ ring[C] }

// move makes n the latest step, and removes the counts of later steps.
func (s *steps[C]) move(n int64) {
	from, to := s.last, n
	if n < s.last {
		from, to = n, s.last
	}
	if to-from >= int64(len(s.cells)) {
		clear(s.cells)
	} else {
		for i := from + 1; i <= to; i++ {
			*s.cell(i) = *new(C)
		}
	}
	s.last = n
}

// add adds to a count of a step, unless the step is too old or in the future.
func (s *steps[C]) add(step int64, c int, n uint64) {
	if s.has(step) {
		cell := s.cell(step)
		(*cell)[c] = uint32(min(uint64((*cell)[c])+n, math.MaxUint32))
	}
}

// addLatest adds to the latest step.
func (s *steps[C]) addLatest(counts []uint64) {
	for c, n := range counts {
		s.add(s.last, c, n)
	}
}

// addSteps adds all steps of another list.
func (s *steps[C]) addSteps(of *steps[C]) {
	for n := max(of.first(), 0); n <= of.last; n++ {
		cell := of.cell(n)
		for c := range len(*cell) {
			s.add(n, c, uint64((*cell)[c]))
		}
	}
}

// sum adds the counts of n steps to a sum.
func (s *steps[C]) sum(sum []uint64, from, n int64) {
	for step := from; step < from+n; step++ {
		cell := s.cell(step)
		for c := range sum {
			sum[c] += uint64((*cell)[c])
		}
	}
}

// timed are counts over time, in steps of two lengths, of one instance or of all.
type timed[C counted] struct{ recent, days steps[C] }

func newTimed[C counted](at int64) *timed[C] {
	s := &timed[C]{
		steps[C]{ring[C]{cells: make([]C, RecentSteps)}},
		steps[C]{ring[C]{cells: make([]C, LongSteps)}},
	}
	s.recent.last, s.days.last = recentStep(at), longStep(at)
	return s
}

// recentStep and longStep return the number of the step of a time, which is in seconds since the Unix epoch.
func recentStep(at int64) int64 { return at / int64(Step.Seconds()) }
func longStep(at int64) int64   { return at / int64(LongStep.Seconds()) }

func (s *timed[C]) add(at int64, counts []uint64) {
	s.move(at)
	s.recent.addLatest(counts)
	s.days.addLatest(counts)
}

func (s *timed[C]) addAll(of *timed[C]) {
	s.recent.addSteps(&of.recent)
	s.days.addSteps(&of.days)
}

func (s *timed[C]) move(at int64) {
	s.recent.move(recentStep(at))
	s.days.move(longStep(at))
}

// series are the counts of one rule, or of all requests.
type series struct{ timed[[columns]uint32] }

func newSeries(at int64) *series { return &series{*newTimed[[columns]uint32](at)} }

func (s *series) add(at int64, d *column)  { s.timed.add(at, d[:]) }
func (s *series) addSeries(of *series)     { s.addAll(&of.timed) }
func (s *series) recentSum(n int64) column { return sumOf(&s.recent, s.recent.last-n+1, n) }
func (s *series) longSum(n int64) column   { return sumOf(&s.days, s.days.last-n+1, n) }

// sumOf returns the sum of n steps.
func sumOf(s *steps[[columns]uint32], from, n int64) (sum column) {
	s.sum(sum[:], from, n)
	return sum
}

// idle reports whether all counts are zero.
func (s *series) idle() bool {
	for i := range s.days.cells {
		if s.days.cells[i] != [columns]uint32{} {
			return false
		}
	}
	return true
}
