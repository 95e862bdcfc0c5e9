package sluice

import (
	"fmt"
	"hash/fnv"
	"math/bits"
	"time"
)

// Kernel is the piece of arithmetic that a [Plan] runs on. The logs are one kernel that
// keeps its units in three ways. Scripts of shared stores have the same numbers.
type Kernel uint8

const (
	// Meter keeps a level that drains with time: token bucket, GCRA, leaky bucket.
	Meter Kernel = iota
	// Window keeps the counts of this window and the previous one.
	Window
	// StampLog keeps when each unit of the last period was taken: see [Log].
	StampLog
	// CountLog keeps how many units were taken in each tick of the last period.
	CountLog
	// ExactLog is a StampLog of microseconds.
	ExactLog
	// Lock keeps until when a key is refused that has exceeded its limits: see [Penalty].
	Lock
	// InFlight keeps which requests are under way: see [NewInFlight].
	InFlight
)

// Log reports whether the state of the kernel is a [Log].
func (k Kernel) Log() bool { return k >= StampLog && k <= ExactLog }

// MaxLogCount is the largest Count of a [SlidingWindowLogExact]. For more, use
// [SlidingWindowLog].
const MaxLogCount = 1 << 20

// FineLogCount is the largest Count for which a [SlidingWindowLog] remembers each unit, which takes
// 2 KiB for a key. The larger a limit, the less it matters that times are coarser, and the more
// memory and time it would take to remember them. A limit that is changed from one side of it to
// the other starts with an empty log.
const FineLogCount = 1 << 10

const (
	fineParts   = 1 << 15 // of a Period, so that two bytes hold a time
	coarseParts = 32
	maxCoarse   = 1<<32 - 1 // what four bytes count
)

// Every quantity of a plan stays below maxExact, so that their sums and differences
// stay below 2^53 and Lua's numbers hold them as exactly as int64 does.
const maxExact = 1 << 51

// maxLevel is the largest level of a meter that a plan can express. A higher one was left by a plan
// with longer ticks.
const maxLevel = 1 << 52

// Plan is a [Limit] compiled to integers. It says what any implementation needs to
// reproduce a decision, in ticks of Tick microseconds. Plans are made by [NewPlan],
// [Penalty.Plan] and [NewInFlight], are never changed afterwards and may be shared.
type Plan struct {
	Limit  Limit // with its Burst filled in, or the Period of a month
	Kernel Kernel
	// Tick is the unit of time in microseconds: 1, or 1,000 or 1,000,000 where the
	// numbers would not be exact otherwise, or of a [SlidingWindowLog] the part of its
	// Period that it tells apart, rounded up. A tick counts from its beginning.
	Tick int64
	// Unit is what a unit adds to a meter, Drain what a tick takes away, Size what it
	// holds: Period/g, Count/g and Burst·Unit with g = gcd(Count, Period in ticks).
	Unit, Drain, Size int64
	// Span is the length of a window in ticks, and how long a place in flight lasts. Of a log it
	// is how many ticks after the one in which a unit was taken it no longer counts: a Period
	// after the end of its tick. It is 1 where windows are months of the calendar, which
	// [Plan.WindowAt] tells apart.
	Span int64
	// Capacity is the most units that can pass at once: Burst of a meter, else Count, and how many
	// places there are.
	Capacity int64
	// Most is the most units that a state of the plan keeps: the level of a meter, the count of a
	// window or a log. NewPlan makes it Capacity. [Plan.WithMost] makes it more, for plans that share
	// states with others of a larger Capacity, and for costs that are due in any case ([Charge.Owe]).
	// A meter's level above Most means that the clock has stepped back.
	Most int64
	// Fixed says that [Plan.WithMost] has set Most, so that stores do not raise it: see [Plan.Raised].
	Fixed bool
	// Fingerprint tells apart the plans whose states mean different things. A store
	// keeps states of different fingerprints apart even under one key. Meters of one rate share a
	// fingerprint, and so do fixed windows, sliding counters and exact logs of one Period each, and
	// a [SlidingWindowLog] of one Period as long as its Count stays on one side of [FineLogCount].
	// So a change of Burst, of Count of a window or log, of Tick or Most keeps what was counted. A
	// SlidingWindowLog whose Count crosses FineLogCount starts empty.
	Fingerprint uint64
	// Penalty is that of a [Lock], with its defaults filled in; a Lock has no Limit. The states of
	// all locks mean the same.
	Penalty Penalty
	// Once says that the plan is one of [NewOnce].
	Once bool

	// most is the level of a meter that holds Most, and full the ticks in which it drains. If
	// Raised has made Most too large to be exact, most is maxLevel and vague is true: then a level
	// above most does not mean that the clock has stepped back.
	most, full int64
	vague      bool
	// rate is that of a meter in ticks of a microsecond. A level of 1 drains in part/rate.drain
	// microseconds.
	rate rate
	part int64
}

