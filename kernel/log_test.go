package kernel_test

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/plantest"
	"github.com/sluicehq/sluice/internal/testkit"
	"github.com/sluicehq/sluice/kernel"
	"github.com/sluicehq/sluice/storetest"
)

// TestLogHoldsOnToLittle runs logs of many sizes until their units have expired several times. It checks that their
// receipts equal those of the model, and that they take little memory: at most 48 bytes and 4 for each unit; 144 bytes
// for counts above 1,024; or 32 bytes and 32 for each unit with exact times.
func TestLogHoldsOnToLittle(t *testing.T) {
	for _, test := range []struct {
		algorithm           sluice.Algorithm
		counts              []int64
		bytes, bytesPerUnit int
	}{
		{sluice.SlidingWindowLog, []int64{1, 7, 100, 256, 257, 1024}, 48, 4},
		{sluice.SlidingWindowLog, []int64{1025, 6000}, 144, 0},
		{sluice.SlidingWindowLogExact, []int64{1, 7, 256, 257, 1000}, 32, 32},
	} {
		for _, count := range test.counts {
			p := plan(t, sluice.Limit{Count: count, Period: time.Hour, Algorithm: test.algorithm})
			testLogHoldsOnToLittle(t, p, test.bytes+test.bytesPerUnit*int(count))
		}
	}
}

func testLogHoldsOnToLittle(t *testing.T, p *sluice.Plan, most int) {
	count := p.Capacity
	rng := rand.New(rand.NewPCG(5, uint64(count)))
	var log kernel.Log
	var model storetest.Model
	now, gap := int64(1_700_000_000_000_000), p.Limit.Period.Microseconds()/count
	admitted := int64(0)
	for n := range 7*min(count, 1100) + 100 {
		cost := 1 + count/1100
		now += gap*cost + rng.Int64N(5) - 2
		switch rng.IntN(50) {
		case 0:
			cost = -rng.Int64N(4)
		case 1:
			now -= gap / 2
		case 2:
			now += 20 * gap
		case 3:
			if rng.Int64N(count) < 10 {
				cost = sluice.All
			}
		}
		var want [1]sluice.Receipt
		if err := model.TakeAt(t.Context(), now, []sluice.Charge{{Key: "k", Plan: p, Cost: cost}}, want[:]); err != nil {
			t.Fatal(err)
		}
		got := log.Step(&p.Plan, now, cost)
		if got != want[0].Receipt {
			t.Fatalf("%v, step %d, cost %d: %+v, want %+v", p.Limit, n, cost, got, want[0])
		}
		if got.Fits && cost > 0 {
			admitted += cost
		}
		if got.Fits && cost != 0 && (log.EmptyAt(&p.Plan) == 0) != (got.Used == 0) {
			t.Fatalf("%v, step %d, cost %d: empty at %d, with %d used", p.Limit, n, cost, log.EmptyAt(&p.Plan), got.Used)
		}
		if log.Bytes() > most {
			t.Fatalf("%v, step %d: the log takes %d bytes, want %d at most", p.Limit, n, log.Bytes(), most)
		}
	}
	if admitted < 5*count {
		t.Errorf("premise: %v: only %d units were admitted: too few for all units to expire several times", p.Limit, admitted)
	}
}

// poisson returns the times of n events of a Poisson process, all for one key, in microseconds.
func poisson(n int, gap time.Duration) [][]int64 {
	var all []int64
	rng := rand.New(rand.NewPCG(9, uint64(gap)))
	now := float64(plantest.Start)
	for range n {
		now += rng.ExpFloat64() * float64(gap.Microseconds())
		all = append(all, int64(now))
	}
	return [][]int64{all}
}

// traffic returns the times of the requests from each address in a real access log, in microseconds. The times in the
// log are whole seconds, so random fractions are added.
func traffic(t *testing.T) [][]int64 {
	rng := rand.New(rand.NewPCG(8, 8))
	byAddress := map[string][]int64{}
	for _, r := range testkit.AccessLog(t) {
		byAddress[r.Address] = append(byAddress[r.Address], r.At.UnixMicro()+rng.Int64N(1_000_000))
	}
	for _, times := range byAddress {
		slices.Sort(times)
	}
	return slices.Collect(maps.Values(byAddress))
}

