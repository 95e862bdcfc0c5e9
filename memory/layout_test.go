package memory

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sluicehq/sluice"
)

// TestPackedStates holds that a state tells the same after it was packed, whatever the
// clock does between.
func TestPackedStates(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	packed := map[string]int{}
	for range 100_000 {
		l := sluice.Limit{
			Count:     1 + rng.Int64N(1<<rng.IntN(40)),
			Period:    time.Duration(1+rng.Int64N(1<<rng.IntN(42))) * time.Microsecond,
			Algorithm: sluice.Algorithms()[rng.IntN(5)],
		}
		p, err := sluice.NewPlan(l)
		if err != nil {
			continue
		}
		layout := newLayout(p, 0)
		now, later := rng.Int64N(maxTime), rng.Int64N(maxTime)
		if rng.IntN(2) == 0 {
			later = min(max(0, now+rng.Int64N(2*p.Span*p.Tick+1000)-p.Span*p.Tick), maxTime-1)
		}
		state, _ := p.Step(sluice.State{}, now, 1+rng.Int64N(p.Capacity))
		state, _ = p.Step(state, min(now+rng.Int64N(p.Tick*p.Span+10), maxTime-1), 1)
		word, ok := layout.pack(state)
		if !ok {
			continue
		}
		if word == 0 {
			t.Fatalf("%v: %+v is packed as a free slot", p.Limit, state)
		}
		packed[l.Algorithm.String()]++
		cost := rng.Int64N(2*p.Capacity+1) - p.Capacity/2
		_, want := p.Step(state, later, cost)
		_, got := p.Step(layout.unpack(word, later), later, cost)
		if got != want {
			t.Fatalf("%v: %+v of %d, at %d: %+v is %+v after packing", p.Limit, state, now, later, want, got)
		}
	}
	for _, a := range sluice.Algorithms()[:5] {
		if packed[a.String()] < 1500 {
			t.Errorf("only %d states of %v were packed", packed[a.String()], a)
		}
	}
}

// TestCommonLimitsPack holds that the limits of ordinary life take 16 bytes.
func TestCommonLimitsPack(t *testing.T) {
	for _, a := range sluice.Algorithms()[:5] {
		for _, limit := range []string{"1/second", "100/minute", "7/second", "999/minute", "5000/hour", "1000000/day", "30000/second"} {
			l, err := sluice.ParseLimit(limit)
			if err != nil {
				t.Fatal(err)
			}
			l.Algorithm = a
			p, err := sluice.NewPlan(l)
			if err != nil {
				t.Fatal(err)
			}
			if !newLayout(p, 0).fits {
				t.Errorf("%s %v is kept aside", limit, a)
			}
		}
	}
}

// TestTable fills a stripe through all its sizes, and finds everything in it at each.
func TestTable(t *testing.T) {
	s := NewSize(minBytes)
	l, err := sluice.NewPlan(sluice.Limit{Count: 10, Period: 24 * time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	layout := s.plans.layout(l)
	const now = 20_000 * 86_400_000_000
	st := stripe{lines: make([]line, firstLines)}
	rng := rand.New(rand.NewPCG(9, 9))
	var hashes []uint64
	sizes := map[int]bool{}
	for n := uint64(1); s.evicted.Load() == 0; n++ {
		hash := rng.Uint64()
		word := now + n // what is written is found again, and nothing else
		tag := hash<<16 | layout.index
		*s.room(&st, tag, now) = slot{word, tag}
		hashes = append(hashes, hash)
		sizes[len(st.lines)] = true
		lost := 0
		for i, h := range hashes {
			if sl := st.find(h); sl == nil || sl.state != now+uint64(i)+1 {
				lost++
			}
		}
		if int64(lost) != s.evicted.Load() {
			t.Fatalf("%d of %d are lost in %d lines", lost, n, len(st.lines))
		}
	}
	if len(sizes) < 5 {
		t.Errorf("the table had the sizes %v only", sizes)
	}
	if share := float64(len(hashes)) / float64(4*len(st.lines)); share < 0.85 {
		t.Errorf("the first of %d was evicted at %.2f of the slots", len(hashes), share)
	}
}

// TestLeastGoes holds that what is evicted has the least debt of all that could be.
func TestLeastGoes(t *testing.T) {
	s := NewSize(minBytes)
	p, err := sluice.NewPlan(sluice.Limit{Count: 1000, Period: 24 * time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	const now = 20_000 * 86_400_000_000
	used := map[string]int64{}
	take := func(key string, cost int64) (remaining int64) {
		var r [1]sluice.Receipt
		if err := s.TakeAt(t.Context(), now, []sluice.Charge{{Key: key, Plan: p, Cost: cost}}, r[:]); err != nil {
			t.Fatal(err)
		}
		return p.Decide(cost, r[0]).Remaining
	}
	rng := rand.New(rand.NewPCG(11, 11))
	for i := range 4000 {
		key := fmt.Sprint(i)
		used[key] = 1 + rng.Int64N(1000)
		take(key, used[key])
	}
	var kept, lost, lostHigh, high int
	for key, n := range used {
		switch take(key, 0) {
		case 1000 - n:
			kept++
		case 1000:
			lost++
			if n > 600 {
				lostHigh++
			}
		default:
			t.Errorf("%d units of key %s are used, want %d", 1000-take(key, 0), key, n)
		}
		if n > 600 {
			high++
		}
	}
	// There is room for half of them: for all that owe most.
	if kept < 1900 || lostHigh*50 > high {
		t.Errorf("%d are kept and %d lost, among them %d of the %d that owe most", kept, lost, lostHigh, high)
	}
}
