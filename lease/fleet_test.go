package lease

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/seed"
	"github.com/sluicehq/sluice/memory"
)

// dice are a source of chance for many goroutines.
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

// pause is between two of so many events a second.
func (d *dice) pause(perSecond float64) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return time.Duration(d.rand.ExpFloat64() / perSecond * float64(time.Second))
}

// far is a shared store that is some way off.
type far struct {
	store    *memory.Store
	dice     *dice
	way      time.Duration // there, and back
	calls    atomic.Int64
	lost     func() bool  // whether an answer is lost
	taken    atomic.Int64 // units
	returned atomic.Int64
}

func (f *far) travel(ctx context.Context, wait time.Duration) error {
	if f.way == 0 {
		return nil
	}
	way := f.way/2 + time.Duration(f.dice.below(int64(f.way)+1))
	if wait < way {
		time.Sleep(wait)
		return context.DeadlineExceeded
	}
	time.Sleep(way)
	return nil
}

func (f *far) Take(ctx context.Context, charges []sluice.Charge, receipts []sluice.Receipt) error {
	return f.TakeWithin(ctx, time.Hour, charges, receipts)
}

func (f *far) TakeWithin(ctx context.Context, wait time.Duration, charges []sluice.Charge, receipts []sluice.Receipt) error {
	if wait == 0 {
		return late{}
	}
	f.calls.Add(1)
	if err := f.travel(ctx, wait); err != nil {
		return err
	}
	answer := make([]sluice.Receipt, len(receipts))
	err := f.store.Take(ctx, charges, answer)
	switch cost := charges[0].Cost; {
	case cost > 0 && answer[0].Fits:
		f.taken.Add(cost)
	case cost < 0 && cost != sluice.All && sluice.Admitted(charges, answer) && answer[0].Now <= charges[0].Until:
		f.returned.Add(-cost)
	}
	if f.lost != nil && f.lost() {
		time.Sleep(min(wait, 50*time.Millisecond))
		return context.DeadlineExceeded
	}
	if e := f.travel(ctx, wait); e != nil {
		return e
	}
	copy(receipts, answer)
	return err
}

func (f *far) TakeEach(ctx context.Context, calls []sluice.TakeCall) {
	f.TakeEachWithin(ctx, time.Hour, calls)
}

func (f *far) TakeEachWithin(ctx context.Context, wait time.Duration, calls []sluice.TakeCall) {
	for i := range calls {
		calls[i].Err = f.TakeWithin(ctx, wait, calls[i].Charges, calls[i].Receipts)
	}
}

func (*far) Shard(string) int { return 0 }

func (*far) Heartbeat(context.Context, string) (int, error) { return 1, nil }

// event is what was admitted, and when by the server's clock.
type event struct{ at, cost int64 }

// replay reports how many of the units that were admitted the exact limiter refuses.
func replay(p *sluice.Plan, events []event) (over int64) {
	slices.SortFunc(events, func(a, b event) int { return cmp.Compare(a.at, b.at) })
	var s sluice.State
	var r sluice.Receipt
	for _, e := range events {
		if s = p.Step(s, e.at, e.cost, &r); !r.Fits {
			over += e.cost
		}
	}
	return over
}

// run is a fleet at work: its processes ask so many times a second together, at random times.
type run struct {
	plan      *sluice.Plan
	nodes     int
	perSecond float64
	lasts     time.Duration
	way       time.Duration
	strict    int // of the nodes
	cost      func() int64
	each      func(nodes []*Store) // now and then
	lost      func() bool
}

type outcome struct {
	asked, admitted, over, calls, exact int64
	byLease                             int64
	taken                               int64
}

