package recommend

import (
	"math"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"
)

func standard(t *testing.T) *terms {
	return &terms{share(t, "0.1%"), share(t, "95%"), time.Minute, 24 * time.Hour}
}

// TestPromiseOfKnownDistributions: in as many of the logs as is promised, the true share above the limit is the
// promised one. The numbers of subjects are those at which a part of them chooses the rate, and all do.
func TestPromiseOfKnownDistributions(t *testing.T) {
	trials := trialsOf(t)
	terms := standard(t)
	for _, d := range distributions {
		for _, n := range []int{3_400, 8_000} {
			broken := 0
			for seed := range uint64(trials) {
				rng := rand.New(rand.NewPCG(seed, uint64(n)))
				subjects := make([]*subject, n)
				for i := range subjects {
					subjects[i] = bulk(i, d.draw(rng))
					subjects[i].days[0].requests = 1 // so that the share of the requests asks for no more
				}
				b := terms.choose(points(subjects, never))
				if !b.sure {
					t.Fatalf("%s: nothing is promised from %d subjects", d.name, n)
				}
				if d.above(float64(b.exact)) > 0.001 {
					broken++
				}
			}
			if most := unlikely(trials, 0.05); broken >= most {
				t.Errorf("%s: the promise from %d subjects was broken in %d of %d logs, and %d are as good as impossible at 95%% (seeds 0 to %d)", d.name, n, broken, trials, most, trials-1)
			}
		}
	}
}

// TestChoosingCostsNothing: where subjects pace themselves, so that the rates differ in who is above, the
// promise holds for the rate that was chosen for being the best.
func TestChoosingCostsNothing(t *testing.T) {
	trials := trialsOf(t)
	terms := standard(t)
	gaps := []float64{0.02, 0.7, 11, 400} // seconds between the requests of a subject, each as likely
	// Of x requests with a gap of g, the last finds 1+(x-1)(1-rate*g) in the bucket.
	draw := func(rng *rand.Rand) (x int64, gap float64) {
		return int64(math.Ceil(3 * math.Pow(rng.Float64(), -1/1.5))), gaps[rng.IntN(len(gaps))]
	}
	for _, n := range []int{3_600, 8_000} {
		broken := 0
		for seed := range uint64(trials) {
			rng := rand.New(rand.NewPCG(seed, uint64(n)+1))
			subjects := make([]*subject, n)
			for i := range subjects {
				x, gap := draw(rng)
				s := bulk(i, 1)
				s.days[0].requests = 1
				for at, r := range grid {
					s.days[0].peaks[at] = int32(min(math.Ceil(1+float64(x-1)*max(0, 1-r.perSecond()*gap)-1e-9), 1e8))
				}
				subjects[i] = s
			}
			b := terms.choose(points(subjects, never))
			above := 0.0
			for _, gap := range gaps {
				if slow := 1 - grid[b.at].perSecond()*gap; slow > 0 {
					// x is a ceiling: P(X > y) for whole y.
					y := math.Floor(1 + float64(b.exact-1)/slow + 1e-9)
					above += min(1, math.Pow(y/3, -1.5)) / float64(len(gaps))
				}
			}
			if above > 0.001 {
				broken++
			}
		}
		if most := unlikely(trials, 0.05); broken >= most {
			t.Errorf("the promise from %d subjects was broken in %d of %d logs, and %d are as good as impossible (seeds 0 to %d)", n, broken, trials, most, trials-1)
		}
	}
}

// TestFewCannotPromise: below the number that it takes nothing is promised, and from it on it is.
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
		t.Errorf("a promise takes %d subjects", least)
	}
	if terms.choose(all(least - 1)).sure {
		t.Errorf("%d subjects were enough", least-1)
	}
	if !terms.choose(all(least)).sure {
		t.Errorf("%d subjects were not enough", least)
	}
}

// TestBurstKeepsOnLog: no more subjects are above than the share, and these have made no more of the requests,
// as counted by looking at each.
func TestBurstKeepsOnLog(t *testing.T) {
	terms := standard(t)
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 7))
		d := distributions[rng.IntN(len(distributions))]
		terms.share = share(t, []string{"0.1%", "1%", "20%"}[rng.IntN(3)])
		var subjects []*subject
		for i := range 300 + rng.IntN(5000) {
			subjects = append(subjects, bulk(i, d.draw(rng)))
		}
		all := points(subjects, never)
		b := terms.choose(all)
		over, overRequests, requests := 0., 0., 0.
		for _, p := range all {
			requests += float64(p.requests)
			if p.peaks.of(b.at) > b.exact {
				over++
				overRequests += float64(p.requests)
			}
		}
		if limit, _ := terms.share.Float64(); over > limit*float64(len(all)) || overRequests > limit*requests {
			t.Errorf("seed %d, %s: %v of %d subjects and %v of %v requests are above", seed, d.name, over, len(all), overRequests, requests)
		}
		if n, r := above(all, b.at, b.exact); float64(n) != over || float64(r) != overRequests {
			t.Errorf("seed %d: above says %d and %d, and it is %v and %v", seed, n, r, over, overRequests)
		}
	}
}

// trialsOf is how many logs are made of each kind: few by default, since the exact arithmetic is slow under
// the race detector, and SLUICE_TRIALS of them.
func trialsOf(t *testing.T) int {
	t.Helper()
	text := os.Getenv("SLUICE_TRIALS")
	if text == "" {
		return 12
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 12 {
		t.Fatalf("SLUICE_TRIALS=%s: give 12 or more", text)
	}
	return n
}
