package sluice_test

import (
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/seed"
)

const aPlace = int64(sluice.PlaceLasts / time.Microsecond)

func inFlight(t testing.TB, places int64) *sluice.Plan {
	t.Helper()
	p, err := sluice.NewInFlight(places)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestPlaces holds places to what is said of them: one that is taken again lasts longer and takes no
// second one, one that is given back is free at once, and giving back twice frees nobody else's.
func TestPlaces(t *testing.T) {
	var s sluice.Places
	p := inFlight(t, 2)
	for i, step := range []struct {
		after  time.Duration
		number uint64
		cost   int64
		fits   bool
		used   int64
	}{
		{0, 1, 1, true, 1},
		{0, 2, 1, true, 2},
		{0, 3, 1, false, 2},
		{0, 1, 1, true, 2},
		{0, 3, -1, true, 2},
		{0, 3, 0, true, 2},
		{0, 1, -1, true, 1},
		{0, 1, -1, true, 1},
		{0, 3, 1, true, 2},
		{0, 3, 2, false, 2},
		{4 * time.Second, 2, 1, true, 2}, // a heartbeat
		{6*time.Second - time.Microsecond, 4, 1, false, 2}, // 3 is held to the end
		{time.Microsecond, 4, 0, true, 1},                  // and no longer
		{0, 4, 1, true, 2},
		{4*time.Second - time.Microsecond, 5, 1, false, 2}, // so is 2, from its heartbeat on
		{time.Microsecond, 5, 1, true, 2},
		{0, 0, sluice.All, true, 0},
		{0, 0, 1, true, 1}, // 0 is a number as any other
		{0, 0, -1, true, 0},
	} {
		now += step.after.Microseconds()
		before := s.Look(p, now, step.number, step.cost)
		r := s.Step(p, now, step.number, step.cost)
		if want := (sluice.Receipt{Now: now, Fits: step.fits, Used: step.used}); r != want {
			t.Fatalf("step %d: %+v, want %+v", i+1, r, want)
		}
		if before.Fits != r.Fits {
			t.Fatalf("step %d: Look says %v, and Step %v", i+1, before.Fits, r.Fits)
		}
	}
	if s.EmptyAt() != 0 {
		t.Errorf("all were given back, and EmptyAt is %d", s.EmptyAt())
	}
}

var now int64 = 1_700_000_000_000_000

// TestPlacesAfterStepBack holds that a clock that steps back makes nobody wait for the length of the
// jump, and that a small step frees nobody's place.
func TestPlacesAfterStepBack(t *testing.T) {
	for _, test := range []struct {
		back time.Duration
		held bool
	}{
		{time.Microsecond, true}, {sluice.PlaceLasts, true}, {sluice.PlaceLasts + time.Microsecond, false}, {time.Hour, false},
	} {
		var s sluice.Places
		p := inFlight(t, 1)
		s.Step(p, now, 1, 1)
		then := now - test.back.Microseconds()
		if r := s.Step(p, then, 2, 1); r.Fits == test.held {
			t.Errorf("%v back: a second place of one is given: %v", test.back, r.Fits)
		}
		if !test.held {
			continue
		}
		if r := s.Look(p, now+aPlace-1, 2, 1); r.Fits {
			t.Errorf("%v back and forth: the place is free before its end", test.back)
		}
		if r := s.Look(p, now+aPlace, 2, 1); !r.Fits {
			t.Errorf("%v back and forth: the place is not free at its end", test.back)
		}
	}
}

// TestPlacesAgainstList compares places with a list of who took which, on a clock that goes both
// ways.
func TestPlacesAgainstList(t *testing.T) {
	type taken struct {
		number uint64
		until  int64
	}
	rng := rand.New(rand.NewPCG(seed.Of(t), 21))
	var fitted, refused, again int
	for range 40 {
		var s sluice.Places
		var list []taken
		plans := []*sluice.Plan{inFlight(t, 1+rng.Int64N(20)), inFlight(t, 1+rng.Int64N(20))}
		now := int64(1_700_000_000_000_000)
		for n := range 500 {
			p := plans[n/100%2]
			switch rng.IntN(60) {
			case 0:
				now -= rng.Int64N(3 * aPlace)
			case 1:
				now += rng.Int64N(3 * aPlace)
			default:
				now += rng.Int64N(aPlace / 20)
			}
			number, cost := rng.Uint64N(25), []int64{1, 1, 1, 1, 1, -1, -1, -7, 0, 2}[rng.IntN(10)]
			if rng.IntN(200) == 0 {
				cost = sluice.All
			}
			counts := func(one taken) bool { return one.until > now && one.until <= now+2*aPlace }
			var held []taken
			for _, one := range list {
				if counts(one) {
					held = append(held, one)
				}
			}
			at := slices.IndexFunc(held, func(one taken) bool { return one.number == number })
			want := sluice.Receipt{Now: now, Fits: cost < 1 || cost == 1 && (at >= 0 || int64(len(held)) < p.Capacity)}
			switch {
			case cost == 0 || !want.Fits:
			case cost == sluice.All:
				held, list = nil, nil
			default:
				if at >= 0 {
					held = slices.Delete(held, at, at+1)
				}
				if cost == 1 {
					held = append(held, taken{number, now + aPlace})
				}
				list = held
			}
			want.Used = int64(len(held))
			if got := s.Step(p, now, number, cost); got != want {
				t.Fatalf("step %d, cost %d: %+v, want %+v", n, cost, got, want)
			}
			latest := int64(0)
			for _, one := range list {
				latest = max(latest, one.until)
			}
			if got := s.EmptyAt(); got < latest || (got == 0) != (len(list) == 0) {
				t.Fatalf("step %d: EmptyAt is %d, and the last place ends at %d", n, got, latest)
			}
			switch {
			case cost == 1 && !want.Fits:
				refused++
			case cost == 1 && at >= 0:
				again++
			case cost == 1:
				fitted++
			}
		}
	}
	if fitted < 1000 || refused < 1000 || again < 1000 {
		t.Errorf("premise: %d taken, %d taken again, %d refused, want 1000 of each", fitted, again, refused)
	}
}

// TestPlacesBytes holds that places take no more memory than they say, and not much less.
func TestPlacesBytes(t *testing.T) {
	for _, n := range []int{1, 8, 9, 14, 15, 100, 897, 1000, 2000, 10_000, 65_536} {
		sets := make([]sluice.Places, 1+20_000/n)
		p := inFlight(t, int64(n))
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		said := 0
		for i := range sets {
			for number := range n {
				sets[i].Step(p, now, rand.Uint64()|uint64(number), 1)
			}
			said += sets[i].Bytes()
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		took := int(after.HeapAlloc - before.HeapAlloc)
		if took > said || took < said*2/5 {
			t.Errorf("%d places: %d bytes each, and they say %d", n, took/len(sets)/n, said/len(sets)/n)
		}
		runtime.KeepAlive(sets)
	}
}

func TestInFlightPlan(t *testing.T) {
	for _, places := range []int64{-1, 0, 1<<16 + 1} {
		if _, err := sluice.NewInFlight(places); err == nil {
			t.Errorf("%d places make a plan", places)
		}
	}
	p := inFlight(t, 10)
	for _, test := range []struct {
		cost int64
		r    sluice.Receipt
		want sluice.Decision
	}{
		{1, sluice.Receipt{Fits: true, Used: 3}, sluice.Decision{Allowed: true, Remaining: 7}},
		{1, sluice.Receipt{Fits: true, Used: 10}, sluice.Decision{Allowed: true}},
		{1, sluice.Receipt{Used: 10}, sluice.Decision{RetryAfter: time.Second}},
		{1, sluice.Receipt{Used: 12}, sluice.Decision{RetryAfter: time.Second}}, // there were more
		{2, sluice.Receipt{}, sluice.Decision{Remaining: 10, RetryAfter: sluice.Never}},
		{-1, sluice.Receipt{Fits: true}, sluice.Decision{Allowed: true, Remaining: 10}},
	} {
		if got := p.Decide(test.cost, test.r); got != test.want {
			t.Errorf("cost %d, %+v: %+v, want %+v", test.cost, test.r, got, test.want)
		}
	}
}

// TestInFlightShare holds that the shares of places are whole ones, that all of them together are no
// more than there are, unless there are more instances, and that a share says what it has left.
func TestInFlightShare(t *testing.T) {
	for _, test := range []struct{ places, instances, want int64 }{
		{10, 1, 10}, {10, 2, 5}, {10, 3, 3}, {10, 10, 1}, {10, 11, 1}, {1, 4, 1}, {1 << 16, 7, 9362},
	} {
		p := inFlight(t, test.places)
		share := p.Share(test.instances)
		if share.Plan.Capacity != test.want || share.Plan.Fingerprint != p.Fingerprint {
			t.Errorf("%d places by %d: %d each, want %d", test.places, test.instances, share.Plan.Capacity, test.want)
		}
		var s sluice.Places
		for n := range test.want + 1 {
			r := share.Receipt(1, s.Step(share.Plan, now, uint64(n), share.Cost(1)))
			if d := p.Decide(1, r); d.Allowed != (n < test.want) || d.Remaining != max(0, test.want-n-1) {
				t.Errorf("%d places by %d: the %dth is told %+v", test.places, test.instances, n+1, d)
			}
		}
		if r := s.Step(share.Plan, now, 0, share.Cost(-1<<20)); r.Used != test.want-1 {
			t.Errorf("one of %d is given back, and %d are left", test.want, r.Used)
		}
		if r := s.Step(share.Plan, now, 0, share.Cost(sluice.All)); r.Used != 0 {
			t.Errorf("all are given back, and %d are left", r.Used)
		}
	}
}

// TestInFlightSnapshot holds that what was seen of places is told as it was.
func TestInFlightSnapshot(t *testing.T) {
	p := inFlight(t, 3)
	for _, test := range []struct {
		used, cost int64
		fits       bool
	}{{0, 1, true}, {2, 1, true}, {3, 1, false}, {3, 0, true}, {3, -1, true}, {0, 2, false}} {
		s := p.Snapshot(1, sluice.Receipt{Now: now, Used: test.used, Fits: true}, 0)
		want := sluice.Receipt{Now: now + 1, Used: test.used, Fits: test.fits}
		if r, known := s.Receipt(p, now+1, test.cost); !known || r != want {
			t.Errorf("%d were taken, cost %d: %+v, want %+v", test.used, test.cost, r, want)
		}
		if n := s.Remaining(p, now+1); n != 3-test.used {
			t.Errorf("%d of 3 were taken, and %d remain", test.used, n)
		}
	}
}

func TestCostAt(t *testing.T) {
	for _, test := range []struct{ cost, until, want int64 }{
		{-5, 0, -5}, {-5, now + 1, -5}, {-5, now, 0}, {-5, now - 1, 0}, {sluice.All, now, 0}, {sluice.All, now + 1, sluice.All},
		{5, now, 5}, {0, now, 0}, {-5, -1, 0},
	} {
		c := sluice.Charge{Cost: test.cost, Until: test.until}
		if got := c.CostAt(now); got != test.want {
			t.Errorf("%d until %d costs %d at %d, want %d", test.cost, test.until, got, now, test.want)
		}
	}
}
