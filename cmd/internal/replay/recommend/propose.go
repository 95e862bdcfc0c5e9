package recommend

import (
	"cmp"
	"math"
	"math/big"
	"slices"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/cmd/internal/words"
)

// terms are the conditions that a limit has to meet. The promise is: with the confidence sure, at most the fraction
// share of all subjects exceed the limit.
type terms struct {
	share, sure *big.Rat // see Share and Confidence of Config
	window      time.Duration
	span        time.Duration // length of the log, which gives no information about buckets that take longer to refill
}

// point has the properties of a subject that matter for limits.
type point struct {
	*subject
	peaks    *peaks
	requests int64
}

// points returns the points of the subjects. Only days before the day with the given number count.
func points(subjects []*subject, before int32) []point {
	var all []point
	for _, s := range subjects {
		if p, requests := s.before(before); requests > 0 {
			all = append(all, point{s, p, requests})
		}
	}
	return all
}

// bound is a burst for a rate, with the evidence for it.
type bound struct {
	at    int   // the index of the rate in the grid
	exact int64 // the least burst that keeps the promise, before rounding
	n, j  int   // exact is at least the (j+1)-th largest of the bursts of n subjects
	looks int   // how many rates were compared to choose this one: each comparison costs confidence
	sure  bool  // the bound with these n and j keeps the promise
}

// holds returns the confidence in a statement about the chosen rate, if the statement holds for each rate by itself
// with a confidence c (Bonferroni).
func (b *bound) holds(c float64) float64 { return max(0, 1-float64(b.looks)*(1-c)) }

// choose returns the rate that allows a single subject the fewest requests in a window, and the burst for that
// rate.
//
// Choosing a rate by the bursts of all rates requires confidence in all of them. In the smallest logs, this needs
// more than twice as many subjects; in large logs, hardly more. If there are enough subjects for one rate, but not
// for all, some choose the rate and the others bound the burst. If there are too few subjects for a promise, all
// subjects choose the rate.
func (t *terms) choose(all []point) bound {
	n := len(all)
	needs := needed(t.share, t.sure)
	if most := mayExceed(n, t.share, t.surer()); most >= 0 || n-n/10 < needs {
		best := t.best(all, max(most, 0))
		best.looks, best.sure = rates, most >= 0
		return best
	}
	shuffled := slices.Clone(all)
	slices.SortFunc(shuffled, func(a, b point) int { return cmp.Compare(a.hash, b.hash) })
	pilot, rest := shuffled[:min(n-needs, n/2)], shuffled[min(n-needs, n/2):]
	b := t.burst(all, rest, t.best(pilot, 0).at, max(0, mayExceed(len(rest), t.share, t.sure)))
	b.looks, b.sure = 1, true
	return b
}

// best returns the rate that allows a single subject the fewest requests, and the least burst that at most j
// subjects exceed.
func (t *terms) best(all []point, j int) bound {
	best := t.burst(all, all, rates-1, j)
	for at := rates - 2; at >= 0; at-- {
		if b := t.burst(all, all, at, j); t.suits(b) && (!t.suits(best) || t.harm(b) < t.harm(best)) {
			best = b
		}
	}
	return best
}

// surer returns the confidence that each rate needs if all rates are compared.
func (t *terms) surer() *big.Rat {
	one := big.NewRat(1, 1)
	unsure := new(big.Rat).Sub(one, t.sure)
	return unsure.Sub(one, unsure.Quo(unsure, big.NewRat(rates, 1)))
}

// suits reports whether the log is long enough for the limit b: at least as long as the bucket takes to refill.
func (t *terms) suits(b bound) bool {
	return float64(b.exact)/grid[b.at].perSecond() <= t.span.Seconds()
}

func (t *terms) harm(b bound) float64 { return harm(b.exact, grid[b.at], t.window) }

// harm returns the largest number of requests of one subject that a limit allows in a window.
func harm(burst int64, r rate, window time.Duration) float64 {
	return float64(burst) + r.perSecond()*window.Seconds()
}

// burst returns the least burst at a rate that keeps the promise. At most j of the subjects in rest may exceed it.
// In the log, the subjects that exceed it may be at most the fraction share of all subjects, with at most that
// fraction of all requests.
func (t *terms) burst(all, rest []point, at, j int) bound {
	steps := tail(all, at)
	least := t.onLog(all, steps)
	if len(rest) < len(all) {
		steps = tail(rest, at)
	}
	return bound{at: at, n: len(rest), j: j, exact: max(exceededBy(steps, j), least)}
}

// step counts the subjects that need exactly the same burst, and their requests.
type step struct {
	burst    int64
	subjects int
	requests int64
}

// tail returns the bursts that points need at a rate, the largest first.
func tail(all []point, at int) []step {
	seen := map[int64]int{}
	var small [1024]int // for small bursts, which most subjects have: the index in steps, plus one
	var steps []step
	for i := range all {
		burst := all[i].peaks.burst(at)
		index := 0
		if burst < int64(len(small)) {
			index = small[burst]
		} else {
			index = seen[burst]
		}
		if index == 0 {
			steps = append(steps, step{burst: burst})
			index = len(steps)
			if burst < int64(len(small)) {
				small[burst] = index
			} else {
				seen[burst] = index
			}
		}
		steps[index-1].subjects++
		steps[index-1].requests += all[i].requests
	}
	slices.SortFunc(steps, func(a, b step) int { return cmp.Compare(b.burst, a.burst) })
	return steps
}