// rate holds the Unit and the Drain of a meter in ticks of a microsecond.
type rate struct{ unit, drain int64 }

// NewPlan compiles a limit. It fails where a limit has no meaning, and where no tick
// of 1 µs, 1 ms or 1 s lets its numbers be exact.
func NewPlan(l Limit) (*Plan, error) {
	return compile(l, 0)
}

// WithMost returns a copy of p whose states may hold up to that many units, and at least Capacity: see
// [Plan.Most]. Where several plans share states, pass the largest Capacity among them, plus the debt
// that the plan allows. The copy has the Fingerprint of p. WithMost fails if the copy could not be
// exact, for penalties, and for plans of [NewInFlight].
func (p *Plan) WithMost(units int64) (*Plan, error) {
	if p.Kernel == Lock || p.Kernel == InFlight {
		return nil, usage("sluice: WithMost of a penalty or of places in flight: only a limit by rate can hold more than it lets pass")
	}
	q, err := compile(p.Limit, units)
	if err != nil {
		return nil, &usageError{fmt.Errorf("sluice: states of up to %d units: %w", units, err)}
	}
	q.Once, q.Fingerprint, q.Fixed = p.Once, p.Fingerprint, true
	return q, nil
}

// Raised returns p, or, if that is more, a copy whose states may hold up to so many units. It is
// for stores: the states of a meter must not be cut to the Most of p while a plan with a larger one
// shares them. So a store raises each plan whose Most is not Fixed to the largest of that Fingerprint
// that it has been charged with. Unlike [Plan.WithMost], Raised keeps the Tick, and so the meaning of
// a receipt's Used.
//
// A store knows only the plans that its own process has charged. Where processes share a server, keys and
// a rate, and differ in their bursts, give all plans the largest one by WithMost. Otherwise a process that
// has only met a small burst cuts what a large one has taken, as if the clock had stepped back.
func (p *Plan) Raised(units int64) *Plan {
	if p.Kernel != Meter || p.Fixed || units <= p.Most {
		return p
	}
	q := *p
	q.Most = units
	q.setMost()
	return &q
}

// setMost sets what follows from Most, and reports whether that is exact.
func (p *Plan) setMost() (exact bool) {
	if p.Kernel != Meter {
		return true
	}
	if p.most, exact = product(p.Most, p.Unit); !exact {
		p.most, p.vague = maxLevel, true
	}
	p.full = ceilDiv(p.most, p.Drain)
	return exact
}

// compile returns the plan of a limit whose states may hold at least most units.
func compile(l Limit, most int64) (p *Plan, err error) {
	if err := l.check(); err != nil {
		return nil, fmt.Errorf("limit %v: %w", l, err)
	}
	l.Burst = l.defaultBurst()
	if l.MonthDay > 0 {
		l.Period = longestMonth
	}
	for _, tick := range []time.Duration{time.Microsecond, time.Millisecond, time.Second} {
		if l.Period%tick != 0 {
			break
		}
		if p, err = newPlan(l, tick, most); err == nil {
			return p, nil
		}
	}
	return nil, fmt.Errorf("limit %v: %w", l, err)
}

