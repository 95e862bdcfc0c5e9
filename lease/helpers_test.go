package lease

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/faultstore"
	"github.com/sluicehq/sluice/internal/seed"
	"github.com/sluicehq/sluice/kernel"
	"github.com/sluicehq/sluice/memory"
)

func plan(t testing.TB, l sluice.Limit) *sluice.Plan {
	t.Helper()
	p, err := sluice.NewPlan(l)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// dice is a source of random numbers for several goroutines.
type dice struct {
	mu   sync.Mutex
	rand *rand.Rand
}

func newDice(t testing.TB) *dice { return &dice{rand: rand.New(rand.NewPCG(seed.Of(t), 0))} }

func (d *dice) below(n int64) int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.rand.Int64N(n)
}

// pause returns a random time between two events that happen perSecond times a second on average.
func (d *dice) pause(perSecond float64) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return time.Duration(d.rand.ExpFloat64() / perSecond * float64(time.Second))
}

// way returns a function that returns random times around a mean.
func (d *dice) way(about time.Duration) func() time.Duration {
	return func() time.Duration {
		if about == 0 {
			return 0
		}
		return about/2 + time.Duration(d.below(int64(about)+1))
	}
}

// leasing runs f in virtual time with a Store over a distant shared store. Virtual time starts at the start of a
// window.
func leasing(t *testing.T, way time.Duration, f func(t *testing.T, shared *faultstore.Store, s *Store)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		shared := faultstore.New(memory.New())
		shared.Set(faultstore.Far(newDice(t).way(way), nil))
		s := New(shared)
		defer s.Close()
		f(t, shared, s)
	})
}

// take charges one key.
func take(t testing.TB, s sluice.Store, p *sluice.Plan, cost int64, c sluice.Consistency) sluice.Receipt {
	t.Helper()
	var r [1]sluice.Receipt
	if err := s.Take(t.Context(), []sluice.Charge{{Key: "k", Plan: p, Cost: cost, Consistency: c}}, r[:]); err != nil {
		t.Fatal(err)
	}
	return r[0]
}

// warm takes units until the store leases the key and has measured the demand.
func warm(t testing.TB, s *Store, p *sluice.Plan) {
	t.Helper()
	for n := range 2000 {
		r := take(t, s, p, 1, sluice.Leased)
		if !r.Fits {
			t.Fatalf("%v: %+v", p.Limit, r)
		}
		if n > 400 && r.Origin == sluice.ByLease {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatal("the key is not leased")
}

// event is an admitted charge, with its time by the server's clock.
type event struct{ at, cost int64 }

// replay returns the number of admitted units that an exact limiter denies.
func replay(p *sluice.Plan, events []event) (over int64) {
	slices.SortFunc(events, func(a, b event) int { return cmp.Compare(a.at, b.at) })
	var s kernel.State
	var r sluice.Receipt
	for _, e := range events {
		if s = p.Step(s, e.at, e.cost, &r.Receipt); !r.Fits {
			over += e.cost
		}
	}
	return over
}
