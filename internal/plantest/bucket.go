package plantest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/kernel"
)

// Bucket is the state of one key under a plan of any kernel.
type Bucket struct {
	*sluice.Plan
	State kernel.State
	Log   kernel.Log
}

// Take charges cost units if they fit, and returns the decision.
func (b *Bucket) Take(now, cost int64) sluice.Decision {
	_, d := b.Receipt(now, cost)
	return d
}

// Receipt is like Take, but also returns the receipt.
func (b *Bucket) Receipt(now, cost int64) (r sluice.Receipt, d sluice.Decision) {
	if b.Kernel.Log() {
		r.Receipt = b.Log.Step(&b.Plan.Plan, now, cost)
	} else {
		b.State = b.Step(b.State, now, cost, &r.Receipt)
	}
	return r, b.Decide(cost, r)
}

// Ask returns the decision that Take would return, without changing the state.
func (b *Bucket) Ask(now, cost int64) sluice.Decision {
	var r sluice.Receipt
	if b.Kernel.Log() {
		r.Receipt = b.Log.Look(&b.Plan.Plan, now, cost)
	} else {
		b.Step(b.State, now, cost, &r.Receipt)
	}
	return b.Decide(cost, r)
}

// Empty returns when the state will be empty.
func (b *Bucket) Empty() int64 {
	if b.Kernel.Log() {
		return b.Log.EmptyAt(&b.Plan.Plan)
	}
	return b.EmptyAt(b.State)
}

// rates has limits of all sizes, with and without bursts, and with all ticks.
var rates = []sluice.Limit{
	{Count: 7, Period: time.Second},
	{Count: 7, Period: time.Second, Burst: 3},
	{Count: 3, Period: 7 * time.Microsecond, Burst: 11},
	{Count: 1, Period: time.Microsecond},
	{Count: 1, Period: time.Microsecond, Burst: 1000},
	{Count: 100, Period: time.Minute},
	{Count: 5, Period: 90 * time.Second, Burst: 1},
	{Count: 999_983, Period: time.Hour},
	{Count: 1_000_000, Period: time.Second},
	{Count: 1_000_000_007, Period: 24 * time.Hour},
	{Count: 1025, Period: 32 * time.Second}, // a half of it has a log with other ticks
	{Count: 1, Period: 30 * 24 * time.Hour},
	{Count: 1, Period: 60 * 365 * 24 * time.Hour},
	{Count: 1, Period: 100 * 365 * 24 * time.Hour},
}

// months has limits by the calendar.
var months = []sluice.Limit{
	{Count: 100, MonthDay: 1},
	{Count: 1_000_000_007, MonthDay: 15},
	{Count: 7, MonthDay: 31},
}

// Every runs a test for every algorithm, with each rate that the algorithm can count.
func Every(t *testing.T, test func(t *testing.T, p *sluice.Plan, rng *rand.Rand)) {
	for _, a := range sluice.Algorithms() {
		for i, l := range slices.Concat(rates, months) {
			l.Algorithm = a
			if a > sluice.GCRA {
				l.Burst = 0
			}
			p, err := sluice.NewPlan(l)
			if err != nil {
				continue // the algorithm cannot count this rate: see TestPlans
			}
			t.Run(fmt.Sprintf("%v %v", a, l), func(t *testing.T) {
				test(t, p, rand.New(rand.NewPCG(uint64(a), uint64(i))))
			})
		}
	}
}

// Start is the time at which histories start.
const Start = 1_700_000_000_123_457

// The times of histories are between Earliest and Latest, in the years 2001 to 2096.
const Earliest, Latest = 1_000_000_000_000_000, 4_000_000_000_000_000

// Pause returns a random time in which some units drain or expire.
func Pause(p *sluice.Plan, rng *rand.Rand) int64 {
	period := p.Limit.Period.Microseconds()
	switch rng.IntN(6) {
	case 0:
		return 0
	case 1:
		return rng.Int64N(period + 1)
	case 2:
		return p.Tick
	case 3:
		return rng.Int64N(2*period + 1)
	}
	return rng.Int64N(period/4 + 2)
}