// do runs in a bubble. Exact is what one limiter would have admitted.
func (c run) do(t *testing.T) (o outcome) {
	shared := &far{store: memory.New(), way: c.way, lost: c.lost, dice: newDice(t)}
	nodes := make([]*Store, c.nodes)
	for i := range nodes {
		nodes[i] = New(shared)
	}
	var mu sync.Mutex
	var events []event
	var state sluice.State
	var all sync.WaitGroup
	end := time.Now().Add(c.lasts)
	ask := func(node *Store, strict bool, cost int64) {
		charge := [1]sluice.Charge{{Key: "hot", Plan: c.plan, Cost: cost, Consistency: sluice.Leased}}
		if strict {
			charge[0].Consistency = sluice.Strict
		}
		var r [1]sluice.Receipt
		began := time.Now()
		err := node.TakeWithin(t.Context(), time.Second, charge[:], r[:])
		took := time.Since(began)
		mu.Lock()
		defer mu.Unlock()
		o.asked++
		if err != nil {
			if c.lost == nil {
				t.Errorf("%v after %v", err, took)
			}
			return
		}
		if r[0].Origin == sluice.ByLease {
			o.byLease++
		}
		d := c.plan.Decide(cost, r[0])
		if d.Allowed {
			o.admitted += cost
			events = append(events, event{r[0].Now, cost})
		} else if d.RetryAfter <= 0 || d.Remaining >= cost {
			t.Errorf("a refusal says %+v", d)
		}
	}
	next := time.Now()
	for turn := 0; time.Now().Before(end); turn++ {
		next = next.Add(shared.dice.pause(c.perSecond))
		time.Sleep(time.Until(next))
		cost := int64(1)
		if c.cost != nil {
			cost = c.cost()
		}
		var r sluice.Receipt
		if state = c.plan.Step(state, time.Now().UnixMicro(), cost, &r); r.Fits {
			o.exact += cost
		}
		node := int(shared.dice.below(int64(len(nodes))))
		asked := nodes[node]
		all.Go(func() { ask(asked, node < c.strict, cost) })
		if c.each != nil && turn%1000 == 999 {
			c.each(nodes)
		}
	}
	all.Wait()
	for _, n := range nodes {
		n.Close()
	}
	o.calls, o.taken = shared.calls.Load(), shared.taken.Load()
	o.over = replay(c.plan, events)
	time.Sleep(2 * keptFor * time.Microsecond) // stores that were "killed" look at their leases until then
	return o
}

// Whatever is asked of however many processes, the exact limiter admits what they do, in all hardly
// less than it would have, and with a fraction of the calls.
func TestFleet(t *testing.T) {
	second := func(n int64) sluice.Limit { return sluice.Limit{Count: n, Period: time.Second} }
	for _, c := range []struct {
		name string
		run
		calls, under float64 // a decision, and of what the exact limiter admits, at most
	}{
		{"at the limit", run{plan: plan(t, second(10_000)), nodes: 10, perSecond: 10_000, lasts: 3 * time.Second}, 0.02, 0.01},
		{"at half of it", run{plan: plan(t, second(10_000)), nodes: 10, perSecond: 5_000, lasts: 4 * time.Second}, 0.03, 0},
		{"at four times", run{plan: plan(t, second(4_000)), nodes: 10, perSecond: 16_000, lasts: 3 * time.Second}, 0.03, 0.04},
		{"alone", run{plan: plan(t, second(10_000)), nodes: 1, perSecond: 10_000, lasts: 3 * time.Second}, 0.01, 0.01},
		{"many, cold", run{plan: plan(t, second(1_000)), nodes: 100, perSecond: 2_000, lasts: 6 * time.Second}, 1, 0.05},
		{"many, for a short time", run{plan: plan(t, sluice.Limit{Count: 10_000, Period: time.Second, Burst: 2_000}), nodes: 300, perSecond: 10_000, lasts: 3 * time.Second}, 1.1, 0.01},
		{"window", run{plan: plan(t, sluice.Limit{Algorithm: sluice.FixedWindow, Count: 5_000, Period: time.Second}), nodes: 4, perSecond: 6_000, lasts: 3 * time.Second}, 0.05, 0.01},
		{"sliding", run{plan: plan(t, sluice.Limit{Algorithm: sluice.SlidingWindowCounter, Count: 5_000, Period: time.Second}), nodes: 4, perSecond: 6_000, lasts: 3 * time.Second}, 0.15, 0.03},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c.way = 300 * time.Microsecond
				o := c.do(t)
				t.Logf("%+v: %.4f calls a decision, %.4f by lease, under %.4f", o, float64(o.calls)/float64(o.asked), float64(o.byLease)/float64(o.asked), 1-float64(o.admitted)/float64(o.exact))
				if o.over > 0 {
					t.Errorf("over the limit by %d", o.over)
				}
				if got := float64(o.calls) / float64(o.asked); got > c.calls {
					t.Errorf("%.4f calls a decision, at most %.4f", got, c.calls)
				}
				if under := 1 - float64(o.admitted)/float64(o.exact); under > c.under {
					t.Errorf("%.4f less than the exact limiter admits, at most %.4f", under, c.under)
				}
			})
		})
	}
}