// exceededBy returns the least burst that at most j subjects exceed.
func exceededBy(steps []step, j int) int64 {
	for _, s := range steps {
		if j -= s.subjects; j < 0 {
			return s.burst
		}
	}
	return 1
}

// onLog returns the least burst that keeps the promise in the log itself: the points that exceed it are at most the
// fraction share of all points, and made at most this fraction of all requests.
func (t *terms) onLog(all []point, steps []step) int64 {
	var requests int64
	for i := range all {
		requests += all[i].requests
	}
	subjects, requests := part(t.share, int64(len(all))), part(t.share, requests)
	for _, s := range steps {
		subjects -= int64(s.subjects)
		requests -= s.requests
		if subjects < 0 || requests < 0 {
			return s.burst
		}
	}
	return 1
}

// above returns how many points exceed a burst, and how many requests they made. The requests that the limit denies
// are among these.
func above(all []point, at int, burst int64) (subjects int, requests int64) {
	for _, p := range all {
		if p.peaks.burst(at) > burst {
			subjects++
			requests += p.requests
		}
	}
	return subjects, requests
}

// maxSlidingLog is the largest limit that is proposed as a sliding log, for example for logins. A sliding log of so
// few requests is cheap. In any window, it allows at most as many requests as the limit.
const maxSlidingLog = 20

// limitOf returns a limit for a burst, rounded up. It also returns a burst that the limit always allows: a bucket
// with the rate and this burst denies every request that the limit denies.
func limitOf(at int, burst int64, window time.Duration) (limit sluice.Limit, safe int64) {
	r := grid[at]
	// A subject that the bucket never denies makes at most burst + rate*window requests in a window that includes
	// both ends. A sliding log counts a unit for up to two of its ticks longer. A tick is 2^-15 of the window.
	more := r.perSecond() * window.Seconds() * (1 + 1.0/4096)
	if count := nextRound(int64(math.Floor(float64(burst) + more + 1e-9))); count <= maxSlidingLog {
		return sluice.Limit{Count: count, Period: window, Algorithm: sluice.SlidingWindowLog}, max(burst, int64(math.Floor(float64(count)-more)))
	}
	safe = nextRound(burst)
	return sluice.Limit{Count: r.count, Period: r.period, Burst: safe}, safe
}

// least returns the number of subjects that a promise needs, including those that are used to choose the rate.
func (t *terms) least() int {
	n := needed(t.share, t.sure)
	for all := n; ; all += max(1, (n - all + all/10)) {
		if all-all/10 >= n {
			return all
		}
	}
}

// lastDays is the number of days on which limits from the days before are tried.
const lastDays = 7

// dayCount has the number of subjects on a day.
type dayCount struct {
	number   int32
	subjects int
}

// days returns the days on which there were requests, in order.
func days(subjects []*subject) (all []dayCount) {
	seen := map[int32]int{}
	for _, s := range subjects {
		for i := range s.days {
			seen[s.days[i].number]++
		}
	}
	for number, n := range seen {
		all = append(all, dayCount{number, n})
	}
	slices.SortFunc(all, func(a, b dayCount) int { return cmp.Compare(a.number, b.number) })
	return all
}

// forward proposes a limit from the days before a day, and returns how the limit would have done on that day. The
// levels of buckets at the start of the day are those at the end of the days before.
func (t *terms) forward(subjects, left []*subject, number int32) (Forward, bool) {
	known := points(subjects, number)
	if len(known) == 0 {
		return Forward{}, false
	}
	b := t.choose(known)
	limit, safe := limitOf(b.at, b.exact, t.window)
	f := Forward{Day: time.Unix(int64(number)*86400, 0).UTC().Format(time.DateOnly), From: len(known), Limit: limit.String(), Algorithm: limit.Algorithm.String()}
	f.Subjects, f.Above, f.Requests, f.RequestsAbove = onDay(subjects, number, b.at, safe)
	_, f.AsideAbove, _, _ = onDay(left, number, b.at, safe)
	allowed := int(part(new(big.Rat).Mul(t.share, big.NewRat(2, 1)), int64(f.Subjects)))
	f.Within = f.Above <= allowed
	f.Confidence = b.holds(nextDay(b.n, b.j, f.Subjects, allowed))
	sure, _ := t.sure.Float64()
	switch {
	case f.Within:
	case !b.sure:
		f.Why = "a promise needs at least " + words.Counted(t.least(), "subject") + "; the days before have only " + humanize.Comma(int64(b.n))
	case f.Confidence < sure:
		f.Why = "for " + words.Counted(f.Subjects, "subject") + " on that day, the limit could be promised with a confidence of only " + sureness(f.Confidence)
	default:
		f.Why = "the limit was to hold with a confidence of " + sureness(f.Confidence) + ", so the traffic has probably changed"
	}
	return f, true
}

func onDay(subjects []*subject, number int32, at int, burst int64) (n, over int, requests, requestsOver int64) {
	for _, s := range subjects {
		for i := range s.days {
			if d := &s.days[i]; d.number == number {
				n++
				requests += int64(d.requests)
				if d.peaks.burst(at) > burst {
					over++
					requestsOver += int64(d.requests)
				}
			}
		}
	}
	return n, over, requests, requestsOver
}
