package lease

import (
	"math"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/kernel"
)

// Horizon is the longest time for which a reserved unit can be kept, by the server's clock.
const Horizon = 250 * time.Millisecond

// grant has the units that one Take has reserved, as its receipt shows them. Units are numbered from 0 in the order
// in which they are spent. Each unit can be spent up to a certain time, which is never earlier than that of the
// previous unit. Times are in microseconds, by the server's clock.
type grant struct {
	plan    *sluice.Plan
	now     int64 // when the units were reserved
	n       int64 // the number of units
	beneath int64 // for a meter, the level beneath the first unit if other processes give back all that they can
	end     int64 // no unit can be spent after this time
	deep    bool  // all units can be spent until end
}

// newGrant returns the grant of a receipt for n units. The grant is empty if the server's clock has stepped back to
// before the window of the state. The parameter others is the largest number of units that all processes together
// can give back within [Horizon].
func newGrant(p *sluice.Plan, n, others int64, r *sluice.Receipt) grant {
	g := grant{plan: p, now: r.Now, n: n, end: r.Now + Horizon.Microseconds(), deep: true}
	if p.Kernel == kernel.Meter {
		g.beneath = r.Used - (n+others)*p.Unit
		g.deep = g.until(0) == g.end
		return g
	}
	number, _, end := p.WindowAt(r.Now)
	if number != r.Tick {
		g.n = 0
	}
	g.end = min(g.end, end-1)
	return g
}

// first returns the number of the first unit that can be spent at a time, or g.n if none can. The time must not be
// before the reservation.
func (g *grant) first(at int64) int64 {
	switch {
	case at > g.end:
		return g.n
	case g.deep:
		return 0
	}
	p := g.plan
	drained := (at/p.Tick-g.now/p.Tick)*p.Drain - g.beneath
	if drained <= 0 {
		return 0
	}
	return min(g.n, (drained+p.Unit-1)/p.Unit)
}

// until returns the time up to which unit i can be given back. A unit of a meter can be spent up to the same time;
// a unit of a window can be spent only until g.end.
func (g *grant) until(i int64) int64 {
	p := g.plan
	level := g.beneath + i*p.Unit
	switch {
	case p.Kernel != kernel.Meter:
		_, _, end := p.WindowAt(g.now)
		return end - 1
	case level < 0:
		return g.now - 1
	}
	return min(g.end, (g.now/p.Tick+level/p.Drain+1)*p.Tick-1)
}

// horizon returns how far ahead units of a plan are reserved, in microseconds, or 0 if reserving is not worth it.
// The horizon is at most a quarter of the time in which a full bucket drains, so that the level beneath the units,
// which must not drain, is a small part of the burst.
func horizon(p *sluice.Plan) int64 {
	if p.Leasable() != nil {
		return 0
	}
	h, perHorizon := Horizon.Microseconds(), int64(0)
	if p.Kernel == kernel.Meter {
		h = min(h, p.Size/p.Drain*p.Tick/4)
		perHorizon = h / p.Tick * p.Drain / p.Unit
	} else {
		span := p.Span * p.Tick
		if span < h {
			return 0
		}
		perHorizon = int64(float64(p.Capacity) * float64(h) / float64(span))
	}
	if h < shortest || perHorizon < fewest {
		return 0
	}
	return h
}

const (
	shortest = 2_000 // µs: a shorter horizon is not worth it
	fewest   = 4     // units: a horizon in which fewer units pass is not worth it
)

// budget returns the plan that all processes charge when they give back units, or nil if they can give back any
// number of units. The plan's count is a sixteenth of the units that pass in a horizon h. Its period is at least as
// long as a unit can be kept, and differs from the period of any other limit.
func budget(p *sluice.Plan, h int64) *sluice.Plan {
	if p.Kernel != kernel.Meter {
		return nil
	}
	n := max(1, largest(p, h)/4)
	b, err := sluice.NewPlan(sluice.Limit{Algorithm: sluice.GCRA, Count: n, Period: Horizon + 7*time.Microsecond, Burst: n})
	if err != nil {
		return nil
	}
	return b
}

// largest returns the largest cost that can be taken from a lease. A larger charge goes to the store.
func largest(p *sluice.Plan, h int64) int64 {
	if p.Kernel == kernel.Meter {
		return max(1, h/p.Tick*p.Drain/p.Unit/4)
	}
	return max(1, int64(float64(p.Capacity)*float64(h)/float64(p.Span*p.Tick))/4)
}

// refused returns the receipt of a charge that does not fit now. Its state is chosen so that the wait is the given
// one, in microseconds. But the wait for a fixed window is at least the rest of the window, and the wait for a
// sliding window is at most the rest of the window.
func refused(p *sluice.Plan, cost, now, wait int64) sluice.Receipt {
	r := sluice.Receipt{Receipt: kernel.Receipt{Now: now}, Origin: sluice.ByLease}
	if p.Kernel == kernel.Meter {
		ticks := (now+wait+p.Tick-1)/p.Tick - now/p.Tick
		r.Used = p.Size - cost*p.Unit + max(1, ticks)*p.Drain
		return r
	}
	number, _, end := p.WindowAt(now)
	r.Tick, r.Used = number, p.Capacity
	if rest := (end - now - wait) / p.Tick; p.Limit.Algorithm == sluice.SlidingWindowCounter && rest > 0 && cost < p.Capacity {
		// Prev is the count of the previous window at which the cost fits when rest ticks of the current window
		// remain.
		room := (p.Capacity - cost) * p.Span
		r.Used, r.Prev = 0, (room+rest-1)/rest
	}
	return r
}

// admitted writes the receipt of a charge that was spent at the time now. After the charge, the given number of units
// remains in this process. If it is 0, but the store probably has another unit, the receipt shows one remaining unit.
func (g *grant) admitted(r *sluice.Receipt, now, remaining, level int64) {
	p := g.plan
	*r = sluice.Receipt{Receipt: kernel.Receipt{Now: now, Fits: true}, Origin: sluice.ByLease}
	remaining = min(remaining, p.Capacity)
	if p.Kernel == kernel.Meter {
		if remaining > 0 {
			r.Used = p.Size - remaining*p.Unit
			return
		}
		r.Used = max(level-(now/p.Tick-g.now/p.Tick)*p.Drain, p.Size-p.Unit)
		return
	}
	if remaining == 0 && level < p.Capacity {
		remaining = 1
	}
	r.Tick, _, _ = p.WindowAt(now)
	r.Used = p.Capacity - remaining
}

// drained returns the level of a meter at the time now, if it had the given level at the time since, and no units
// were taken in between.
func drained(p *sluice.Plan, level, since, now int64) int64 {
	ticks := max(0, now/p.Tick-since/p.Tick)
	if ticks > math.MaxInt64/2/p.Drain {
		return 0
	}
	return max(0, level-ticks*p.Drain)
}
