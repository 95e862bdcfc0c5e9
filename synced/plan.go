package synced

import (
	"fmt"
	"math"
	"time"

	"github.com/sluicehq/sluice"
)

// Every is how often a process tells the others what it has taken, and hears of them.
const Every = 100 * time.Millisecond

// staleAfter is how old what a process knows of a key may be when it decides.
const staleAfter = 3 * Every

const (
	leastBursts = 2           // a burst is at least what drains in so many rounds
	leastWindow = time.Second // in which what is told too late matters little
)

// Can returns nil where processes can count by the plan for themselves, else an error that says why
// they cannot. Charges of such a plan are passed on to the shared store, whatever they say.
func Can(p *sluice.Plan) error {
	if err := p.Leasable(); err != nil {
		return err
	}
	switch {
	case p.Kernel == sluice.Meter && p.Size < leastBursts*drains(p, Every):
		return fmt.Errorf("synced: the burst of %v passes within %v, and instances that hear of each other every %v would refuse what is free: raise the burst",
			p.Limit, leastBursts*Every, Every)
	case p.Kernel == sluice.Window && p.Limit.Period < leastWindow:
		return fmt.Errorf("synced: a window of %v is too short for instances that hear of each other every %v: use one of at least %v",
			p.Limit.Period, Every, leastWindow)
	case widened(p) == nil:
		return fmt.Errorf("synced: the numbers of %v leave no room for what is above the limit: use a smaller count or burst, or a shorter or rounder period", p.Limit)
	}
	return nil
}

// Excess returns by how many units a limit can be exceeded by so many processes, at the worst: see the
// package's documentation.
func Excess(p *sluice.Plan, instances int) int64 {
	each := p.Capacity
	if p.Kernel == sluice.Meter {
		each += (drains(p, staleAfter) + p.Unit - 1) / p.Unit
	}
	others := int64(max(0, instances-1))
	if others > 0 && each > math.MaxInt64/others {
		return math.MaxInt64
	}
	return others * each
}

// drains returns how much of a meter drains in a time, rounded up.
func drains(p *sluice.Plan, d time.Duration) int64 {
	ticks := (d.Microseconds() + p.Tick - 1) / p.Tick
	return ticks * p.Drain
}

// widened returns a plan that counts in the states of p with room for many times as much, so that what
// several processes have taken is all counted, or nil if there is none.
func widened(p *sluice.Plan) *sluice.Plan {
	for by := int64(1 << 10); by > 1; by /= 2 {
		l := p.Limit
		switch {
		case p.Capacity > math.MaxInt64/by:
			continue
		case p.Kernel == sluice.Meter:
			l.Burst = p.Capacity * by
		default:
			l.Count = p.Capacity * by
		}
		if wide, err := sluice.NewPlan(l); err == nil && wide.Fingerprint == p.Fingerprint && wide.Tick == p.Tick {
			return wide
		}
	}
	return nil
}
