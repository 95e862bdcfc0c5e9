package sluice

import (
	"fmt"
	"hash/fnv"
	"time"
)

// PlaceLasts is how long a place in flight is held unless it is taken again: whoever dies while
// holding one blocks it for no longer. Whoever lives takes it again in time, as a [Holder] does.
const PlaceLasts = 10 * time.Second

// maxInFlight is the largest number of places of a plan.
const maxInFlight = 1 << 16

// NewInFlight returns a plan of the [InFlight] kernel, which has as many places as may be used at
// the same time, from 1 to 65,536. Each place that is taken has a number that whoever takes it has
// chosen (Charge.Place): taken again, it lasts for another [PlaceLasts], and given back it is free
// at once. What takes a place costs 1, what gives it back costs less than 0; cost 0 looks, and [All]
// empties all.
//
// A Take takes one place of a key at most. When one becomes free is not known: where all are taken,
// RetryAfter is a second.
func NewInFlight(places int64) (*Plan, error) {
	if places < 1 || places > maxInFlight {
		return nil, usage("sluice: %d places in flight: must be from 1 to %d", places, maxInFlight)
	}
	h := fnv.New64a()
	fmt.Fprint(h, "in flight")
	return &Plan{Kernel: InFlight, Tick: 1, Capacity: places, Span: PlaceLasts.Microseconds(), Fingerprint: h.Sum64()}, nil
}

// Places is the state of an [InFlight] plan: which places are taken, and until when. The zero
// Places has none. It is not to be copied once it is used, and is not safe for concurrent use.
type Places struct {
	until map[uint64]int64 // of each that was taken, in microseconds since the Unix epoch
	// All of until are from first to last, so that they need not be looked at while these are held.
	first, last int64
	most        int // how many there have been at once, since a map does not shrink
}

// Step asks for the place of a number at now, in microseconds since the Unix epoch: with cost 1 it
// takes it, or holds it for longer if it is taken, with a negative cost it gives it back, or with
// [All] every place, and with 0 it looks. Any other cost never fits.
//
// What does not fit, and what only looks, leaves s as it is. All else forgets what is not held any more.
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

// Look returns the receipt of a Step that is not done, as that of [Log.Look] is: Used is how many
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

// Bytes returns about how much memory the places hold on to, rather too much than too little.
func (s *Places) Bytes() int {
	switch {
	case s.until == nil:
		return 0
	case s.most <= 8:
		return 48 + 144
	}
	return 42*s.most + 96
}

// holds reports whether a place that was taken until then is held at now. One that ends later than
// a clock that has stepped back by as long as a place lasts can explain is free, so that nobody
// waits for the length of a jump.
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
