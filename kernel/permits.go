package kernel

import (
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"time"
)

// PermitLasts is the time after which a permit expires, unless it is taken again. A running process takes its
// permits again before that; the permits of a process that has died become free.
const PermitLasts = 10 * time.Second

// MaxPermits is the largest number of permits of a plan.
const MaxPermits = 1 << 16

// NewInFlight returns a plan that allows a number of permits to be held at the same time, from 1 to [MaxPermits].
func NewInFlight(permits int64) Plan {
	h := fnv.New64a()
	fmt.Fprint(h, "in flight")
	return Plan{Kernel: InFlight, Tick: 1, Capacity: permits, Most: permits, Span: PermitLasts.Microseconds(), Fingerprint: h.Sum64()}
}

// MaxDistinct is the largest number of values of a [Distinct] plan.
const MaxDistinct = 1000

// NewDistinct returns a plan that allows a number of different values, from 1 to [MaxDistinct], within a span in
// microseconds. A value is a permit, numbered by a hash of the value. It is held for a span after its last use.
// NewDistinct fails if the span is too long to be exact.
func NewDistinct(values, span int64) (Plan, error) {
	if span < 1 || span > maxExact/2 {
		return Plan{}, errors.New("the period must be from a microsecond to 35 years")
	}
	h := fnv.New64a()
	fmt.Fprint(h, "distinct ", span)
	return Plan{Kernel: Distinct, Tick: 1, Capacity: values, Most: values, Span: span, Fingerprint: h.Sum64()}, nil
}

// Permits is the state of an [InFlight] or [Distinct] plan: which permits are held, and until when. The zero
// Permits has none. Permits must not be copied after first use, and are not safe for concurrent use.
type Permits struct {
	until map[uint64]int64 // when each taken permit expires, in microseconds since the Unix epoch
	// These are bounds of the times in the map until: no permit expires before the time first or after the time
	// last. If permits that expire at these two times are held, all permits are held, and the map need not be
	// searched.
	first, last int64
	most        int // the largest length that the map until has had: a map does not shrink
}

// Step charges the permit with the given number at the time now, in microseconds since the Unix epoch. A cost of 1
// takes the permit, or extends it if it is held. A negative cost gives it back; [All] gives back every permit. A
// cost of 0 changes nothing. Any other cost never fits.
//
// A cost that is 0 or does not fit does not change s. Any other cost also drops permits that have expired.
func (s *Permits) Step(p *Plan, now int64, number uint64, cost int64) Receipt {
	before := s.until[number]
	r := s.look(p, now, number, cost)
	if cost == 0 || !r.Fits {
		s.times(p, before, &r)
		return r
	}
	s.forget(p, now)
	switch {
	case cost == All:
		*s = Permits{}
	case cost < 0:
		delete(s.until, number)
	default:
		s.take(number, now+p.Span)
	}
	r.Used = int64(len(s.until))
	s.times(p, before, &r)
	return r
}

// Look returns the receipt of a Step without making it, as [Log.Look] does: Used is the number of permits that are
// held before it.
func (s *Permits) Look(p *Plan, now int64, number uint64, cost int64) Receipt {
	r := s.look(p, now, number, cost)
	s.times(p, s.until[number], &r)
	return r
}

// look is Look, but leaves Tick, Prev and Wait unset.
func (s *Permits) look(p *Plan, now int64, number uint64, cost int64) Receipt {
	r := Receipt{Now: now, Used: s.held(p, now)}
	r.Fits = cost <= 0 || cost == 1 && (r.Used < p.Capacity || p.holds(s.until[number], now))
	return r
}

// times sets Tick, Prev and Wait of the receipt of a [Distinct] plan. The expiry is the time at which the value would
// have expired without the step, or 0.
func (s *Permits) times(p *Plan, expiry int64, r *Receipt) {
	if p.Kernel != Distinct {
		return
	}
	r.Tick, r.Wait, r.Prev = 0, 0, 0
	if p.holds(expiry, r.Now) {
		r.Prev = expiry
	}
	if r.Used == 0 {
		return
	}
	for _, until := range s.until {
		if p.holds(until, r.Now) {
			r.Tick = max(r.Tick, until-p.Span)
			if r.Wait == 0 || until < r.Wait {
				r.Wait = until
			}
		}
	}
	if r.Used > p.Capacity { // the limit was lowered: several values have to expire
		r.Wait = s.end(p, r.Now, r.Used-p.Capacity)
	}
}

// end returns when the permit with the given index expires. The indexes are in the order in which permits expire.
func (s *Permits) end(p *Plan, now, index int64) int64 {
	var ends []int64
	for _, until := range s.until {
		if p.holds(until, now) {
			ends = append(ends, until)
		}
	}
	slices.Sort(ends)
	return ends[index]
}

// FullPermits returns the receipt of a charge as if all permits of its key had just been taken. A store without
// room for another key returns this receipt.
func (p *Plan) FullPermits(now, cost int64) Receipt {
	r := Receipt{Now: now, Used: p.Capacity, Fits: cost <= 0}
	if p.Kernel == Distinct {
		r.Tick, r.Wait = now, now+p.Span
	}
	return r
}

// EmptyAt returns a time, in microseconds since the Unix epoch, at which all permits will have expired. It returns
// 0 if no permit is held.
func (s *Permits) EmptyAt() int64 {
	if len(s.until) == 0 {
		return 0
	}
	return s.last
}

// Bytes estimates how much memory the permits take, erring on the high side.
func (s *Permits) Bytes() int {
	switch {
	case s.until == nil:
		return 0
	case s.most <= 8:
		return 48 + 144
	}
	return 42*s.most + 96
}

// holds reports whether a permit that expires at the time until is held at the time now. A permit is free if its
// expiry is so far ahead that the clock must have stepped back by more than the span of a permit. Without this
// rule, such a permit would stay held for as long as the clock has jumped.
func (p *Plan) holds(until, now int64) bool { return now < until && until-now <= 2*p.Span }

// allHeld reports whether all permits are known to be held without a search of the map until.
func (s *Permits) allHeld(p *Plan, now int64) bool {
	return p.holds(s.first, now) && p.holds(s.last, now)
}

func (s *Permits) held(p *Plan, now int64) int64 {
	if s.allHeld(p, now) {
		return int64(len(s.until))
	}
	n := int64(0)
	for _, until := range s.until {
		if p.holds(until, now) {
			n++
		}
	}
	return n
}

// forget drops the permits that are not held.
func (s *Permits) forget(p *Plan, now int64) {
	if s.allHeld(p, now) {
		return
	}
	first, last := int64(0), int64(0)
	for number, until := range s.until {
		switch {
		case !p.holds(until, now):
			delete(s.until, number)
			continue
		case first == 0 || until < first:
			first = until
		}
		last = max(last, until)
	}
	s.first, s.last = first, last
}

func (s *Permits) take(number uint64, until int64) {
	if s.until == nil {
		s.until = make(map[uint64]int64)
	}
	if len(s.until) == 0 {
		s.first, s.last = until, until
	}
	s.until[number] = until
	s.first, s.last = min(s.first, until), max(s.last, until)
	s.most = max(s.most, len(s.until))
}
