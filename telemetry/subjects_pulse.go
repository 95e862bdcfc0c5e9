package telemetry

import (
	"math/bits"
	"time"
)

// What a subject did in the last hour is kept in steps, of which a chart can be drawn: of those that are listed,
// and of the merged hour alone, since slots of five minutes say the same by what they are.
const (
	SubjectSteps = 12
	SubjectStep  = 5 * time.Minute

	stepMillis = int64(SubjectStep / time.Millisecond)
	// stepPlaces is more than SubjectSteps, so that what an instance has said a step ago is not taken for what is
	// happening now.
	stepPlaces = 16
)

// pulse are counts by the number of the step modulo stepPlaces, as small writes them.
type pulse [stepPlaces]uint8

func (s *pulse) add(o *pulse) {
	for i, n := range o {
		if n != 0 {
			s[i] = small(large(s[i]) + large(n))
		}
	}
}

// until returns the counts of the steps that end with the one of a time.
func (s *pulse) until(at int64) (counts [SubjectSteps]uint64) {
	for i := range counts {
		counts[i] = large(s[(at/stepMillis-int64(SubjectSteps-1-i))&(stepPlaces-1)])
	}
	return counts
}

// turned turns places into how many steps ago they were, and back.
func (s *pulse) turned(at int64) (turned pulse) {
	for i := range s {
		turned[(at/stepMillis-int64(i))&(stepPlaces-1)] = s[i]
	}
	return turned
}

// small writes a count in eight bits, of which three are its leading ones behind the first: it is off by a
// sixteenth at most, and exact below 16.
func small(n uint64) uint8 {
	if n < 8 {
		return uint8(n)
	}
	shift := bits.Len64(n) - 4
	if shift > 0 {
		n += 1 << (shift - 1)
		shift = bits.Len64(n) - 4
	}
	if shift > 30 {
		return 255
	}
	return uint8(8*(shift+1) + int(n>>shift) - 8)
}

func large(c uint8) uint64 {
	if c < 8 {
		return uint64(c)
	}
	return uint64(8+c%8) << (c/8 - 1)
}
