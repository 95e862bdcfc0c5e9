package recommend

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// distributions has distributions of the bursts of subjects. The function above returns the fraction of subjects with a
// larger burst.
var distributions = []struct {
	name  string
	draw  func(*rand.Rand) float64
	above func(float64) float64
}{
	{"exponential", func(r *rand.Rand) float64 { return 12 * r.ExpFloat64() }, func(x float64) float64 { return math.Exp(-x / 12) }},
	{"lognormal 1", func(r *rand.Rand) float64 { return 8 * math.Exp(r.NormFloat64()) }, func(x float64) float64 { return math.Erfc(math.Log(x/8)/math.Sqrt2) / 2 }},
	{"lognormal 1.5", func(r *rand.Rand) float64 { return 5 * math.Exp(1.5*r.NormFloat64()) }, func(x float64) float64 { return math.Erfc(math.Log(x/5)/1.5/math.Sqrt2) / 2 }},
	{"Pareto 1.2", func(r *rand.Rand) float64 { return 3 * math.Pow(r.Float64(), -1/1.2) }, func(x float64) float64 { return min(1, math.Pow(x/3, -1.2)) }},
	{"Pareto 2", func(r *rand.Rand) float64 { return 5 * math.Pow(r.Float64(), -1./2) }, func(x float64) float64 { return min(1, math.Pow(x/5, -2)) }},
	{"Pareto 3", func(r *rand.Rand) float64 { return 8 * math.Pow(r.Float64(), -1./3) }, func(x float64) float64 { return min(1, math.Pow(x/8, -3)) }},
}

// bulk returns a subject that makes all of its requests at once, so its burst is their number at any rate.
func bulk(i int, requests float64) *subject {
	n := int64(min(math.Ceil(requests), 1e8))
	key := fmt.Sprint("all/", i)
	s := &subject{key: key, hash: hashOf(subjectOf(key)), requests: n, days: []day{{number: 20_000, requests: int32(n), peaks: new(peaks)}}}
	new(levels).add(0, n, n, s.days[0].peaks)
	return s
}

// unlikely returns the least number of successes that n trials of probability p reach with a probability below 1e-6.
func unlikely(n int, p float64) int {
	sum := 0.0
	for k := n; k >= 0; k-- {
		a, _ := math.Lgamma(float64(n + 1))
		b, _ := math.Lgamma(float64(k + 1))
		c, _ := math.Lgamma(float64(n - k + 1))
		sum += math.Exp(a - b - c + float64(k)*math.Log(p) + float64(n-k)*math.Log1p(-p))
		if sum > 1e-6 {
			return k + 1
		}
	}
	return 0
}

// In logs without abuse, subjects are not set aside more often than falseAlarms states.
func TestCleanLogs(t *testing.T) {
	const trials = 12
	for _, d := range distributions {
		alarms := 0
		for seed := range uint64(trials) {
			rng := rand.New(rand.NewPCG(seed, 3))
			subjects := make([]*subject, 2000)
			for i := range subjects {
				subjects[i] = bulk(i, d.draw(rng))
			}
			if len(findAbuse(subjects)) > 0 {
				alarms++
			}
		}
		if most := unlikely(trials, falseAlarms); alarms >= most {
			t.Errorf("%s: subjects were set aside in %d of %d clean logs; %d or more are practically impossible (seeds 0 to %d)", d.name, alarms, trials, most, trials-1)
		}
	}
}

// A group of scanners is found by the gap to other subjects, and a single scanner by the responses that it gets.
func TestAbuseIsFound(t *testing.T) {
	for _, d := range distributions {
		for seed := range uint64(5) {
			rng := rand.New(rand.NewPCG(seed, 4))
			var subjects []*subject
			largest := 0.0
			for i := range 2000 {
				x := d.draw(rng)
				largest = max(largest, x)
				subjects = append(subjects, bulk(i, x))
			}
			single := bulk(2000, 12*largest)
			single.evidence = &evidence{denied: single.requests * 9 / 10, missing: single.requests * 9 / 10}
			if found := findAbuse(append(subjects, single)); len(found) == 0 || found[0].subject != single {
				t.Errorf("%s, seed %d: the scanner is not the first of %d subjects that were found", d.name, seed, len(found))
			}
			single.evidence = &evidence{}
			for i := range 5 {
				subjects = append(subjects, bulk(3000+i, (10+float64(i))*largest))
			}
			if found := findAbuse(subjects); len(found) < 5 {
				t.Errorf("%s, seed %d: of five scanners %d were found", d.name, seed, len(found))
			}
		}
	}
}

// At most one subject in a hundred is set aside, whatever the evidence.
func TestAtMostOneInAHundred(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 5))
	for _, n := range []int{0, 1, 99, 100, 299, 300, 1000} {
		var subjects []*subject
		for i := range n {
			s := bulk(i, 30+math.Pow(10, 6*rng.Float64()))
			s.evidence = &evidence{denied: s.requests}
			subjects = append(subjects, s)
		}
		if found := findAbuse(subjects); len(found) > n/100 {
			t.Errorf("of %d subjects %d were set aside", n, len(found))
		}
	}
}

func standard(t *testing.T) *terms {
	return &terms{parseShare(t, "0.1%"), parseShare(t, "95%"), time.Minute, 24 * time.Hour}
}

// With fewer subjects than least returns, nothing is promised. With this number, there is a promise.
func TestFewCannotPromise(t *testing.T) {
	terms := standard(t)
	all := func(n int) []point {
		rng := rand.New(rand.NewPCG(1, 6))
		var subjects []*subject
		for i := range n {
			subjects = append(subjects, bulk(i, 10*rng.ExpFloat64()))
		}
		return points(subjects, never)
	}
	least := terms.least()
	if least != 3327 {
		t.Errorf("a promise needs %d subjects, want 3327", least)
	}
	if terms.choose(all(least - 1)).sure {
		t.Errorf("%d subjects were enough", least-1)
	}
	if !terms.choose(all(least)).sure {
		t.Errorf("%d subjects were not enough", least)
	}
}

// In the log, at most the promised fraction of subjects exceeds the chosen burst, with at most this fraction of the
// requests. The test counts them one by one.
func TestBurstKeepsOnLog(t *testing.T) {
	terms := standard(t)
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 7))
		d := distributions[rng.IntN(len(distributions))]
		terms.share = parseShare(t, []string{"0.1%", "1%", "20%"}[rng.IntN(3)])
		var subjects []*subject
		for i := range 300 + rng.IntN(5000) {
			subjects = append(subjects, bulk(i, d.draw(rng)))
		}
		all := points(subjects, never)
		b := terms.choose(all)
		over, overRequests, requests := 0., 0., 0.
		for _, p := range all {
			requests += float64(p.requests)
			if p.peaks.burst(b.at) > b.exact {
				over++
				overRequests += float64(p.requests)
			}
		}
		if limit, _ := terms.share.Float64(); over > limit*float64(len(all)) || overRequests > limit*requests {
			t.Errorf("seed %d, %s: %v of %d subjects and %v of %v requests are above", seed, d.name, over, len(all), overRequests, requests)
		}
		if n, r := above(all, b.at, b.exact); float64(n) != over || float64(r) != overRequests {
			t.Errorf("seed %d: above returns %d and %d, want %v and %v", seed, n, r, over, overRequests)
		}
	}
}
