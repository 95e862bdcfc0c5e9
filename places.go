package sluice

import (
	"fmt"
	"hash/fnv"
	"time"
)

// PlaceLasts is how long a place in flight is held unless it is taken again. A process that dies
// blocks its places for no longer; one that lives takes them again in time, as a [Holder] does.
const PlaceLasts = 10 * time.Second

// maxInFlight is the largest number of places of a plan.
const maxInFlight = 1 << 16

// NewInFlight returns a plan of the [InFlight] kernel, with that many places that can be held at
// the same time, from 1 to 65,536. The caller chooses the number of each place that it takes
// (Charge.Place): a place taken again lasts for another [PlaceLasts], and one given back is free
// at once. Taking a place costs 1, and giving it back costs less than 0; cost 0 looks, and [All]
// frees all places.
//
// A Take takes at most one place of a key. It is not known when a place will become free: while all
// are taken, RetryAfter is a second.
func NewInFlight(places int64) (*Plan, error) {
	if places < 1 || places > maxInFlight {
		return nil, usage("sluice: %d places in flight: must be from 1 to %d", places, maxInFlight)
	}
	h := fnv.New64a()
	fmt.Fprint(h, "in flight")
	return &Plan{Kernel: InFlight, Tick: 1, Capacity: places, Most: places, Span: PlaceLasts.Microseconds(), Fingerprint: h.Sum64()}, nil
}

// Places is the state of an [InFlight] plan: which places are taken, and until when. The zero
// Places has none. Places must not be copied after first use, and are not safe for concurrent use.
type Places struct {
	until map[uint64]int64 // of each that was taken, in microseconds since the Unix epoch
	// All of until are from first to last, so that they need not be looked at while these are held.
	first, last int64
	most        int // how many there have been at once, since a map does not shrink
}

// Step asks for the place with that number at now, in microseconds since the Unix epoch: with cost 1 it
// takes it, or holds it for longer if it is taken, with a negative cost it gives it back, or with
// [All] every place, and with 0 it looks. Any other cost never fits.
//
// A cost that does not fit, or only looks, leaves s as it is. Any other drops places that have expired.
func (s *Places) Step(p *Plan, now int64, number uint64, cost int64) Receipt {
	r := s.Look(p, now, number, cost)
	if cost == 0 || !r.Fits {
		return r
	}
	s.forget(p, now)
	switch {
	case cost == All:
		*s = Places{}
	case cost < 0:
		delete(s.until, number)
	default:
		s.take(number, now+p.Span)
	}
	r.Used = int64(len(s.until))
	return r
}

// Look returns the receipt of a Step without doing it, as [Log.Look] does: Used is how many
// places are taken before it.
func (s *Places) Look(p *Plan, now int64, number uint64, cost int64) Receipt {
	r := Receipt{Now: now, Used: s.held(p, now)}
	r.Fits = cost <= 0 || cost == 1 && (r.Used < p.Capacity || p.holds(s.until[number], now))
	return r
}

// EmptyAt returns a time, in microseconds since the epoch, from which on no place is taken unless
// one is taken again: 0 if none is.
func (s *Places) EmptyAt() int64 {
	if len(s.until) == 0 {
		return 0
	}
	return s.last
}

// Bytes estimates how much memory the places hold, erring on the high side.
func (s *Places) Bytes() int {
	switch {
	case s.until == nil:
		return 0
	case s.most <= 8:
		return 48 + 144
	}
	return 42*s.most + 96
}

// holds reports whether a place that was taken until then is held at now. It is free if its end
// is too far ahead for a clock that stepped back by no more than a place lasts, so that a jump of
// the clock does not block it for as long.
func (p *Plan) holds(until, now int64) bool { return now < until && until-now <= 2*p.Span }

// allHeld reports whether it is known without a look at them that all places are held.
func (s *Places) allHeld(p *Plan, now int64) bool {
	return p.holds(s.first, now) && p.holds(s.last, now)
}

func (s *Places) held(p *Plan, now int64) int64 {
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

// forget forgets the places that are not held.
func (s *Places) forget(p *Plan, now int64) {
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

func (s *Places) take(number uint64, until int64) {
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
