package synced

import (
	"fmt"
	"math"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/kernel"
)

// Every is the interval at which a process exchanges counts with the others through the shared store.
const Every = 100 * time.Millisecond

// staleAfter is the maximum age of the state from which a process decides.
const staleAfter = 3 * Every

const (
	leastBursts = 2           // a burst must be at least what drains in this number of intervals
	leastWindow = time.Second // in windows of at least this length, late reports matter little
)

// Can returns nil if processes can count by the plan separately, and otherwise an error with the reason. If it returns
// an error, charges of the plan always go to the shared store.
func Can(p *sluice.Plan) error {
	if err := p.Leasable(); err != nil {
		return err
	}
	switch {
	case p.Kernel == kernel.Meter && p.Size < leastBursts*drains(p, Every):
		return fmt.Errorf("synced: the burst of %v passes within %v, and instances that exchange counts every %v would deny requests that fit: raise the burst",
			p.Limit, leastBursts*Every, Every)
	case p.Kernel == kernel.Window && p.Limit.Period < leastWindow:
		return fmt.Errorf("synced: a window of %v is too short for instances that exchange counts every %v: use at least %v",
			p.Limit.Period, Every, leastWindow)
	case widened(p, p.Most, 2) == nil:
		return fmt.Errorf("synced: the numbers of %v leave no room above the limit: use a smaller count or burst, or a shorter or rounder period", p.Limit)
	}
	return nil
}

// Excess returns the largest number of units by which a given number of instances can exceed a limit: see the
// package's documentation.
func Excess(p *sluice.Plan, instances int) int64 {
	each := p.Capacity
	if p.Kernel == kernel.Meter {
		each += (drains(p, staleAfter) + p.Unit - 1) / p.Unit
	}
	others := int64(max(0, instances-1))
	if others > 0 && each > math.MaxInt64/others {
		return math.MaxInt64
	}
	return others * each
}

// drains returns how much of a meter's level drains in the time d, rounded up.
func drains(p *sluice.Plan, d time.Duration) int64 {
	ticks := (d.Microseconds() + p.Tick - 1) / p.Tick
	return ticks * p.Drain
}

// widened returns a plan for the states of p. It has room for the given units, plus the units that the given number of
// instances can allow above the limit. So units above the limit are counted, and drain before any instance allows more.
// The plan has no more room than that: if the clock was set back, a state ahead of the clock is cut to the plan's Most,
// which should be small. If the numbers are too large to be exact, the plan has room for fewer instances. If the
// numbers are too large even for two, widened returns nil.
func widened(p *sluice.Plan, units int64, instances int) *sluice.Plan {
	for n := max(instances, 1); n > 0; n /= 2 {
		if n == 1 && instances > 1 {
			return nil
		}
		more := Excess(p, n)
		if more > math.MaxInt64-units {
			continue
		}
		// Receipts of meters have the same meaning for two plans if their ticks are equal.
		if wide, err := p.WithMost(units + more); err == nil && (p.Kernel == kernel.Window || wide.Tick == p.Tick) {
			return wide
		}
	}
	return p
}

// stateOf returns the state that a receipt of p describes.
func stateOf(p *sluice.Plan, r *sluice.Receipt) kernel.State {
	if p.Kernel != kernel.Meter {
		return kernel.State{Tick: r.Tick, Used: r.Used, Prev: r.Prev}
	}
	s := kernel.State{Tick: r.Now / p.Tick, Used: r.Used}
	if p.Tick > 1 {
		s.Prev = p.Tick
	}
	return s
}