func newPlan(l Limit, tick time.Duration, most int64) (*Plan, error) {
	p := &Plan{Limit: l, Tick: int64(tick / time.Microsecond), Capacity: l.Count}
	period := int64(l.Period / tick)
	exact := true
	switch l.Algorithm {
	case TokenBucket, LeakyBucket, GCRA:
		g := gcd(l.Count, period)
		p.Kernel, p.Unit, p.Drain, p.Capacity = Meter, period/g, l.Count/g, l.Burst
		exact = p.setRate()
		p.Size, _ = product(p.Capacity, p.Unit)
	case FixedWindow, SlidingWindowCounter:
		p.Kernel, p.Span = Window, period
		if p.monthly() {
			p.Span = 1
		}
		_, exact = product(max(p.Capacity, most), p.Span)
	case SlidingWindowLog:
		if l.Count > maxCoarse {
			return nil, fmt.Errorf("a log counts at most %d: use sliding_window_counter", int64(maxCoarse))
		}
		p.Tick = ceilDiv(l.Period.Microseconds(), logParts(l.Count))
		p.Kernel, p.Span = StampLog, p.logSpan()
		if p.Span <= maxCounts {
			p.Kernel = CountLog
		}
	case SlidingWindowLogExact:
		if l.Count > MaxLogCount {
			return nil, fmt.Errorf("an exact log of more than %d units is not kept: use sliding_window_log", MaxLogCount)
		}
		p.Kernel, p.Span = ExactLog, p.logSpan()
		exact = p.Span <= maxExact
	}
	p.Most = max(p.Capacity, most)
	if longest := p.longestLog(); p.Kernel.Log() && p.Most > longest {
		return nil, fmt.Errorf("such a log keeps at most %d units", longest)
	}
	exact = p.setMost() && exact
	if _, ok := product(p.full, p.Tick); exact && !ok {
		what := "a burst of"
		if p.Most > p.Capacity {
			what = "a level of"
		}
		return nil, fmt.Errorf("%s %d takes more than 70 years to drain: lower it, or shorten the period", what, p.Most)
	}
	if !exact {
		return nil, fmt.Errorf("the numbers are too large to be counted exactly: use a smaller count or burst, or a shorter or rounder period")
	}
	p.Fingerprint = p.fingerprint()
	return p, nil
}

// setRate sets the rate of a meter, and reports whether its levels convert exactly from and to
// microseconds.
func (p *Plan) setRate() (exact bool) {
	period := p.Limit.Period.Microseconds()
	g := gcd(p.Limit.Count, period)
	p.rate = rate{period / g, p.Limit.Count / g}
	p.part = gcd(p.Tick, p.rate.unit)
	_, exact = product(p.Tick, p.rate.drain)
	return exact
}

// longestLog returns the largest Most of a log.
func (p *Plan) longestLog() int64 {
	switch p.Kernel {
	case StampLog:
		return 2 * FineLogCount
	case ExactLog:
		return 2 * MaxLogCount
	}
	return maxCoarse
}

// logParts returns the number of parts into which a [SlidingWindowLog] divides its period.
func logParts(count int64) int64 {
	if count > FineLogCount {
		return coarseParts
	}
	return fineParts
}

// logSpan returns the least span in which a unit that was taken in the last microsecond of
// its tick still counts for a period.
func (p *Plan) logSpan() int64 {
	return ceilDiv(p.Limit.Period.Microseconds()-1, p.Tick) + 1
}

// defaultBurst is burst for the algorithms that have one, else 0.
func (l Limit) defaultBurst() int64 {
	if l.Algorithm.bursts() {
		return l.burst()
	}
	return 0
}

func (p *Plan) fingerprint() uint64 {
	h := fnv.New64a()
	if p.monthly() {
		fmt.Fprint(h, "month ", p.Limit.MonthDay)
		return h.Sum64()
	}
	kernel := min(p.Kernel, StampLog) // of logs the span tells the rest
	tick, span, unit := p.Tick, p.Span, p.rate
	if kernel < StampLog { // which are as in ticks of a microsecond
		tick, span = 1, p.Span*p.Tick
	}
	fmt.Fprint(h, kernel, tick, unit.unit, unit.drain, span, p.sliding() || p.Kernel == ExactLog)
	return h.Sum64()
}

func (p *Plan) sliding() bool { return p.Limit.Algorithm == SlidingWindowCounter }

// State is what a store keeps for one key of a [Meter], [Window] or [Lock] plan. The zero
// State is the empty one, and is not worth keeping.
type State struct {
	// Tick is the tick of a meter's level, the number of this window since the epoch, or the
	// end of a penalty.
	Tick int64
	// Used is the level of a meter, the count of this window, or the number of penalties in a row.
	Used int64
	// Prev is the count of the window before, or when penalties are forgotten. Of a meter it is the
	// Tick of the plan that made the state, or 0 for 1: plans of another Tick convert it.
	Prev int64
}

