package kernel

import (
	"errors"
	"fmt"
	"hash/fnv"
)

// Kind is the kernel that a [Plan] runs on. StampLog, CountLog and ExactLog are one kernel that keeps its units in
// three ways. The scripts of shared stores use the same numbers for the kinds.
type Kind uint8

const (
	// Meter keeps a level that drains with time: token bucket, GCRA, leaky bucket.
	Meter Kind = iota
	// Window keeps the counts of this window and the previous one.
	Window
	// StampLog keeps the time at which each unit of the last period was taken: see [Log].
	StampLog
	// CountLog keeps how many units were taken in each tick of the last period.
	CountLog
	// ExactLog is a StampLog of microseconds.
	ExactLog
	// Lock keeps the end of the penalty of a key that has exceeded its limits: see [Lockout].
	Lock
	// InFlight keeps which permits are held: see [Permits].
	InFlight
	// Distinct keeps the values of the last period as permits: see [NewDistinct].
	Distinct
)

// Log reports whether the state of the kernel is a [Log].
func (k Kind) Log() bool { return k >= StampLog && k <= ExactLog }

// Permits reports whether the state of the kernel is [Permits].
func (k Kind) Permits() bool { return k >= InFlight }

// MaxLogCount is the largest Count of an [ExactLog].
const MaxLogCount = 1 << 20

// FineLogCount is the largest Count of a [StampLog], which takes two to four bytes a unit. With a larger Count, a
// log is a [CountLog]. For a large limit, coarse times matter less, and exact times would take more memory and
// time. A limit that changes from one kind to the other starts with an empty log.
const FineLogCount = 1 << 10

const (
	fineParts   = 1 << 15 // parts of a Period, so that a time fits in two bytes
	coarseParts = 32
	maxCoarse   = 1<<32 - 1 // the largest count in four bytes
)

// Every quantity of a plan is at most maxExact, so that sums and differences stay below 2^53, and Lua's numbers hold
// them as exactly as int64 does. The exception is the largest level of a plan that [Plan.Raised] has raised: see
// maxLevel.
const maxExact = 1 << 51

// maxLevel is the largest level of a meter that a plan can express. A state that a plan with longer ticks has written
// can contain a higher level.
const maxLevel = 1 << 52

// Plan is a limit in integers. It contains all that an implementation needs to reproduce a decision. Times are in
// ticks of Tick microseconds. [New], [NewLock], [NewInFlight] and [NewDistinct] make plans. A plan does not change
// afterwards, and may be used by several goroutines.
type Plan struct {
	Kernel Kind
	// Tick is the unit of time in microseconds: 1, or, if the numbers would not be exact with this, 1,000 or
	// 1,000,000. For a [StampLog] or [CountLog] it is the resolution of the log within the period, rounded up.
	// Times are rounded down to ticks.
	Tick int64
	// In a meter, each unit adds Unit to the level, each tick lowers the level by Drain, and units that would raise
	// the level above Size do not fit. With g = gcd(count, period in ticks), Unit is period/g, Drain is count/g,
	// and Size is burst·Unit.
	Unit, Drain, Size int64
	// Span is the length of a window, in ticks, or the time for which a permit or a value is held. In a log, a unit
	// expires Span ticks after the beginning of the tick in which it was taken, so that it counts for a whole
	// period even if it was taken at the end of that tick. Span is 1 where windows are months of the calendar,
	// which [Plan.WindowAt] numbers.
	Span int64
	// Capacity is the largest number of units that can pass at once: the burst of a meter, the number of permits or
	// of distinct values, or the count of a window or a log.
	Capacity int64
	// Most is the largest number of units that a state of the plan keeps: the level of a meter, the count of a
	// window or a log. It is Capacity by default. It is larger if the plan shares states with plans of a larger
	// Capacity, or if costs can be charged even above the limit ([Plan.Owe]). A meter's level above Most means that
	// the clock has stepped back.
	Most int64
	// Fixed means that stores do not raise Most: see [Plan.Raised].
	Fixed bool
	// Fingerprint distinguishes plans if their states mean different things. A store keeps a separate state for
	// each fingerprint, even under one key. Two plans share a fingerprint if they are
	//
	//   - two meters with the same rate,
	//   - two fixed windows, two sliding counters or two exact logs with the same period,
	//   - two other logs with the same period, and with counts on the same side of [FineLogCount].
	//
	// So a change of a burst, of the count of a window or log, of Tick or of Most keeps the counts.
	Fingerprint uint64
	// Sliding means that the previous window counts in proportion to its overlap with the last period.
	Sliding bool
	// MonthDay, from 1 to 31, means that windows are months that begin on this day. If it is 0, windows are not
	// months.
	MonthDay int
	// Queue means that a meter gives turns: an admitted charge waits until the level beneath its units has drained.
	Queue bool
	// Once marks a plan of NewOnce in package sluice, a meter with room for one unit. Until this unit has drained,
	// further Takes that charge the plan for the same key are repeats: they change nothing, and do not count as
	// offences that start a penalty.
	Once bool
	// Lockout has the settings of a [Lock]. All locks share a fingerprint, because their states have the same
	// meaning.
	Lockout Lockout

	// The field most is the level of a meter that corresponds to Most units, and full is the number of ticks in
	// which that level drains. If Raised has made Most too large to be exact, the field most is maxLevel and vague
	// is true: then a higher level does not prove that the clock has stepped back.
	most, full int64
	vague      bool
	// rate is the rate that the meter would have with ticks of a microsecond. A level of 1 drains in
	// part/rate.drain microseconds.
	rate rate
	part int64
}

