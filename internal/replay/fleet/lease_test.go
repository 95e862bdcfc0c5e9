package fleet_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/plantest"
	"github.com/sluicehq/sluice/internal/replay"
	"github.com/sluicehq/sluice/internal/replay/fleet"
	"github.com/sluicehq/sluice/internal/seed"
	"github.com/sluicehq/sluice/lease"
)

func playback(s fleet.Shared) fleet.Leaser { return lease.NewPlayback(s) }

// traffic are requests at times that are never before the last: in a hurry, at the same moment, and after
// a pause.
type traffic struct {
	*rand.Rand
	now   int64
	pause int64 // between two, about
}

func (r *traffic) next() int64 {
	switch r.IntN(400) {
	case 0:
		r.pause = 50 << r.IntN(8)
	case 1:
		r.now += r.Int64N(3_000_000)
	case 2:
		r.now += 1_000_000 - r.now%1_000_000 // a second begins
	}
	if r.IntN(10) > 0 {
		r.now += r.Int64N(2 * r.pause)
	}
	return r.now
}

// drive puts random requests to a fleet that leases. It returns how many passed, how many of them an exact
// store refuses that was told of the others, and how many one would have let pass that was asked instead.
func drive(t *testing.T, nodes int, leased, strict *sluice.Plan, n int) (passed, above, would int64, l replay.Leases) {
	t.Helper()
	r := &traffic{rand.New(rand.NewPCG(seed.Of(t), uint64(nodes))), noon, 500}
	s := fleet.New(fleet.Config{Nodes: nodes, Lease: playback}, newStore)
	told, asked := newStore(), newStore()
	for range n {
		now := r.next()
		charges := []sluice.Charge{{Key: []string{"a", "b"}[r.IntN(8)/7], Plan: leased, Cost: 1 + r.Int64N(3), Consistency: sluice.Leased}}
		if r.IntN(4) == 0 {
			charges = append(charges, sluice.Charge{Key: "c", Plan: strict, Cost: 1})
		}
		if r.IntN(8) == 0 {
			charges = append(charges, sluice.Charge{Key: "d", Plan: leased, Cost: 1, Consistency: sluice.Leased})
		}
		passes := func(s replay.Store) bool {
			receipts := make([]sluice.Receipt, len(charges))
			if err := s.TakeAt(t.Context(), now, charges, receipts); err != nil {
				t.Fatal(err)
			}
			return sluice.Admitted(charges, receipts)
		}
		if passes(s) {
			passed++
			if !passes(told) {
				above++
			}
		}
		if passes(asked) {
			would++
		}
	}
	return passed, above, would, *s.Leases()
}

// However many instances lease, and whatever comes: what they let pass together, one store would, and it is
// hardly less. It is the same in every run.
func TestLeased(t *testing.T) {
	strict := plantest.As(t, sluice.TokenBucket, "200/second")
	for _, c := range []struct {
		limit string
		a     sluice.Algorithm
	}{
		{"1000/second", sluice.TokenBucket},
		{"600/second", sluice.GCRA},
		{"500/second", sluice.FixedWindow},
		{"10000/minute", sluice.FixedWindow},
		{"500/second", sluice.SlidingWindowCounter},
		{"10000/minute", sluice.SlidingWindowCounter},
		{"100/minute", sluice.TokenBucket}, // which is not worth it
		{"500/second", sluice.SlidingWindowLog},
	} {
		leased := plantest.As(t, c.a, c.limit)
		for _, nodes := range []int{1, 3, 16} {
			const n = 6_000
			passed, above, would, l := drive(t, nodes, leased, strict, n)
			t.Logf("%s, %v, %d instances: %d of %d passed, %+v", c.limit, c.a, nodes, passed, would, l)
			if above > 0 || l.Above > 0 {
				t.Errorf("%s, %v, %d instances: %d were above the limit, and the report says %d", c.limit, c.a, nodes, above, l.Above)
			}
			if passed < would*9/10 {
				t.Errorf("%s, %v, %d instances: only %d passed, and one store lets %d pass", c.limit, c.a, nodes, passed, would)
			}
			worth := lease.Ahead(leased) > 0
			if l.Decisions != n || !worth && l.Calls != n || worth && nodes == 1 && l.Calls > n*3/4 {
				t.Errorf("%s, %v, %d instances: %+v", c.limit, c.a, nodes, l)
			}
			if passedAgain, _, _, again := drive(t, nodes, leased, strict, n); again != l || passedAgain != passed {
				t.Errorf("%s, %v, %d instances: once %d passed, %+v, and once %d, %+v", c.limit, c.a, nodes, passed, l, passedAgain, again)
			}
		}
	}
}

// While the store is away, leased rules are decided by on_error, and what passed is written back.
func TestLeasedOutage(t *testing.T) {
	hour := time.Hour.Microseconds()
	s := fleet.New(fleet.Config{Nodes: 3, Lease: playback, Away: func(now int64) bool { return now >= noon && now < noon+hour }}, newStore)
	c := sluice.Charge{Key: "k", Plan: plantest.As(t, sluice.FixedWindow, "100000/hour"), OnError: sluice.Allow, Consistency: sluice.Leased}
	if got := passed(t, s, c, noon-time.Second.Microseconds(), 1000, time.Millisecond); got != 1000 {
		t.Fatalf("%d of 1000 passed before", got)
	}
	if got := passed(t, s, c, noon, 120_000, time.Millisecond); got != 120_000 {
		t.Errorf("%d of 120,000 passed while the store was away", got)
	}
	if l := s.Leases(); l.Decisions != 1000 || l.Calls == 0 || l.Calls > 100 || l.Above != 0 {
		t.Errorf("by leases: %+v", l)
	}
	if got := passed(t, s, c, noon+hour, 1000, time.Millisecond); got != 1000 {
		t.Errorf("%d of 1000 passed in the next hour", got)
	}
}

// What instances had reserved when an outage begins, and would have given back before it, is given back.
func TestLeasedBeforeAnOutage(t *testing.T) {
	const second = int64(1_000_000)
	var shared replay.Store
	s := fleet.New(fleet.Config{
		Nodes: 10, Lease: playback,
		Away: func(now int64) bool { return now >= noon+10*second && now < noon+12*second },
	}, func() replay.Store {
		made := newStore()
		if shared == nil {
			shared = made
		}
		return made
	})
	p := plantest.As(t, sluice.FixedWindow, "100000/minute")
	asked := int64(0)
	ask := func(now int64) {
		t.Helper()
		var r [1]sluice.Receipt
		if err := s.TakeAt(t.Context(), now, []sluice.Charge{{Key: "k", Plan: p, Cost: 1, Consistency: sluice.Leased, OnError: sluice.Local}}, r[:]); err != nil || !r[0].Fits {
			t.Fatalf("%+v, %v", r[0], err)
		}
		asked++
	}
	for now := noon + second; now < noon+3*second; now += 500 {
		ask(now)
	}
	for i := range int64(100) {
		ask(noon + 11*second + i*1000)
	}
	ask(noon + 13*second)
	var r [1]sluice.Receipt
	if err := shared.TakeAt(t.Context(), noon+13*second, []sluice.Charge{{Key: "k", Plan: p}}, r[:]); err != nil || r[0].Used != asked {
		t.Errorf("%d were asked for, and of the shared store %d are used: %v", asked, r[0].Used, err)
	}
}
