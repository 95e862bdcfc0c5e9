package sluice

import (
	"fmt"
	"hash/fnv"
	"time"

	"github.com/sluicehq/sluice/kernel"
)

// Plan is a [Limit], a [Penalty], or a number of permits or of distinct values, compiled to integers. Stores count by
// its [kernel.Plan]. Plans are made by [NewPlan], [Penalty.Plan], [NewInFlight], [NewDistinct], [NewOnce] and
// [Plan.WithMost], never change after that, and may be shared.
type Plan struct {
	kernel.Plan
	Limit   Limit   // with the default Burst, or the Period of a month, filled in
	Penalty Penalty // with its defaults filled in; zero unless the plan is of a penalty
}

// NewPlan compiles a limit. It fails if the limit is invalid, or if its numbers cannot be exact in ticks of 1 µs, 1
// ms or 1 s.
func NewPlan(l Limit) (*Plan, error) {
	return compile(l, 0)
}

// NewInFlight returns a plan with a number of permits, from 1 to 65,536, that can be held at the same time. Each
// permit is identified by a number that the caller chooses: see Charge.Permit and [NewPermit]. A Cost of 1 takes
// the permit for [kernel.PermitLasts], or renews it for that time if it is held. A negative Cost gives the permit
// back, 0 peeks, and [All] frees all permits of the key.
//
// A Take may charge at most one permit for each key. If a permit is denied, RetryAfter is a second, because the
// time when a permit becomes free is unknown.
func NewInFlight(permits int64) (*Plan, error) {
	if permits < 1 || permits > kernel.MaxPermits {
		return nil, usage("sluice: %d permits in flight: must be from 1 to %d", permits, kernel.MaxPermits)
	}
	return &Plan{Plan: kernel.NewInFlight(permits)}, nil
}

// NewDistinct returns a plan that lets each key have at most Count different values within a Period. Count is from
// 1 to 1,000. Charge.Permit is a hash of the value, of 64 bits; values with the same hash count as one. Using a
// value that is already counted always fits, and keeps the value for another Period. If Count values are counted,
// another value does not fit until the least recently used one has expired. A value that does not fit is not
// remembered.
//
// A Cost of 1 uses the value, a negative Cost forgets it, 0 peeks, and [All] forgets all values of the key. A Take
// may charge at most one value for each key. The limit has no Burst, no MonthDay and no Algorithm.
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

// NewOnce returns a plan that charges a repeated request only once. To use it, add a charge of this plan to the Take:
// its Cost is 1, its Key identifies the request, and it stands before the charges of penalties. The plan has room for
// one unit within the given time. If the charge does not fit, the Take is a repeat: an earlier Take with the same Key
// has committed its charges. A repeat changes nothing, and is not an offence (see [Offends]). A full memory store
// evicts such charges early, together with keys that have used hardly any of their limit. While a shared store is
// unavailable, only the instance that allowed a request recognizes a repeat of it, and only if the charge has the
// OnError [Local].
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

// WithMost returns a copy of p with Most set to the larger of units and Capacity. Most is the largest number of
// units that a state keeps, including a debt: see [kernel.Plan]. If several plans share states, pass the largest
// Capacity of these plans, plus the debt that p allows. The copy has the Fingerprint of p. WithMost fails if the
// copy could not be exact. It always fails for penalties and for plans of [NewInFlight] and [NewDistinct].
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

// compile returns the plan of a limit. The Most of the plan is at least the given one.
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

// moneyFingerprint returns the Fingerprint of a limit in USD. base is the Fingerprint of the same numbers as a
// limit without money. The two differ because counts in one unit mean nothing in another.
func moneyFingerprint(base uint64, money int64) uint64 {
	h := fnv.New64a()
	fmt.Fprint(h, "USD ", base, money)
	return h.Sum64()
}

// longestMonth is the Period of a limit by the calendar.
const longestMonth = 31 * 24 * time.Hour

// ReportedLimit returns the number that responses report as the limit: the number of units that may pass in a
// period or, if that is larger, at once. For a limit in USD it is in micro-USD.
func (p *Plan) ReportedLimit() int64 { return p.Limit.Value(max(p.Limit.Count, p.Capacity)) }

// kernels has the kernel of each algorithm.
var kernels = [...]kernel.Kind{
	TokenBucket: kernel.Meter, LeakyBucket: kernel.Meter, GCRA: kernel.Meter,
	FixedWindow: kernel.Window, SlidingWindowCounter: kernel.Window,
	SlidingWindowLog: kernel.StampLog, SlidingWindowLogExact: kernel.ExactLog,
}

// String returns the text of the plan's [Limit], such as "100/minute burst 20", or for a plan of [NewInFlight] a
// text such as "10 in flight".
func (p *Plan) String() string {
	if p.Kernel == kernel.InFlight {
		return fmt.Sprintf("%d in flight", p.Capacity)
	}
	return p.Limit.String()
}

// AlgorithmName returns the name of the limit's algorithm, such as "token_bucket". It returns "in_flight" for a
// plan of [NewInFlight], and "distinct" for a plan of [NewDistinct].
func (p *Plan) AlgorithmName() string {
	switch p.Kernel {
	case kernel.InFlight:
		return "in_flight"
	case kernel.Distinct:
		return "distinct"
	}
	return p.Limit.Algorithm.String()
}