// rate holds the Unit and the Drain of a meter in ticks of a microsecond.
type rate struct{ unit, drain int64 }

// Spec describes a limit by rate. Numbers that the kernel uses must be at least 1.
type Spec struct {
	// Kernel is Meter, Window, StampLog or ExactLog. A StampLog with a Count above FineLogCount becomes a CountLog.
	Kernel Kind
	// Count is the number of units per Period, in microseconds.
	Count, Period int64
	// Burst is the capacity of a meter.
	Burst int64
	// Most is a lower bound of the plan's Most; 0 means no bound.
	Most int64
	// MonthDay, Sliding and Queue become the plan's fields of the same names.
	MonthDay       int
	Sliding, Queue bool
}

// New returns the plan of a limit, with the finest tick (1 µs, 1 ms or 1 s) for which all numbers are exact. It
// fails if no such tick exists, or if the spec is not valid.
func New(s Spec) (p Plan, err error) {
	if s.Count < 1 || s.Period < 1 || s.Kernel == Meter && s.Burst < 1 {
		return Plan{}, errors.New("the count, the period and the burst of a limit must be at least 1")
	}
	if s.Kernel != Meter && s.Kernel != Window && s.Kernel != StampLog && s.Kernel != ExactLog {
		return Plan{}, errors.New("the kernel of a limit by rate must be a meter, a window, a stamp log or an exact log")
	}
	for _, tick := range []int64{1, 1_000, 1_000_000} {
		if s.Period%tick != 0 {
			break
		}
		if p, err = s.plan(tick); err == nil {
			return p, nil
		}
	}
	return Plan{}, err
}

