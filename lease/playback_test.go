package lease

import (
	"context"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/seed"
	"github.com/sluicehq/sluice/memory"
)

// counted is a shared store that counts its calls.
type counted struct {
	*memory.Store
	calls, returned int64
}

func (s *counted) TakeAt(ctx context.Context, now int64, charges []sluice.Charge, receipts []sluice.Receipt) error {
	s.calls++
	if charges[0].Cost < 0 {
		s.returned -= charges[0].Cost
	}
	return s.Store.TakeAt(ctx, now, charges, receipts)
}

// play asks four processes for one key at random times, so many times a second.
func play(t *testing.T, p *sluice.Plan, perSecond float64, lasts time.Duration) (o outcome) {
	random := rand.New(rand.NewPCG(seed.Of(t), 0))
	shared := &counted{Store: memory.New()}
	nodes := make([]*Playback, 4)
	for i := range nodes {
		nodes[i] = NewPlayback(shared)
	}
	var state sluice.State
	var events []event
	now := int64(1_767_268_800_000_000)
	for end := now + lasts.Microseconds(); now < end; {
		now += int64(random.ExpFloat64() / perSecond * 1e6)
		for {
			first := nodes[0]
			for _, n := range nodes {
				if n.Due() < first.Due() {
					first = n
				}
			}
			if first.Due() > now {
				break
			}
			first.Advance(first.Due())
		}
		var r, one [1]sluice.Receipt
		if state = p.Step(state, now, 1, &one[0]); one[0].Fits {
			o.exact++
		}
		charge := [1]sluice.Charge{{Key: "hot", Plan: p, Cost: 1, Consistency: sluice.Leased}}
		if err := nodes[random.IntN(len(nodes))].TakeAt(t.Context(), now, charge[:], r[:]); err != nil {
			t.Fatal(err)
		}
		if o.asked++; r[0].Origin == sluice.ByLease {
			o.byLease++
		}
		if r[0].Fits {
			o.admitted++
			events = append(events, event{now, 1})
		}
	}
	o.calls, o.over = shared.calls, replay(p, events)
	return o
}

// What is played back is leased as in life: about as many calls, hardly less than the exact limiter
// admits, nothing above it, and the same every time.
func TestPlayback(t *testing.T) {
	for _, l := range []sluice.Limit{
		{Count: 4_000, Period: time.Second},
		{Algorithm: sluice.FixedWindow, Count: 4_000, Period: time.Second},
		{Algorithm: sluice.SlidingWindowCounter, Count: 4_000, Period: time.Second},
	} {
		p := plan(t, l)
		for _, load := range []float64{0.5, 1, 2} {
			o, again := play(t, p, 4_000*load, 5*time.Second), play(t, p, 4_000*load, 5*time.Second)
			calls, under := float64(o.calls)/float64(o.asked), 1-float64(o.admitted)/float64(o.exact)
			t.Logf("%v, load %v: %.4f calls a decision, %.2f %% less: %+v", l, load, calls, 100*under, o)
			if o != again {
				t.Errorf("%v, load %v: once %+v, and once %+v", l, load, o, again)
			}
			if o.over > 0 || calls > 0.15 || under > 0.03 {
				t.Errorf("%v, load %v: %.4f calls a decision, %.4f less, %+v", l, load, calls, under, o)
			}
		}
	}
}

// What nobody asks for any more is given back when that is due, and then nothing is.
func TestPlaybackGivesBack(t *testing.T) {
	p := plan(t, sluice.Limit{Algorithm: sluice.FixedWindow, Count: 100_000, Period: time.Minute})
	shared := &counted{Store: memory.New()}
	s := NewPlayback(shared)
	now := int64(1_767_268_800_000_000)
	ask := func(c sluice.Consistency) (r [1]sluice.Receipt) {
		if err := s.TakeAt(t.Context(), now, []sluice.Charge{{Key: "k", Plan: p, Cost: 1, Consistency: c}}, r[:]); err != nil || !r[0].Fits {
			t.Fatalf("%v, %+v", err, r)
		}
		return r
	}
	for range 100 {
		ask(sluice.Leased)
		now += 1000
	}
	if r := ask(sluice.Leased); r[0].Origin != sluice.ByLease {
		t.Fatalf("not leased: %+v", r)
	}
	if s.Due() > now+sweepEvery.Microseconds() {
		t.Fatalf("nothing is due before %d, at %d", s.Due(), now)
	}
	now += 2 * keptFor
	s.Advance(now)
	if shared.returned == 0 || s.Due() != math.MaxInt64 {
		t.Errorf("%d were given back, and at %d something is due", shared.returned, s.Due())
	}
	if r := ask(sluice.Strict); r[0].Used != 102 {
		t.Errorf("of 102 units the store has counted %d", r[0].Used)
	}
}