// Step is the arithmetic of a Meter, Window or Lock plan: it asks for cost units at now, in
// microseconds since the Unix epoch, writes the receipt to r, and returns the state to
// keep. Cost 0 peeks and always fits; a negative cost gives back, never below empty.
//
// A cost that does not fit leaves s as it is, with one exception: a clock that has
// stepped back further than the plan's states can hold (Most) moves the state along with it.
func (p *Plan) Step(s State, now, cost int64, r *Receipt) State {
	*r = Receipt{}
	switch p.Kernel {
	case Meter:
		return p.stepMeter(s, now, cost, r)
	case Lock:
		return p.stepLock(s, now, cost, r)
	}
	s = p.stepWindow(s, p.windowTick(now), cost, r)
	r.Now = now
	return s
}

// Owe is [Plan.Step] for a cost that is due in any case ([Charge.Owe]). If it does not fit, r says
// so, but the state holds it all the same, up to Most.
func (p *Plan) Owe(s State, now, cost int64, r *Receipt) State {
	s = p.Step(s, now, cost, r)
	if r.Fits || cost <= 0 || p.Kernel == Lock {
		return s
	}
	before, room := r.Used, p.Most-r.Used
	if p.Kernel == Meter {
		room = div(p.most-before, p.Unit)
	}
	landed := min(cost, max(0, room))
	r.Cut = cost - landed
	if r.Used += p.Level(landed); p.Kernel == Meter && r.Cut > 0 {
		r.Used = p.most // and a part of a unit more
	}
	switch {
	case r.Used == before:
		return s
	case p.Kernel == Meter:
		return State{Tick: p.ticks(now), Used: r.Used, Prev: p.stateTick()}
	}
	return r.window()
}

// EmptyAt returns when s equals the empty state, in microseconds since the epoch, so that
// a store may forget it. It is the expiry of a key.
func (p *Plan) EmptyAt(s State) int64 {
	switch {
	case s.Used == 0 && s.Prev == 0:
		return 0
	case p.Kernel == Meter:
		s = p.converted(s)
		return (s.Tick + ceilDiv(s.Used, p.Drain)) * p.Tick
	case p.Kernel == Lock:
		return s.Prev
	case p.monthly():
		return p.monthEnd(s.Tick)
	case s.Used > 0 && p.sliding():
		return (s.Tick + 2) * p.Span * p.Tick
	}
	return (s.Tick + 1) * p.Span * p.Tick
}

// Level returns how much units add to the Used of a receipt or a state.
func (p *Plan) Level(units int64) int64 {
	if p.Kernel == Meter {
		return units * p.Unit
	}
	return units
}

// Lifetime returns the time in microseconds after which any untouched state is empty.
func (p *Plan) Lifetime() int64 {
	switch {
	case p.Kernel == Meter:
		return (p.most/p.Drain + 1) * p.Tick
	case p.Kernel == InFlight: // of which a clock that steps back may leave two
		return 2 * p.Span
	case p.Kernel == Lock: // likewise
		return (2*p.Penalty.Most + p.Penalty.Forget).Microseconds()
	case p.monthly():
		return 2 * longestMonth.Microseconds()
	}
	return 2 * p.Span * p.Tick
}

// ticks returns the tick of a time in microseconds.
func (p *Plan) ticks(now int64) int64 {
	if p.Tick == 1 {
		return now
	}
	return now / p.Tick
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// product returns a·b for a, b ≥ 0, and whether it is at most maxExact.
func product(a, b int64) (int64, bool) {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	return int64(lo), hi == 0 && lo <= maxExact
}

// ceilDiv returns a/b rounded up, for a ≥ 0 and b > 0.
func ceilDiv(a, b int64) int64 {
	q := div(a, b)
	if q*b < a {
		q++
	}
	return q
}

// div returns a/b for b > 0. Division is most of the cost of a decision, so it avoids dividing by 1,
// which many limits have, and divides in 32 bits where possible, which takes older processors a third
// of the time.
func div(a, b int64) int64 {
	switch {
	case b == 1:
		return a
	case uint64(a|b)>>32 == 0:
		return int64(uint32(a) / uint32(b))
	}
	return a / b
}