// decide charges a unit at each of the given times, with one log for each key. It returns the number of units that
// pass, and the number of units that are denied although fewer than the limit's count have passed in the period before.
// It fails if a unit passes although the count is reached.
func decide(t *testing.T, p *sluice.Plan, keys [][]int64) (passed, wronglyRefused int) {
	t.Helper()
	for _, times := range keys {
		n, wrongly := decideKey(t, p, times)
		passed, wronglyRefused = passed+n, wronglyRefused+wrongly
	}
	return passed, wronglyRefused
}

func decideKey(t *testing.T, p *sluice.Plan, times []int64) (passed, wronglyRefused int) {
	t.Helper()
	var log kernel.Log
	var recent []int64
	for i, now := range times {
		for len(recent) > 0 && recent[0] <= now-p.Limit.Period.Microseconds() {
			recent = recent[1:]
		}
		full := int64(len(recent)) >= p.Limit.Count
		switch fits := log.Step(&p.Plan, now, 1).Fits; {
		case fits && full:
			t.Fatalf("%v %v: unit %d passes, after %d others in the period before it", p.Limit.Algorithm, p.Limit, i, len(recent))
		case fits:
			recent = append(recent, now)
			passed++
		case !full:
			wronglyRefused++
		}
	}
	return passed, wronglyRefused
}

// TestLogRounding measures the effect of rounded times in a log: no unit passes above the limit, and hardly fewer units
// pass than with exact times.
func TestLogRounding(t *testing.T) {
	const gap = 600 * time.Millisecond
	real := traffic(t)
	for _, test := range []struct {
		what, limit string
		keys        [][]int64 // the times for each key
		wrong, lost float64   // at most: fraction of all units; fraction of those that pass with exact times
	}{
		{"Poisson at 0.8 of the limit", "100/minute", poisson(100_000, gap*5/4), 0.0001, 0.0001},
		{"Poisson at the limit", "100/minute", poisson(100_000, gap), 0.001, 0.0001},
		// While a log is full, rounding delays the next free unit a little. Requests during this delay are denied, but
		// a later request passes instead, so the total is the same.
		{"Poisson at twice the limit", "100/minute", poisson(100_000, gap/2), 0.005, 0.0002},
		{"Poisson at twice the limit", "1000/600s", poisson(100_000, gap/2), 0.2, 0.0005},
		{"an access log", "5/minute", real, 0.001, 0.0001},
		{"an access log", "30/hour", real, 0.001, 0.0001},
		{"an access log", "50/day", real, 0.0015, 0.0001},
		{"Poisson at 0.9 of the limit", "5000/3000s", poisson(100_000, gap*10/9), 0.0001, 0.0001},
		{"Poisson at twice the limit", "5000/3000s", poisson(300_000, gap/2), 1, 1. / 33},
	} {
		l, err := sluice.ParseLimit(test.limit)
		if err != nil {
			t.Fatal(err)
		}
		l.Algorithm = sluice.SlidingWindowLogExact
		most, wrong := decide(t, plan(t, l), test.keys)
		if wrong > 0 {
			t.Fatalf("%s, %s: the exact log has wrongly denied %d", test.what, test.limit, wrong)
		}
		l.Algorithm = sluice.SlidingWindowLog
		passed, wrong := decide(t, plan(t, l), test.keys)
		asked := len(slices.Concat(test.keys...))
		n := float64(asked)
		t.Logf("%s, %s: %.4f %% are wrongly denied; %d of %d pass, and %d with exact times", test.what, test.limit, 100*float64(wrong)/n, passed, asked, most)
		if float64(wrong) > test.wrong*n || float64(most-passed) > test.lost*float64(most) {
			t.Errorf("%s, %s: want a fraction of at most %v wrongly denied, and of at most %v lost", test.what, test.limit, test.wrong, test.lost)
		}
		if most == asked && !strings.Contains(test.what, "0.9") {
			t.Errorf("premise: %s, %s: nothing is denied", test.what, test.limit)
		}
	}
}
