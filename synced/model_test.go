package synced_test

import (
	"context"
	"fmt"
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
	"github.com/sluicehq/sluice/synced"
)

// admission is an admitted charge of a process.
type admission struct {
	process int
	at      int64 // µs, of the true clock
	counted int64 // µs, by the receipt
	units   int64
}

// history contains the admitted charges of all processes for one key.
type history struct {
	mu  sync.Mutex
	all []admission
}

func (h *history) add(a admission) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all = append(h.all, a)
}

// excess replays the admitted charges by the definition of the limit. It returns the largest excess over the limit in
// units, and the largest excess over the limit plus all units that the other processes had admitted in the time unseen
// before the charge. It keeps no states, but computes with exact times, and passes over all charges for each charge.
func (h *history) excess(p *sluice.Plan, unseen time.Duration) (most, blind int64) {
	slices.SortStableFunc(h.all, func(a, b admission) int { return int(h.time(p, a) - h.time(p, b)) })
	most, blind = -1<<62, -1<<62
	level, last := int64(0), int64(0)
	for i, a := range h.all {
		at := h.time(p, a)
		var over int64 // in units, rounded up
		switch p.Kernel {
		case kernel.Meter: // in levels where a unit is the period, and a µs drains the count
			period := p.Limit.Period.Microseconds()
			level = max(0, level-(at-last)*p.Limit.Count) + a.units*period
			over, last = -((p.Limit.Burst*period - level) / period), at
			if level > p.Limit.Burst*period {
				over = (level - p.Limit.Burst*period + period - 1) / period
			}
		default:
			length := p.Limit.Period.Microseconds()
			n := at / length
			var this, before int64
			for _, b := range h.all[:i+1] {
				switch h.time(p, b) / length {
				case n:
					this += b.units
				case n - 1:
					before += b.units
				}
			}
			weight := int64(0)
			if p.Limit.Algorithm == sluice.SlidingWindowCounter {
				weight = before * ((n+1)*length - at)
			}
			over = (this*length + weight - p.Limit.Count*length) / length
		}
		others := int64(0)
		for _, b := range h.all[:i] {
			if b.process != a.process && b.at > a.at-unseen.Microseconds() {
				others += b.units
			}
		}
		most, blind = max(most, over), max(blind, over-others)
	}
	return most, blind
}

// time returns the time at which an admission counts. Its window is the one that the process used.
func (h *history) time(p *sluice.Plan, a admission) int64 {
	if p.Kernel == kernel.Window {
		return a.counted
	}
	return a.at
}

// takes makes one Take, and records it if it is admitted.
func (h *history) takes(f *fleet, process int, p *sluice.Plan, cost int64) (sluice.Receipt, error) {
	r, err := f.try(process, p, cost)
	if err == nil && r.Fits && cost > 0 {
		h.add(admission{process, time.Now().UnixMicro(), r.Now, cost})
	}
	return r, err
}

// ask makes requests to a process: a whole burst as soon as all processes know the key, and then spurts, each at a
// random rate for a random time, with pauses in between.
func (h *history) ask(f *fleet, process int, p *sluice.Plan, random *rand.Rand, until time.Time) {
	_, _ = f.try(process, p, 0)
	time.Sleep(20 * time.Millisecond)
	for range p.Capacity {
		_, _ = h.takes(f, process, p, 1)
	}
	rate := float64(p.Limit.Count) / p.Limit.Period.Seconds()
	for time.Now().Before(until) {
		gap := time.Duration(float64(time.Second) / (rate * []float64{0.2, 0.5, 1, 3, 30}[random.IntN(5)]))
		for end := time.Now().Add(time.Duration(random.Int64N(int64(2 * time.Second)))); time.Now().Before(end); {
			cost := int64(1)
			if random.IntN(4) == 0 {
				cost += random.Int64N(3)
			}
			_, _ = h.takes(f, process, p, cost)
			time.Sleep(time.Duration(random.Int64N(int64(2*gap)) + 1000))
		}
		if random.IntN(2) == 0 {
			time.Sleep(time.Duration(random.Int64N(int64(3 * time.Second))))
		}
	}
}

// modelled runs f in virtual time for some limits and numbers of processes. trip is the maximum round trip.
func modelled(t *testing.T, limits int, backing func() sluice.Store, f func(t *testing.T, fl *fleet, p *sluice.Plan, base uint64)) {
	for _, m := range []struct {
		limit string
		by    sluice.Algorithm
	}{
		{"100/second", sluice.TokenBucket}, {"30/second burst 7", sluice.GCRA}, {"600/minute burst 4", sluice.TokenBucket},
		{"40/second", sluice.FixedWindow}, {"100/7s", sluice.FixedWindow}, {"60/3s", sluice.SlidingWindowCounter},
	}[:limits] {
		for _, n := range []int{1, 2, 4} {
			t.Run(fmt.Sprintf("%s %v by %d", m.limit, m.by, n), func(t *testing.T) {
				base := seed.Of(t)
				synctest.Test(t, func(t *testing.T) {
					fl := newFleet(n, newServer(backing(), trip, rand.New(rand.NewPCG(base, uint64(n)))))
					f(t, fl, plan(t, m.limit, m.by), base<<8+uint64(n))
				})
			})
		}
	}
}

const trip = 10 * time.Millisecond

