//go:build long

package recommend

import (
	"math"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
)

// TestLongPromise: in as many of the logs as is promised, the true share above the limit is the
// promised one. The numbers of subjects are those at which a part of them chooses the rate, and all do.
func TestLongPromise(t *testing.T) {
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

// TestLongChoosingTheRate: where subjects pace themselves, so that the rates differ in who is above, the
// promise holds for the rate that was chosen for being the best.
func TestLongChoosingTheRate(t *testing.T) {
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

// As TestRecommendations, with as many clients as the promise of a thousandth takes, and more.
func TestLongRecommendations(t *testing.T) {
	for seed := range uint64(2) {
		log := traffic(seed, 4_000, 1, false)
		r := run(t, config(t, "0.1%", log))
		if all := r.Rules[0]; !all.Promised || all.Subjects != 4_000 || all.Confidence < 0.95 {
			t.Errorf("seed %d: %+v", seed, all)
		}
		check(t, r, log)
	}
	log := traffic(9, 1_200, 3, true)
	check(t, run(t, config(t, "1%", log)), log)
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
