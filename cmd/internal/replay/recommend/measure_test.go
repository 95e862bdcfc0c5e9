package recommend

import (
	"context"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/cmd/internal/replay/accesslog"
)

// measureAll records the requests of a subject as the engine does.
func measureAll(times []int64, zone *time.Location) *subject {
	g := &gauge{rules: map[string]*measured{"r": {subjects: map[string]*subject{}, detailed: true}}, zone: zone, room: defaultMemory}
	for _, now := range times {
		g.setRequest(&accesslog.Entry{Time: now}, "", "")
		_ = g.Take(context.Background(), []sluice.Charge{{Key: "r/x", Cost: 1}}, make([]sluice.Receipt, 1))
	}
	return g.rules["r"].subjects["x"]
}

// The peaks over all days are the least bursts with which the store denies no request. The peaks before a day are those
// of a log that ends there.
func TestMeasured(t *testing.T) {
	zone := time.FixedZone("east", 5*3600+1800)
	several := 0
	for seed := range uint64(40) {
		times := someTimes(rand.New(rand.NewPCG(seed, 12)))
		for i := range times {
			if seed%2 == 0 && i >= len(times)/2 {
				times[i] += 30 * 3600e6
			}
		}
		s := measureAll(times, zone)
		p, requests := s.before(never)
		if requests != int64(len(times)) || s.requests != requests {
			t.Fatalf("seed %d: %d requests of %d", seed, requests, len(times))
		}
		for i, r := range grid {
			if burst := p.burst(i); refuses(t, sluice.Limit{Count: r.count, Period: r.period, Burst: burst}, times) {
				t.Fatalf("seed %d: %s denies a request", seed, r.limit(burst))
			} else if burst > 1 && !refuses(t, sluice.Limit{Count: r.count, Period: r.period, Burst: burst - 1}, times) {
				t.Fatalf("seed %d: %s denies no request", seed, r.limit(burst-1))
			}
		}
		for _, d := range s.days {
			begin := time.Unix(int64(d.number)*86400, 0).UTC()
			begin = time.Date(begin.Year(), begin.Month(), begin.Day(), 0, 0, 0, 0, zone)
			earlier := slices.IndexFunc(times, func(now int64) bool { return now >= begin.UnixMicro() })
			p, requests := s.before(d.number)
			if requests != int64(earlier) {
				t.Fatalf("seed %d: %d requests before %v, want %d", seed, requests, begin, earlier)
			}
			if earlier == 0 {
				continue
			}
			several++
			want := burstsOf(times[:earlier])
			for i := range grid {
				if p.burst(i) != want.burst(i) {
					t.Fatalf("seed %d: the burst before %v is %d, want %d", seed, begin, p.burst(i), want.burst(i))
				}
			}
		}
	}
	if several < 10 {
		t.Errorf("only %d subjects had several days", several)
	}
}

// perSecond is the number of requests in the busiest second of the clock.
func TestPerSecond(t *testing.T) {
	s := measureAll([]int64{1e15, 1e15 + 999_999, 1e15 + 1_000_000, 1e15 + 1_000_001, 1e15 + 1_999_999, 1e15 + 2_000_000}, time.UTC)
	if s.perSecond != 3 {
		t.Errorf("%d requests in a second, want 3", s.perSecond)
	}
}

func TestSteady(t *testing.T) {
	var alike, busy, few [24]uint16
	for i := range 21 {
		alike[i], busy[i], few[i] = 10, 10, 10
	}
	busy[3], few[4] = 100, 0
	if !steady(&alike) || steady(&busy) || steady(&few) {
		t.Errorf("steady with 21 equal hours: %v; with one of ten times as many requests: %v; with 20 hours: %v", steady(&alike), steady(&busy), steady(&few))
	}
}

func TestDistinct(t *testing.T) {
	for _, n := range []int{0, 1, 10, 100, 300} {
		var v evidence
		for i := range n {
			h := hashOf(string(rune('a' + i)))
			v.paths[h>>6&3] |= 1 << (h & 63)
		}
		if got := v.distinct(); got < 0.75*float64(n) || got > 1.25*float64(n)+0.5 {
			t.Errorf("%d paths are estimated as %v", n, got)
		}
	}
}
