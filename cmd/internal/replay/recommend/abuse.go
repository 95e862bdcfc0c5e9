package recommend

import (
	"cmp"
	"math"
	"slices"
	"strconv"
)

// falseAlarms is the probability that subjects of a log without abuse are set aside because of the gap alone. In
// trials with 150 generated logs per distribution, it happened 4 times with Pareto tails of 1.2, 2 and 3, and never
// with exponential and lognormal tails.
const falseAlarms = 0.04

const (
	byGap   = "far beyond all others"
	byTimes = 10 // behavior counts only if the burst is at least this many times the 99th percentile of bursts
)

// watched is the rate at which bursts are compared to find abuse. At one request a minute, both a flood and a scan at
// an even pace stand out. This rate was chosen before any log was seen.
var watched = slices.Index(grid[:], rate{1, 60_000_000_000})

// aside is a subject that is set aside because it looks like abuse.
type aside struct {
	*subject
	why string
}

// findAbuse returns the subjects to set aside, at most one in a hundred. They are found by the gap between
// them and all other subjects, or by their behavior. The gap must be larger the fewer they are, because with heavy
// tails the largest value is naturally far from the next.
func findAbuse(subjects []*subject) []aside {
	n := len(subjects)
	most := n / 100
	if most == 0 {
		return nil
	}
	type point struct {
		*subject
		burst float64
	}
	points := make([]point, n)
	for i, s := range subjects {
		all, _ := s.before(math.MaxInt32)
		// Bursts are whole numbers. A fraction from the hash breaks ties, as real values would.
		points[i] = point{s, float64(all.burst(watched)) + float64(hashOf(s.key+"!")>>11)/(1<<53)}
	}
	slices.SortFunc(points, func(a, b point) int { return cmp.Or(cmp.Compare(b.burst, a.burst), cmp.Compare(a.key, b.key)) })

	gap := 0
	if first, last := n/100, n/10; n >= 300 {
		// sum is for Hill's estimate of 1/alpha, from the values between the 90th and the 99th percentile.
		var sum float64
		for i := first; i < last; i++ {
			sum += math.Log(points[i].burst / points[last].burst)
		}
		// In a censored Pareto tail, each value above the 99th percentile counts like the 99th percentile.
		sum += float64(first) * math.Log(points[first].burst/points[last].burst)
		inverse := sum / float64(last-first)
		for i := 1; i <= most; i++ {
			// Rényi: i alpha ln(X(i)/X(i+1)) is exponential of mean 1.
			if float64(i)*math.Log(points[i-1].burst/points[i].burst) > inverse*math.Log(float64(most)/0.01) {
				gap = i
			}
		}
	}
	var found []aside
	least := byTimes * math.Floor(points[most].burst)
	for i, p := range points[:most] {
		why := p.behavior()
		switch {
		case i < gap && why != "":
			found = append(found, aside{p.subject, byGap + "; " + why})
		case i < gap:
			found = append(found, aside{p.subject, byGap})
		case p.burst >= least && why != "":
			found = append(found, aside{p.subject, why})
		}
	}
	return found
}

// behavior describes what looks like abuse in the requests of a subject, or returns "".
func (s *subject) behavior() string {
	v := s.evidence
	if v == nil || s.requests < 20 {
		return ""
	}
	share := func(n int64) string { return percent(float64(n) / float64(s.requests)) }
	switch paths := v.distinct(); {
	case paths > 100 && 2*v.missing > s.requests:
		return "asked for some " + strconv.Itoa(int(paths)) + " paths, " + share(v.missing) + " of the answers 404"
	case 2*v.denied > s.requests:
		return share(v.denied) + " of the answers 401, 403 or 404"
	case v.failures > 20 && 5*v.failures > s.requests:
		return strconv.FormatInt(v.failures, 10) + " failures to sign in"
	case v.steady:
		return "at an even pace all day and night"
	}
	return ""
}
