package recommend

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/plantest"
	"github.com/sluicehq/sluice/memory"
)

// refuses reports whether a limit denies any of the requests of one subject, according to the store.
func refuses(t *testing.T, l sluice.Limit, times []int64) bool {
	t.Helper()
	plan := plantest.Of(t, l)
	store := memory.NewSize(1 << 16)
	var receipt [1]sluice.Receipt
	for _, now := range times {
		if err := store.TakeAt(t.Context(), now, []sluice.Charge{{Key: "a/b", Plan: plan, Cost: 1}}, receipt[:]); err != nil {
			t.Fatal(err)
		}
		if !receipt[0].Fits {
			return true
		}
	}
	return false
}

// someTimes returns the times of a subject's requests, with bursts, pauses and even paces, in whole seconds or not.
func someTimes(rng *rand.Rand) []int64 {
	now := int64(1.7e15) + rng.Int64N(1e12)
	resolution := []int64{1, 1_000, 1_000_000}[rng.IntN(3)]
	var times []int64
	for range 1 + rng.IntN(8) {
		gap := int64([]float64{0, 1e3, 1e5, 1e6, 1.2e7, 6e7, 1.2e9, 3.6e9}[rng.IntN(8)] * (0.5 + rng.Float64()))
		if rng.IntN(2) == 0 {
			gap = gap / resolution * resolution
		}
		for range rng.IntN(40) {
			now += gap
			times = append(times, now/resolution*resolution)
		}
		now += rng.Int64N(1e10)
	}
	return append(times, now)
}

func burstsOf(times []int64) *peaks {
	var l levels
	var p peaks
	for i, now := range times {
		l.add(now-times[max(0, i-1)], 1, 1, &p)
	}
	return &p
}

func TestGrid(t *testing.T) {
	if !slices.IsSortedFunc(grid[:], func(a, b rate) int { return int(a.perSecond()*3600 - b.perSecond()*3600) }) || grid[0] != (rate{1, time.Hour}) || grid[rates-1] != (rate{10_000, time.Second}) {
		t.Errorf("the grid is %v", grid)
	}
	if grid[watched] != (rate{1, time.Minute}) {
		t.Errorf("watched is %v", grid[watched])
	}
}

// A bucket or a log that was made for the burst of a subject denies none of its requests, and bursts are never rounded
// down.
func TestLimitOf(t *testing.T) {
	logs := 0
	for seed := range uint64(100) {
		rng := rand.New(rand.NewPCG(seed, 2))
		times := someTimes(rng)
		if gap := []int64{6e7, 3e7, 2e7, 6e7 - 1}[rng.IntN(4)]; rng.IntN(2) == 0 { // the even pace meets the ends of windows
			for i := range times {
				times[i] = times[0] + int64(i)*gap
			}
		}
		p := burstsOf(times)
		for i := range grid {
			l, safe := limitOf(i, p.burst(i), time.Minute)
			if safe < p.burst(i) {
				t.Fatalf("seed %d: burst %d became %d", seed, p.burst(i), safe)
			}
			if l.Algorithm == sluice.SlidingWindowLog {
				logs++
			}
			if refuses(t, l, times) {
				t.Fatalf("seed %d: %s %s denies a burst of %d at %v", seed, l, l.Algorithm, p.burst(i), grid[i])
			}
		}
	}
	if logs < 30 {
		t.Errorf("only %d limits were logs", logs)
	}
}
