package sluice

// stepMeter is the meter kernel. A cost raises the level by cost·Unit, the level drains by Drain
// a tick, and a cost that would raise it above Size is refused. Level and tick stand for one number,
// tick·Drain + level, the "theoretical arrival time" of GCRA, so that a clock stepping
// back and forth changes nothing as long as the level stays under Size.
func (p *Plan) stepMeter(s State, now, cost int64, r *Receipt) State {
	tick := p.ticks(now)
	level, clamped := p.level(s, tick)
	next, fits := level, true
	switch {
	case cost > p.Capacity:
		fits = false
	case cost > 0:
		next = level + cost*p.Unit
		fits = next <= p.Size
	case cost < -p.Capacity:
		next = 0
	case cost < 0:
		next = max(0, level+cost*p.Unit)
	}
	if !fits {
		next = level
	}
	r.Now, r.Used, r.Fits = now, next, fits
	switch {
	case next == level && !clamped:
		return s
	case next == 0:
		return State{}
	}
	return State{Tick: tick, Used: next}
}

// level returns the level of s at tick, clamped to Size: it can exceed Size only if the clock
// has stepped back or the burst was lowered.
func (p *Plan) level(s State, tick int64) (level int64, clamped bool) {
	elapsed := tick - s.Tick
	switch {
	case s.Used == 0 || elapsed >= p.full && s.Used <= p.Size:
		return 0, false
	case elapsed <= -p.full:
		return p.Size, true
	case elapsed >= p.full:
		// The burst was lowered: more than a full meter may be left.
		elapsed = min(elapsed, ceilDiv(s.Used, p.Drain))
	}
	level = max(0, s.Used-elapsed*p.Drain)
	return min(level, p.Size), level > p.Size
}