// Nothing is admitted above the limit where answers are lost, processes end and begin, some ask
// strictly, and costs differ.
func TestFleetFaults(t *testing.T) {
	for _, l := range []sluice.Limit{
		{Count: 2_000, Period: time.Second, Burst: 300},
		{Count: 1_000, Period: time.Second},
		{Algorithm: sluice.FixedWindow, Count: 1_000, Period: time.Second},
		{Algorithm: sluice.SlidingWindowCounter, Count: 1_000, Period: time.Second},
	} {
		t.Run(l.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newDice(t)
				o := run{
					plan: plan(t, l), nodes: 6, strict: 2, perSecond: 1_500, lasts: 4 * time.Second, way: 2 * time.Millisecond,
					lost: func() bool { return d.below(20) == 0 },
					cost: func() int64 { return 1 + d.below(3) },
					each: func(nodes []*Store) {
						n := 2 + d.below(4)
						if d.below(2) == 0 {
							nodes[n].Close()
						} // else it is killed
						nodes[n] = New(nodes[n].shared)
					},
				}.do(t)
				t.Logf("%+v", o)
				if o.over > 0 {
					t.Errorf("over the limit by %d", o.over)
				}
				if o.byLease < o.asked/4 || o.admitted < o.exact*8/10 {
					t.Errorf("too little was leased, or admitted")
				}
			})
		})
	}
}

// What is not spent is given back: when nobody asks any more, and when the process ends.
func TestGiveBack(t *testing.T) {
	for _, l := range []sluice.Limit{
		{Algorithm: sluice.FixedWindow, Count: 1_000, Period: time.Minute},
		{Count: 1_000, Period: time.Second, Burst: 10_000},
	} {
		for _, closes := range []bool{true, false} {
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(time.Minute - time.Duration(time.Now().UnixNano())%time.Minute) // the beginning of a window
				p := plan(t, l)
				if p.Kernel == sluice.Window {
					p = plan(t, sluice.Limit{Algorithm: sluice.FixedWindow, Count: 100_000, Period: time.Minute})
				}
				shared := &far{store: memory.New(), way: time.Millisecond, dice: newDice(t)}
				s := New(shared)
				defer s.Close()
				charge := [1]sluice.Charge{{Key: "k", Plan: p, Cost: 1, Consistency: sluice.Leased}}
				var r [1]sluice.Receipt
				if p.Kernel == sluice.Meter { // so full that units live long
					fill := [1]sluice.Charge{{Key: "k", Plan: p, Cost: 9_000}}
					if err := s.Take(t.Context(), fill[:], r[:]); err != nil {
						t.Fatal(err)
					}
				}
				asked, leased := int64(0), false
				for range 300 {
					if err := s.Take(t.Context(), charge[:], r[:]); err != nil || !r[0].Fits {
						t.Fatal(err, r)
					}
					asked++
					leased = leased || r[0].Origin == sluice.ByLease
					time.Sleep(time.Millisecond)
				}
				if !leased {
					t.Fatal("nothing was leased")
				}
				held := shared.taken.Load() - asked
				if p.Kernel == sluice.Meter {
					held -= 9_000
				}
				before := shared.returned.Load()
				if closes {
					s.Close()
				} else {
					time.Sleep(time.Second)
				}
				back := shared.returned.Load() - before
				// A meter has a budget.
				if want := held; held <= 0 || back <= 0 || p.Kernel == sluice.Window && before+back != want {
					t.Errorf("%v, closed %v: %d units were held, and %d given back, %d before", l, closes, held, back, before)
				}
			})
		}
	}
}