// plan returns the plan with the given tick, in microseconds.
func (s Spec) plan(tick int64) (Plan, error) {
	p := Plan{Kernel: s.Kernel, Tick: tick, Capacity: s.Count, Sliding: s.Sliding, Queue: s.Queue, MonthDay: s.MonthDay}
	period := s.Period / tick
	exact := true
	switch s.Kernel {
	case Meter:
		g := gcd(s.Count, period)
		p.Unit, p.Drain, p.Capacity = period/g, s.Count/g, s.Burst
		exact = p.setRate(s.Count, s.Period)
		p.Size, _ = product(p.Capacity, p.Unit)
	case Window:
		if p.Span = period; p.monthly() {
			p.Span = 1
		}
		_, exact = product(max(p.Capacity, s.Most), p.Span)
	case ExactLog:
		if s.Count > MaxLogCount {
			return p, fmt.Errorf("an exact log has at most %d units: use sliding_window_log", MaxLogCount)
		}
		p.Span = p.logSpan(s.Period)
		exact = p.Span <= maxExact
	default:
		if s.Count > maxCoarse {
			return p, fmt.Errorf("a log counts at most %d: use sliding_window_counter", int64(maxCoarse))
		}
		p.Tick = ceilDiv(s.Period, logParts(s.Count))
		if p.Span = p.logSpan(s.Period); p.Span <= maxCounts {
			p.Kernel = CountLog
		}
	}
	p.Most = max(p.Capacity, s.Most)
	if longest := p.longestLog(); p.Kernel.Log() && p.Most > longest {
		return p, fmt.Errorf("a log with this count keeps at most %d units, debts included", longest)
	}
	exact = p.setMost() && exact
	if _, ok := product(p.full, p.Tick); exact && !ok {
		what := "a burst of"
		if p.Most > p.Capacity {
			what = "a level of"
		}
		return p, fmt.Errorf("%s %d takes more than 70 years to drain: lower it, or shorten the period", what, p.Most)
	}
	if !exact {
		return p, fmt.Errorf("the numbers are too large to be counted exactly: use a smaller count or burst, or a shorter or rounder period")
	}
	p.Fingerprint = p.fingerprint()
	return p, nil
}

// setRate sets the rate of a meter, and reports whether levels convert exactly from and to microseconds.
func (p *Plan) setRate(count, period int64) (exact bool) {
	g := gcd(count, period)
	p.rate = rate{period / g, count / g}
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

// logParts returns the number of parts into which a log divides its period.
func logParts(count int64) int64 {
	if count > FineLogCount {
		return coarseParts
	}
	return fineParts
}

// logSpan returns the shortest Span, in ticks, with which each unit counts for a whole period, even a unit that was
// taken in the last microsecond of its tick.
func (p *Plan) logSpan(period int64) int64 {
	return ceilDiv(period-1, p.Tick) + 1
}

// fingerprint returns the Fingerprint of a plan that [New] makes.
func (p *Plan) fingerprint() uint64 {
	h := fnv.New64a()
	if p.monthly() {
		fmt.Fprint(h, "month ", p.MonthDay)
		return h.Sum64()
	}
	kernel := min(p.Kernel, StampLog) // the span distinguishes the kinds of logs
	tick, span, unit := p.Tick, p.Span, p.rate
	if kernel < StampLog { // converted to microseconds, so that the fingerprint does not depend on Tick
		tick, span = 1, p.Span*p.Tick
	}
	fmt.Fprint(h, kernel, tick, unit.unit, unit.drain, span, p.Sliding || p.Kernel == ExactLog)
	return h.Sum64()
}

// Raised returns p, or, if units is more than p.Most, a copy with Most set to units. Stores use it because plans
// can share the states of a meter, and a state must not be cut to the Most of the smaller plan. So a store
// remembers, for each Fingerprint, the largest Most of the plans in all charges, and raises every plan that is not
// Fixed to that Most. Unlike WithMost of package sluice, Raised keeps the Tick, and so the meaning of a receipt's
// Used.
//
// A store knows only the plans that its own process has charged. If processes share a server, keys and a rate, but
// have different bursts, use WithMost to give all plans the largest burst. Otherwise, a process that knows only the
// plan with a small burst cuts the level of a larger burst, as if the clock had stepped back.
func (p *Plan) Raised(units int64) *Plan {
	if p.Kernel != Meter || p.Fixed || units <= p.Most {
		return p
	}
	q := *p
	q.Most = units
	q.setMost()
	return &q
}

// setMost sets the fields that follow from Most, and reports whether they are exact.
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
