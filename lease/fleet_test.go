package lease

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/faultstore"
	"github.com/sluicehq/sluice/kernel"
	"github.com/sluicehq/sluice/memory"
)

// run describes a fleet under load: its processes together make perSecond requests a second, at random times.
type run struct {
	plan      *sluice.Plan
	nodes     int
	perSecond float64
	lasts     time.Duration
	way       time.Duration
	strict    int // number of nodes with strict charges
	cost      func() int64
	each      func(nodes []*Store)       // called after each 1,000 requests
	lost      func() bool                // reports whether the next answer is lost
	strikes   func(sv *faultstore.Store) // runs during the load
	wait      time.Duration              // the longest wait of a Take
}

type outcome struct {
	asked, failed, admitted, over, calls, exact int64
	byLease                                     int64
}

// do runs the fleet, in a synctest bubble. It returns counts, and the admitted charges. The field exact of the counts
// is the number of units that a single limiter would have admitted.
func (c run) do(t *testing.T) (o outcome, events []event) {
	chance := newDice(t)
	shared := faultstore.New(memory.New())
	shared.Set(faultstore.Far(chance.way(c.way), c.lost))
	nodes := make([]*Store, c.nodes)
	for i := range nodes {
		nodes[i] = New(shared)
	}
	var mu sync.Mutex
	var state kernel.State
	var all sync.WaitGroup
	if c.strikes != nil {
		all.Go(func() { c.strikes(shared) })
	}
	end := time.Now().Add(c.lasts)
	ask := func(node *Store, how sluice.Consistency, cost int64) {
		charge := [1]sluice.Charge{{Key: "hot", Plan: c.plan, Cost: cost, Consistency: how}}
		var r [1]sluice.Receipt
		err := node.TakeWithin(t.Context(), c.wait, charge[:], r[:])
		mu.Lock()
		defer mu.Unlock()
		if o.asked++; err != nil {
			if o.failed++; c.lost == nil && c.strikes == nil {
				t.Error(err)
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
			t.Errorf("a denial: %+v", d)
		}
	}
	next := time.Now()
	for turn := 0; time.Now().Before(end); turn++ {
		next = next.Add(chance.pause(c.perSecond))
		time.Sleep(time.Until(next))
		cost := int64(1)
		if c.cost != nil {
			cost = c.cost()
		}
		var r sluice.Receipt
		if state = c.plan.Step(state, time.Now().UnixMicro(), cost, &r.Receipt); r.Fits {
			o.exact += cost
		}
		node, how := int(chance.below(int64(len(nodes)))), sluice.Leased
		if node < c.strict {
			how = sluice.Strict
		}
		asked := nodes[node]
		all.Go(func() { ask(asked, how, cost) })
		if c.each != nil && turn%1000 == 999 {
			c.each(nodes)
		}
	}
	all.Wait()
	for _, n := range nodes {
		n.Close()
	}
	o.calls, o.over = shared.Calls.Load(), replay(c.plan, events)
	time.Sleep(2 * keptFor * time.Microsecond) // until then, the "killed" stores check their leases
	return o, events
}

func second(n int64) sluice.Limit { return sluice.Limit{Count: n, Period: time.Second} }

func window(n int64) sluice.Limit {
	return sluice.Limit{Algorithm: sluice.FixedWindow, Count: n, Period: time.Second}
}

func sliding(n int64) sluice.Limit {
	return sluice.Limit{Algorithm: sluice.SlidingWindowCounter, Count: n, Period: time.Second}
}

func burst(n, burst int64) sluice.Limit {
	return sluice.Limit{Count: n, Period: time.Second, Burst: burst}
}

// At any load of any number of processes, a single limiter would admit everything that they admit. In total, they admit
// hardly less than it would have, usually with a fraction of the calls.
func TestFleet(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name         string
		limit        sluice.Limit
		nodes        int
		perSecond    float64
		lasts        time.Duration
		calls, under float64 // at most: calls a decision; fraction of the exact limiter's units
	}{
		{"at the limit", second(10_000), 10, 10_000, 3 * time.Second, 0.02, 0.01},
		{"at half of it", second(10_000), 10, 5_000, 4 * time.Second, 0.03, 0},
		{"at four times", second(4_000), 10, 16_000, 3 * time.Second, 0.03, 0.04},
		{"alone", second(10_000), 1, 10_000, 3 * time.Second, 0.01, 0.01},
		{"many, cold", second(1_000), 100, 2_000, 6 * time.Second, 1, 0.05},
		{"many, for a short time", burst(10_000, 2_000), 300, 10_000, 3 * time.Second, 1.1, 0.01},
		{"window", window(5_000), 4, 6_000, 3 * time.Second, 0.05, 0.01},
		{"sliding", sliding(5_000), 4, 6_000, 3 * time.Second, 0.15, 0.03},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := run{plan: plan(t, c.limit), nodes: c.nodes, perSecond: c.perSecond, lasts: c.lasts, way: 300 * time.Microsecond, wait: time.Second}
				o, _ := r.do(t)
				if o.over > 0 {
					t.Errorf("over the limit by %d", o.over)
				}
				if got := float64(o.calls) / float64(o.asked); got > c.calls {
					t.Errorf("%.4f calls a decision, want at most %.4f", got, c.calls)
				}
				if under := 1 - float64(o.admitted)/float64(o.exact); under > c.under {
					t.Errorf("a fraction of %.4f less than the exact limiter admits, want at most %.4f", under, c.under)
				}
			})
		})
	}
}

