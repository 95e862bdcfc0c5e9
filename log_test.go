package sluice_test

import (
	"bufio"
	"compress/gzip"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/storetest"
)

// TestLogHoldsOnToLittle has logs of many lengths expire for long, and holds that they
// answer as the definition says, and take no more memory than they should: 4 bytes for each
// unit, or 32 if times are exact, or 144 whatever the limit.
func TestLogHoldsOnToLittle(t *testing.T) {
	for _, test := range []struct {
		algorithm           sluice.Algorithm
		counts              []int64
		bytes, bytesPerUnit int
	}{
		{sluice.SlidingWindowLog, []int64{1, 2, 7, 100, 256, 257, 300, 1000, 1024}, 48, 4},
		{sluice.SlidingWindowLog, []int64{1025, 2500, 6000}, 144, 0},
		{sluice.SlidingWindowLogExact, []int64{1, 2, 7, 100, 256, 257, 300, 1000, 2500}, 32, 32},
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
	var log sluice.Log
	var model storetest.Model
	now, gap := int64(1_700_000_000_000_000), p.Limit.Period.Microseconds()/count
	admitted := int64(0)
	for n := range 10*min(count, 2500) + 100 {
		cost := 1 + count/2500
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
		got := log.Step(p, now, cost)
		if got != want[0] {
			t.Fatalf("%v, step %d, cost %d: %+v, want %+v", p.Limit, n, cost, got, want[0])
		}
		if got.Fits && cost > 0 {
			admitted += cost
		}
		if got.Fits && cost != 0 && (log.EmptyAt(p) == 0) != (got.Used == 0) {
			t.Fatalf("%v, step %d, cost %d: empty at %d, with %d used", p.Limit, n, cost, log.EmptyAt(p), got.Used)
		}
		if log.Bytes() > most {
			t.Fatalf("%v, step %d: the log holds on to %d bytes, want %d at most", p.Limit, n, log.Bytes(), most)
		}
	}
	if admitted < 5*count {
		t.Errorf("premise: %v: %d units were admitted, which is too few for the log to come round", p.Limit, admitted)
	}
}

// arrival is one unit asked for.
type arrival struct {
	key string
	now int64 // in microseconds
}

// poisson returns arrivals at random moments, of one key.
func poisson(n int, gap time.Duration) (all []arrival) {
	rng := rand.New(rand.NewPCG(9, uint64(gap)))
	now := float64(start)
	for range n {
		now += rng.ExpFloat64() * float64(gap.Microseconds())
		all = append(all, arrival{"k", int64(now)})
	}
	return all
}

// traffic returns the requests of a real access log, whose seconds get random fractions.
func traffic(t *testing.T) (all []arrival) {
	f, err := os.Open("cmd/e2e/testdata/access.log.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(8, 8))
	for lines := bufio.NewScanner(z); lines.Scan(); {
		fields := strings.Split(lines.Text(), "\t")
		at, err := time.Parse("02/Jan/2006:15:04:05", fields[0])
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, arrival{fields[1], at.UnixMicro() + rng.Int64N(1_000_000)})
	}
	slices.SortStableFunc(all, func(a, b arrival) int { return int(a.now - b.now) })
	return all
}

// decide returns how many arrivals pass a log of each key, and how many are refused though
// fewer than the limit's count have passed in the period before them. It fails where one
// passes though there are as many.
func decide(t *testing.T, p *sluice.Plan, all []arrival) (passed, wronglyRefused int) {
	t.Helper()
	logs, recent := map[string]*sluice.Log{}, map[string][]int64{}
	for i, a := range all {
		if logs[a.key] == nil {
			logs[a.key] = new(sluice.Log)
		}
		r := recent[a.key]
		for len(r) > 0 && r[0] <= a.now-p.Limit.Period.Microseconds() {
			r = r[1:]
		}
		full := int64(len(r)) >= p.Limit.Count
		switch fits := logs[a.key].Step(p, a.now, 1).Fits; {
		case fits && full:
			t.Fatalf("%v %v: arrival %d passes, and %d have in the period before", p.Limit.Algorithm, p.Limit, i, len(r))
		case fits:
			r = append(r, a.now)
			passed++
		case !full:
			wronglyRefused++
		}
		recent[a.key] = r
	}
	return passed, wronglyRefused
}

// TestLogRounding counts what it costs that a log rounds times: nothing passes that should
// not, and hardly anything that should is refused.
func TestLogRounding(t *testing.T) {
	const gap = 600 * time.Millisecond
	real := traffic(t)
	for _, test := range []struct {
		what, limit string
		arrivals    []arrival
		wrong, lost float64 // at most: share of all that is refused wrongly, share that passes less
	}{
		{"Poisson at 0.8 of the limit", "100/minute", poisson(100_000, gap*5/4), 0.0001, 0.0001},
		{"Poisson at the limit", "100/minute", poisson(100_000, gap), 0.001, 0.0001},
		// Of what comes while a log is full something comes in the moment by which the next
		// place is late. It passes less often, but as much passes.
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
		most, wrong := decide(t, plan(t, l), test.arrivals)
		if wrong > 0 {
			t.Fatalf("%s, %s: the exact log has refused %d wrongly", test.what, test.limit, wrong)
		}
		l.Algorithm = sluice.SlidingWindowLog
		passed, wrong := decide(t, plan(t, l), test.arrivals)
		n := float64(len(test.arrivals))
		t.Logf("%s, %s: %.4f %% are refused wrongly; %d of %d pass, and %d exactly", test.what, test.limit, 100*float64(wrong)/n, passed, len(test.arrivals), most)
		if float64(wrong) > test.wrong*n || float64(most-passed) > test.lost*float64(most) {
			t.Errorf("%s, %s: want at most %v refused wrongly, and at most %v less to pass", test.what, test.limit, test.wrong, test.lost)
		}
		if most == len(test.arrivals) && !strings.Contains(test.what, "0.9") {
			t.Errorf("premise: %s, %s: nothing is refused", test.what, test.limit)
		}
	}
}
