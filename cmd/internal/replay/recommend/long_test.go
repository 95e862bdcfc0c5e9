//go:build long

package recommend

import (
	"math"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
)

// In as many logs as promised, the true fraction of subjects above the limit is at most the promised one. With 3,400
// subjects, some of them choose the rate; with 8,000, all do.
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
					subjects[i].days[0].requests = 1 // equal numbers, so the fraction of requests does not raise the burst
				}
				b := terms.choose(points(subjects, never))
				if !b.sure {
					t.Fatalf("%s: there is no promise with %d subjects", d.name, n)
				}
				if d.above(float64(b.exact)) > 0.001 {
					broken++
				}
			}
			if most := unlikely(trials, 0.05); broken >= most {
				t.Errorf("%s: the promise with %d subjects was broken in %d of %d logs; %d or more are practically impossible at 95%% (seeds 0 to %d)", d.name, n, broken, trials, most, trials-1)
			}
		}
	}
}

// If subjects pace themselves, different subjects are above at different rates. The promise still holds for the rate
// that was chosen as the best.
func TestLongChoosingTheRate(t *testing.T) {
	trials := trialsOf(t)
	terms := standard(t)
	gaps := []float64{0.02, 0.7, 11, 400} // seconds between the requests of a subject, with equal probabilities
	// The last of x requests with a gap of g raises the bucket's level to 1+(x-1)(1-rate*g).
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
					// x is rounded up, so the formula needs P(X > y) for a whole y.
					y := math.Floor(1 + float64(b.exact-1)/slow + 1e-9)
					above += min(1, math.Pow(y/3, -1.5)) / float64(len(gaps))
				}
			}
			if above > 0.001 {
				broken++
			}
		}
		if most := unlikely(trials, 0.05); broken >= most {
			t.Errorf("the promise with %d subjects was broken in %d of %d logs; %d or more are practically impossible (seeds 0 to %d)", n, broken, trials, most, trials-1)
		}
	}
}

// This is TestRecommendations with as many clients as a promise of 0.1 % needs, and more.
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

// trialsOf returns the number of logs of each kind. By default there are few, because exact arithmetic is slow under
// the race detector. SLUICE_TRIALS sets another number.
func trialsOf(t *testing.T) int {
	t.Helper()
	text := os.Getenv("SLUICE_TRIALS")
	if text == "" {
		return 12
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 12 {
		t.Fatalf("SLUICE_TRIALS=%s: the number must be 12 or more", text)
	}
	return n
}