// The excess over the limit stays within the documented bound, at any rates of requests.
func TestBound(t *testing.T) {
	t.Parallel()
	modelled(t, 6, func() sluice.Store { return memory.New() }, func(t *testing.T, f *fleet, p *sluice.Plan, base uint64) {
		if err := synced.Can(p); err != nil {
			t.Fatal(err)
		}
		h := &history{}
		until := time.Now().Add(30 * time.Second)
		var all sync.WaitGroup
		for i := range f.stores {
			own := rand.New(rand.NewPCG(base, uint64(i)))
			all.Go(func() { h.ask(f, i, p, own, until) })
		}
		all.Wait()
		f.close()
		// Admitted units are reported after 100 ms, and a known level is at most 300 ms old.
		most, blind := h.excess(p, 4*synced.Every+2*trip)
		n := len(f.stores)
		if bound := synced.Excess(p, n); most > bound || blind > 0 {
			t.Errorf("%d units above the limit, want at most %d; %d more than the others have admitted unseen, want none", most, bound, blind)
		}
		if want := int64(n-1) * p.Capacity * 9 / 10; most < want { // some units have drained by then
			t.Errorf("%d above the limit, want at least the %d of the first bursts", most, want)
		}
	})
}

// If the clock of the store steps back, at any time and by any amount, the excess stays within the documented bound,
// and no wait is longer than the time in which all units drain that the instances can have admitted.
func TestClockStepsBack(t *testing.T) {
	t.Parallel()
	var clock *faultstore.Clocked
	backing := func() sluice.Store {
		clock = faultstore.NewClocked(memory.New())
		return clock
	}
	modelled(t, 3, backing, func(t *testing.T, f *fleet, p *sluice.Plan, base uint64) {
		h, n := &history{}, len(f.stores)
		// The instances may have admitted a burst, and the excess.
		wait := time.Duration(float64(p.Capacity+synced.Excess(p, n))/float64(p.Limit.Count)*float64(p.Limit.Period)) + time.Second
		until := time.Now().Add(30 * time.Second)
		var all sync.WaitGroup
		for i := range n {
			own := rand.New(rand.NewPCG(base, uint64(i)))
			all.Go(func() {
				time.Sleep(3 * time.Second) // until it knows the others
				for time.Now().Before(until) {
					r, err := h.takes(f, i, p, 1)
					if d := p.Decide(1, r); err == nil && (d.RetryAfter > wait || d.ResetAfter > wait) {
						t.Errorf("%+v: want a wait of at most %v", d, wait)
						return
					}
					time.Sleep(time.Duration(own.Int64N(int64(p.Limit.Period) * 2 / p.Limit.Count)))
				}
			})
		}
		for steps := steady(base); time.Now().Before(until); {
			time.Sleep(time.Duration(steps.Int64N(int64(6 * time.Second))))
			clock.SetBack(time.Duration(steps.Int64N(steps.Int64N(int64(24*time.Hour)) + 1)))
		}
		all.Wait()
		f.close()
		if most, _ := h.excess(p, 0); most > synced.Excess(p, n) || len(h.all) < 20 {
			t.Errorf("%d charges admitted, %d units above the limit, want at most %d", len(h.all), most, synced.Excess(p, n))
		}
	})
}

// For ten minutes, two processes have requests that cost four times their estimates. The processes exchange their
// debts, and each debt counts once, so in the long run no more than the limit passes.
func TestOwed(t *testing.T) {
	t.Parallel()
	for _, a := range []sluice.Algorithm{sluice.TokenBucket, sluice.FixedWindow, sluice.SlidingWindowCounter} {
		synctest.Test(t, func(t *testing.T) {
			const limit, estimate, real, callers, minutes = 5000, 1000, 4000, 2, 10
			p, err := plan(t, "5000/minute", a).WithMost(limit + 64*real)
			if err != nil {
				t.Fatal(err)
			}
			sv := newServer(memory.New(), 4*time.Millisecond, steady(1))
			f := newFleet(callers, sv)
			var mu sync.Mutex
			passed, began := int64(0), time.Now()
			var all sync.WaitGroup
			for i := range callers {
				all.Go(func() {
					for time.Since(began) < minutes*time.Minute {
						r, err := f.try(i, p, estimate)
						if err != nil {
							t.Error(err)
							return
						}
						if !r.Fits {
							time.Sleep(max(time.Millisecond, p.Decide(estimate, r).RetryAfter))
							continue
						}
						time.Sleep(30 * time.Millisecond)
						owe := [1]sluice.Charge{{Key: "k", Plan: p, Cost: real - estimate, Owe: true, Shadow: true, Consistency: sluice.Synced}}
						var o [1]sluice.Receipt
						if err := f.stores[i].TakeWithin(context.Background(), time.Second, owe[:], o[:]); err != nil || o[0].Cut > 0 {
							t.Errorf("%+v, %v", o[0], err)
						}
						mu.Lock()
						passed += real
						mu.Unlock()
					}
				})
			}
			all.Wait()
			f.close()
			// A window forgets its counts at its end, so the bound for each minute is the limit, an overrun of each
			// caller, and the units that the other process does not know yet.
			overrun := callers*(real-estimate) + synced.Excess(p, callers)
			most := minutes * (limit + overrun)
			if a == sluice.TokenBucket {
				most = minutes*limit + limit + overrun
			}
			if passed > most || passed < minutes*limit*3/4 {
				t.Errorf("%v: %d passed in %d minutes, want %d at most", a, passed, minutes, most)
			}
			if arrived, _ := sv.received(); a == sluice.TokenBucket && arrived != passed {
				t.Errorf("%d passed, and %d were reported", passed, arrived)
			}
		})
	}
}