// A reset through a process ends what it has leased at once.
func TestResetHere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := plan(t, sluice.Limit{Count: 1_000, Period: time.Second})
		shared := &far{store: memory.New(), way: time.Millisecond, dice: newDice(t)}
		s := New(shared)
		defer s.Close()
		charge := [1]sluice.Charge{{Key: "k", Plan: p, Cost: 1, Consistency: sluice.Leased}}
		var r [1]sluice.Receipt
		for range 100 {
			if err := s.Take(t.Context(), charge[:], r[:]); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Millisecond)
		}
		if r[0].Origin != sluice.ByLease {
			t.Fatalf("not leased: %+v", r)
		}
		reset := [1]sluice.Charge{{Key: "k", Plan: p, Cost: sluice.All}}
		if err := s.Take(t.Context(), reset[:], r[:]); err != nil || r[0].Used != 0 {
			t.Fatalf("%v, %+v", err, r)
		}
		for range 1_000 { // the whole burst, strictly
			charge[0].Consistency = sluice.Strict
			if err := s.Take(t.Context(), charge[:], r[:]); err != nil || !r[0].Fits {
				t.Fatalf("%v, %+v", err, r)
			}
			if charge[0].Cost = 100; r[0].Used > 800*p.Unit {
				break
			}
		}
		charge[0].Consistency, charge[0].Cost = sluice.Leased, 1
		if err := s.Take(t.Context(), charge[:], r[:]); err != nil || r[0].Origin == sluice.ByLease {
			t.Errorf("after a reset: %v, %+v", err, r)
		}
	})
}

// Whoever finds the bucket nearly empty and takes all that is left, at the moment when others hold most:
// what these spend then fits, too.
func TestBurst(t *testing.T) {
	for _, l := range []sluice.Limit{
		{Count: 1_000, Period: time.Second, Burst: 250},
		{Count: 1_000, Period: time.Second, Burst: 2_000},
		{Algorithm: sluice.FixedWindow, Count: 1_000, Period: time.Second},
		{Algorithm: sluice.SlidingWindowCounter, Count: 1_000, Period: time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			p := plan(t, l)
			shared := &far{store: memory.New(), dice: newDice(t)}
			nodes := []*Store{New(shared), New(shared), New(shared)}
			var events []event
			leased, late := 0, 0
			ask := func(s *Store, c sluice.Consistency, cost int64) bool {
				var r [1]sluice.Receipt
				if err := s.Take(t.Context(), []sluice.Charge{{Key: "k", Plan: p, Cost: cost, Consistency: c}}, r[:]); err != nil {
					t.Fatal(err)
				}
				if r[0].Fits {
					events = append(events, event{r[0].Now, cost})
				}
				if r[0].Origin == sluice.ByLease && r[0].Fits {
					leased++
				}
				return r[0].Fits
			}
			for range 100 {
				gap := time.Duration(1+shared.dice.below(8)) * time.Millisecond
				for range 20 + shared.dice.below(60) {
					for _, s := range nodes {
						ask(s, sluice.Leased, 1)
					}
					time.Sleep(gap)
				}
				time.Sleep(time.Duration(shared.dice.below(100)) * time.Millisecond)
				for cost := p.Capacity; cost > 0; cost /= 2 {
					for ask(nodes[0], sluice.Strict, cost) {
					}
				}
				before := leased
				for _, s := range nodes {
					for range 20 {
						ask(s, sluice.Leased, 1)
					}
				}
				if late += leased - before; shared.dice.below(2) == 0 {
					time.Sleep(time.Duration(shared.dice.below(1000)) * time.Millisecond)
				}
			}
			for _, s := range nodes {
				s.Close()
			}
			over := replay(p, events)
			t.Logf("%v: %d by lease, %d of them behind a burst", l, leased, late)
			if over > 0 || late == 0 {
				t.Errorf("%v: over the limit by %d; %d were spent behind a burst", l, over, late)
			}
		})
	}
}
