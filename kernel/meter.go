package kernel

import "math/bits"

// stepMeter is the meter kernel. A cost raises the level by cost·Unit, and the level drains by Drain a tick. A cost
// that would raise the level above Size does not fit. Level and tick stand for one number, tick·Drain + level, the
// "theoretical arrival time" of GCRA. So a clock that steps back and forth changes nothing, as long as the level
// stays below Most.
//
// The level may be above Size, because of a debt, or because a plan with a larger burst has charged the state. Such
// a level drains like any other. If stepMeter cut it to Size, the plan with the larger burst could take the
// difference again.
func (p *Plan) stepMeter(s State, now, cost int64, r *Receipt) State {
	tick := p.Ticks(now)
	level, above := p.level(s, tick)
	stepped := above && !p.vague
	next, fits := level, true
	switch {
	case cost > 0:
		if fits = cost <= p.Capacity && level <= p.Size-cost*p.Unit; fits {
			next = level + cost*p.Unit
		}
	case above && !stepped && cost > -maxLevel: // p cannot express the level
	case cost < -div(p.most, p.Unit):
		next = 0
	case cost < 0:
		next = max(0, level+cost*p.Unit)
	}
	r.Now, r.Used, r.Fits = now, next, fits
	switch {
	case next == level && !stepped:
		return s
	case next == 0:
		return State{}
	}
	return State{Tick: tick, Used: next, Prev: p.stateTick()}
}

// stateTick returns the Prev of the states that p makes: Tick, or 0 for a Tick of 1.
func (p *Plan) stateTick() int64 {
	if p.Tick == 1 {
		return 0
	}
	return p.Tick
}

// level returns the level of s at tick, at most p.most, and whether the level was above p.most.
func (p *Plan) level(s State, tick int64) (level int64, above bool) {
	s = p.converted(s)
	elapsed := tick - s.Tick
	switch {
	case s.Used == 0 || elapsed >= p.full && s.Used <= p.most:
		return 0, false
	case elapsed <= -p.full:
		return p.most, true
	case elapsed >= p.full:
		// If the level is above most, it can take longer than full ticks to drain.
		elapsed = min(elapsed, ceilDiv(s.Used, p.Drain))
	}
	level = max(0, s.Used-elapsed*p.Drain)
	return min(level, p.most), level > p.most
}

// converted returns a state of another Tick in the ticks of p. It rounds the level up.
func (p *Plan) converted(s State) State {
	if s.Prev == p.stateTick() || s.Used == 0 {
		return s
	}
	from := max(1, s.Prev)
	micros := s.Tick * from
	tick := p.Ticks(micros)
	// The level in parts of 1/rate.drain of a microsecond.
	hi, lo := bits.Mul64(uint64(s.Used), uint64(gcd(from, p.rate.unit)))
	lo, carry := bits.Add64(lo, uint64((micros-tick*p.Tick)*p.rate.drain+p.part-1), 0)
	used := uint64(1 << 62)
	if hi += carry; hi < uint64(p.part) {
		used, _ = bits.Div64(hi, lo, uint64(p.part))
	}
	return State{Tick: tick, Used: int64(min(used, 1<<62)), Prev: p.stateTick()}
}
