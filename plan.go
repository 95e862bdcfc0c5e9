package sluice

import (
	"fmt"
	"hash/fnv"
	"time"

	"github.com/sluicehq/sluice/kernel"
)

// Plan is a [Limit], a [Penalty] or a number of permits, compiled to integers: the [kernel.Plan] that stores count
// by. Plans are made by [NewPlan], [Penalty.Plan], [NewInFlight], [NewDistinct] and [NewOnce], are never changed after that and
// may be shared.
type Plan struct {
	kernel.Plan
	Limit   Limit   // with its Burst filled in, or the Period of a month
	Penalty Penalty // with its defaults filled in; then there is no Limit
}

// NewPlan compiles a limit. It fails where a limit has no meaning, and where no tick
// of 1 µs, 1 ms or 1 s lets its numbers be exact.
func NewPlan(l Limit) (*Plan, error) {
	return compile(l, 0)
}

// NewInFlight returns the plan of so many permits, from 1 to 65,536, that can be held at
// the same time. The caller chooses the number of each permit that it takes
// (Charge.Permit): a permit taken again lasts for another [kernel.PermitLasts], and one given back is free
// at once. Taking a permit costs 1, and giving it back costs less than 0; cost 0 looks, and [All]
// frees all permits.
//
// A Take takes at most one permit of a key. It is not known when a permit will become free: while all
// are held, RetryAfter is a second.
func NewInFlight(permits int64) (*Plan, error) {
	if permits < 1 || permits > kernel.MaxPermits {
		return nil, usage("sluice: %d permits in flight: must be from 1 to %d", permits, kernel.MaxPermits)
	}
	return &Plan{Plan: kernel.NewInFlight(permits)}, nil
}

// NewDistinct returns the plan of at most Count different values within a Period, for each key: from 1 to 1,000.
// Charge.Permit is a hash of the value, of 64 bits. A value that is used again costs nothing, and counts for
// another Period. A new one beyond Count is refused until the least recently used has expired. A refused value is
// not remembered. Values with the same hash count as one.
//
// A use costs 1, a negative cost forgets the value, 0 looks, and [All] forgets all values. A Take has at most
// one value of a key. The limit has no Burst, no MonthDay and no Algorithm.
func NewDistinct(l Limit) (*Plan, error) {
	if l.Burst != 0 || l.MonthDay != 0 || l.Algorithm != TokenBucket {
		return nil, usage("sluice: distinct values %v: must be a count and a period alone, as in \"5/hour\"", l)
	}
	if l.Count < 1 || l.Count > kernel.MaxDistinct {
		return nil, usage("sluice: %d distinct values: must be from 1 to %d", l.Count, kernel.MaxDistinct)
	}
	p, err := kernel.NewDistinct(l.Count, l.Period.Microseconds())
	if err != nil {
		return nil, &usageError{fmt.Errorf("sluice: distinct values %v: %w", l, err)}
	}
	return &Plan{Plan: p, Limit: l}, nil
}

// NewOnce returns the plan of a charge that makes a Take happen only once within a time: it has room for one unit,
// and then for none until that time is over. The charge costs 1, under a key of its own that identifies the
// request, and comes before those of penalties. It is committed together with the other charges of its Take, so if
// it does not fit, an earlier Take has committed them: this one changes nothing, and is no offence ([Offends]). A
// store that runs out of room evicts it before any limit. While a shared store is unavailable, a repeat is known
// only to the instance that let the first one through.
func NewOnce(within time.Duration) (*Plan, error) {
	p, err := NewPlan(Limit{Count: 1, Period: within})
	if err != nil {
		return nil, &usageError{fmt.Errorf("sluice: once within %v: %w", within, err)}
	}
	h := fnv.New64a()
	fmt.Fprint(h, "once ", within)
	p.Once, p.Fingerprint = true, h.Sum64()
	return p, nil
}

// WithMost returns a copy of p whose states may hold up to that many units, and at least Capacity: see
// Most in [kernel.Plan]. Where several plans share states, pass the largest Capacity among them, plus the debt
// that the plan allows. The copy has the Fingerprint of p. WithMost fails if the copy could not be
// exact, for penalties, and for plans of [NewInFlight] and [NewDistinct].
func (p *Plan) WithMost(units int64) (*Plan, error) {
	if p.Kernel == kernel.Lock || p.Kernel.Permits() {
		return nil, usage("sluice: WithMost of a penalty, of permits in flight or of distinct values: only a limit by rate can hold more than it lets pass")
	}
	q, err := compile(p.Limit, units)
	if err != nil {
		return nil, &usageError{fmt.Errorf("sluice: states of up to %d units: %w", units, err)}
	}
	q.Once, q.Fingerprint, q.Fixed = p.Once, p.Fingerprint, true
	return q, nil
}

// compile returns the plan of a limit with states that may hold at least most units.
func compile(l Limit, most int64) (*Plan, error) {
	if err := l.check(); err != nil {
		return nil, fmt.Errorf("limit %v: %w", l, err)
	}
	if l.Algorithm.bursts() {
		l.Burst = l.burst()
	}
	if l.MonthDay > 0 {
		l.Period = longestMonth
	}
	p, err := kernel.New(kernel.Spec{
		Kernel: kernels[l.Algorithm], Count: l.Count, Period: l.Period.Microseconds(), Burst: l.Burst, Most: most,
		MonthDay: l.MonthDay, Sliding: l.Algorithm == SlidingWindowCounter, Queue: l.Algorithm == LeakyBucket,
	})
	if err != nil {
		return nil, fmt.Errorf("limit %v: %w", l, err)
	}
	if l.Money > 0 {
		p.Fingerprint = moneyFingerprint(p.Fingerprint, l.Money)
	}
	return &Plan{Plan: p, Limit: l}, nil
}

// moneyFingerprint returns the Fingerprint of a limit in USD from that of the same numbers as a limit of no money:
// counts in one unit mean nothing in another.
func moneyFingerprint(of uint64, money int64) uint64 {
	h := fnv.New64a()
	fmt.Fprint(h, "USD ", of, money)
	return h.Sum64()
}

// longestMonth is the Period of a limit by the calendar.
const longestMonth = 31 * 24 * time.Hour

// ReportedLimit returns the number that responses report as the limit: how many units may pass in a period, or at
// once if those are more. It is in micro-USD for a limit in USD.
func (p *Plan) ReportedLimit() int64 { return p.Limit.Value(max(p.Limit.Count, p.Capacity)) }

// kernels has the kernel of each algorithm.
var kernels = [...]kernel.Kind{
	TokenBucket: kernel.Meter, LeakyBucket: kernel.Meter, GCRA: kernel.Meter,
	FixedWindow: kernel.Window, SlidingWindowCounter: kernel.Window,
	SlidingWindowLog: kernel.StampLog, SlidingWindowLogExact: kernel.ExactLog,
}

// String returns what the plan allows, as people write it: the text of its [Limit], such as "100/minute burst 20",
// or "10 in flight" for a plan of [NewInFlight].
func (p *Plan) String() string {
	if p.Kernel == kernel.InFlight {
		return fmt.Sprintf("%d in flight", p.Capacity)
	}
	return p.Limit.String()
}

// AlgorithmName returns the name of the limit's algorithm, such as "token_bucket". It is "in_flight"
// for a plan of [NewInFlight], and "distinct" for one of [NewDistinct].
func (p *Plan) AlgorithmName() string {
	switch p.Kernel {
	case kernel.InFlight:
		return "in_flight"
	case kernel.Distinct:
		return "distinct"
	}
	return p.Limit.Algorithm.String()
}