// Nothing is admitted above the limit, even if answers are lost, processes stop and start, some processes have strict
// charges, and costs differ.
func TestFleetFaults(t *testing.T) {
	t.Parallel()
	for _, l := range []sluice.Limit{burst(2_000, 300), second(1_000), window(1_000), sliding(1_000)} {
		t.Run(l.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newDice(t)
				o, _ := run{
					plan: plan(t, l), nodes: 6, strict: 2, perSecond: 1_500, lasts: 4 * time.Second, way: 2 * time.Millisecond, wait: time.Second,
					lost: func() bool { return d.below(20) == 0 },
					cost: func() int64 { return 1 + d.below(3) },
					each: func(nodes []*Store) {
						n := 2 + d.below(4)
						if d.below(2) == 0 {
							nodes[n].Close()
						} // otherwise it is killed
						nodes[n] = New(nodes[n].shared)
					},
				}.do(t)
				if o.over > 0 {
					t.Errorf("over the limit by %d", o.over)
				}
				if o.byLease < o.asked/4 || o.admitted < o.exact*8/10 {
					t.Errorf("too little was leased, or admitted: %+v", o)
				}
			})
		})
	}
}

// While the server is frozen, and afterwards, nothing is admitted above the limit. A restarted server has lost its
// counts, with or without leases. Units that were leased before the restart are spent within the horizon, and after
// that the limit is exact again.
func TestFleetOutage(t *testing.T) {
	t.Parallel()
	for _, forgets := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var up int64
			c := run{plan: plan(t, burst(3_000, 1_000)), nodes: 3, perSecond: 4_000, lasts: 2500 * time.Millisecond, wait: 100 * time.Millisecond}
			c.strikes = func(sv *faultstore.Store) {
				time.Sleep(600 * time.Millisecond)
				sv.Set(faultstore.Frozen)
				time.Sleep(700 * time.Millisecond)
				if forgets {
					sv.Restart(memory.New())
				}
				sv.Set(nil)
				up = time.Now().UnixMicro()
			}
			o, events := c.do(t)
			if o.failed == 0 || o.byLease < o.asked/2 {
				t.Errorf("premise: %+v", o)
			}
			late := slices.DeleteFunc(slices.Clone(events), func(e event) bool { return e.at <= up+Horizon.Microseconds() })
			if len(late) < 500 {
				t.Errorf("restarted %v: only %d units were admitted after the horizon", forgets, len(late))
			}
			if !forgets {
				if o.over > 0 {
					t.Errorf("over the limit by %d", o.over)
				}
				return
			}
			early := slices.DeleteFunc(events, func(e event) bool { return e.at >= up })
			if before, since := replay(c.plan, early), replay(c.plan, late); before > 0 || since > 0 {
				t.Errorf("over the limit by %d before the restart, and by %d after the horizon that follows it", before, since)
			}
		})
	}
}
