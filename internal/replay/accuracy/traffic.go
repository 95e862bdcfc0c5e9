package accuracy

import (
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/sluicehq/sluice"
)

// Synthetic is traffic that is made.
type Synthetic struct {
	Name  string // as the command line has it
	About string
	Make  func(limit sluice.Limit, requests int, seed uint64) iter.Seq[Request]
}

// Synthetics are the kinds of it.
func Synthetics() []Synthetic {
	return []Synthetic{
		{"mixed", "subjects that ask at random: of 200 one for 1 to 1.5 times the limit, the others for a hundredth to a half of it", mixed},
		{"poisson", "subjects that ask at random, from a tenth of the limit to three times as much", poisson},
		{"bursts", "subjects that ask for half to twice the limit within a twentieth of the period, and are silent for about a period", bursts},
		{"boundary", "an adversary who asks for the whole limit just before a window ends, and again just after", boundary},
	}
}

// begin is when synthetic traffic begins: at a boundary of windows of any length that divides a day.
const begin = int64(1_767_225_600_000_000) // 2026-01-01

// subjects returns how many there are: so few that each asks for the limit many times over.
func subjects(limit sluice.Limit, requests int) int {
	return int(min(500, max(1, int64(requests)/(20*limit.Count))))
}

// poisson has subjects whose rates are spread evenly, by their logarithm.
func poisson(limit sluice.Limit, requests int, seed uint64) iter.Seq[Request] {
	return random(limit, requests, seed, func(_ int, r *rand.Rand) float64 { return 0.1 * math.Pow(30, r.Float64()) })
}

// mixed is as most traffic is: few are near their limit.
func mixed(limit sluice.Limit, requests int, seed uint64) iter.Seq[Request] {
	return random(limit, requests, seed, func(who int, r *rand.Rand) float64 {
		if who%200 == 0 {
			return 1 + r.Float64()/2
		}
		return 0.01 * math.Pow(50, r.Float64())
	})
}

// random merges processes of a random rate each, in limits: who is next, and how long it takes, are
// independent.
func random(limit sluice.Limit, requests int, seed uint64, rate func(who int, r *rand.Rand) float64) iter.Seq[Request] {
	return func(yield func(Request) bool) {
		r := rand.New(rand.NewPCG(seed, 1))
		upTo := make([]float64, subjects(limit, requests))
		total := 0.0
		for i := range upTo {
			total += float64(limit.Count) / float64(limit.Period.Microseconds()) * rate(i, r)
			upTo[i] = total
		}
		at := float64(begin)
		for range requests {
			at += r.ExpFloat64() / total
			who, _ := slices.BinarySearch(upTo, r.Float64()*total)
			if !yield(Request{int64(at), name(who)}) {
				return
			}
		}
	}
}

// bursts are made subject by subject, and sorted.
func bursts(limit sluice.Limit, requests int, seed uint64) iter.Seq[Request] {
	return sorted(limit, requests, func(who int, add func(at int64) bool) {
		r := rand.New(rand.NewPCG(seed, uint64(who)))
		period := float64(limit.Period.Microseconds())
		for at := float64(begin) + r.Float64()*period; ; at += period * (0.05 + r.ExpFloat64()) {
			for range int(float64(limit.Count)*(0.5+1.5*r.Float64())) + 1 {
				if !add(int64(at + r.Float64()*period/20)) {
					return
				}
			}
		}
	})
}

// boundary asks in the last and the first hundredth of windows, and is silent for the three after them.
func boundary(limit sluice.Limit, requests int, seed uint64) iter.Seq[Request] {
	return sorted(limit, requests, func(who int, add func(at int64) bool) {
		r := rand.New(rand.NewPCG(seed, uint64(who)))
		period := limit.Period.Microseconds()
		for end := begin + period; ; end += 4 * period {
			for range limit.Count {
				if !add(end-1-r.Int64N(max(1, period/100))) || !add(end+r.Int64N(max(1, period/100))) {
					return
				}
			}
		}
	})
}

// sorted has each subject add its share of the requests, and brings all in order.
func sorted(limit sluice.Limit, requests int, fill func(who int, add func(at int64) bool)) iter.Seq[Request] {
	return func(yield func(Request) bool) {
		var all []Request
		n := subjects(limit, requests)
		for who := range n {
			left := (requests + who) / n
			fill(who, func(at int64) bool {
				if left == 0 {
					return false
				}
				left--
				all = append(all, Request{at, name(who)})
				return true
			})
		}
		slices.SortFunc(all, func(a, b Request) int { return int(min(1, max(-1, a.At-b.At))) })
		for _, r := range all {
			if !yield(r) {
				return
			}
		}
	}
}

func name(who int) string { return fmt.Sprint("subject-", who) }
