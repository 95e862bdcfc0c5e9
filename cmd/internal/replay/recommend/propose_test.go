package recommend

import (
	"math/rand/v2"
	"testing"
	"time"
)

func standard(t *testing.T) *terms {
	return &terms{parseShare(t, "0.1%"), parseShare(t, "95%"), time.Minute, 24 * time.Hour}
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
