package kernel

// stepWindow is the window kernel. Windows are aligned to the epoch. The previous window counts in proportion to
// the time left in the current one; for a fixed window, the count of the previous window is always 0. With t ticks
// left, ⌊((Count − current)·Span − previous·t) / Span⌋ more units fit.
func (p *Plan) stepWindow(s State, tick, cost int64, r *Receipt) State {
	w, moved := p.rolled(s, tick)
	fits := cost <= 0 || cost <= p.Capacity && cost*p.Span <= p.windowRoom(w, tick)
	if fits {
		switch {
		case cost >= 0:
			w.Used += cost
		case cost < -w.Used-w.Prev:
			w.Used, w.Prev = 0, 0
		default:
			back := min(-cost, w.Used)
			w.Used -= back
			w.Prev -= -cost - back
		}
	}
	r.Tick, r.Used, r.Prev, r.Fits = w.Tick, w.Used, w.Prev, fits
	switch {
	case (!fits || cost == 0) && !moved:
		return s
	case w.Used == 0 && w.Prev == 0:
		r.Tick = tick / p.Span // w may be ahead of the clock, but an empty state must not be
		return State{}
	}
	return w
}

// windowTick returns the tick of a time in microseconds. For a monthly plan, it is the number of the month.
func (p *Plan) windowTick(now int64) int64 {
	if p.monthly() {
		return p.month(now)
	}
	return p.Ticks(now)
}

// rolled returns s as of the given tick. If the clock has stepped back to the window before the window of s, time
// stands still at the beginning of the window of s. If it has stepped back further, the counts move to the clock's
// window, and the result moved is true. If they did not, a key would wait for as long as the clock has jumped.
func (p *Plan) rolled(s State, tick int64) (w State, moved bool) {
	n := tick / p.Span
	empty := s.Used == 0 && s.Prev == 0
	switch {
	case empty || n > s.Tick+1:
		return State{Tick: n}, false
	case n == s.Tick+1:
		w = State{Tick: n}
		if p.Sliding {
			w.Prev = s.Used
		}
		return w, false
	case n < s.Tick-1:
		return State{Tick: n, Used: s.Used, Prev: s.Prev}, true
	}
	return s, false
}

// windowRoom returns the room for more units, times Span. It is negative if the limit was lowered or the key is in
// debt.
func (p *Plan) windowRoom(w State, tick int64) int64 {
	return (p.Capacity-w.Used)*p.Span - w.Prev*p.left(w.Tick, tick)
}

// left returns the number of ticks to the end of window n: Span if the clock has not reached the window yet.
func (p *Plan) left(n, tick int64) int64 {
	return min(p.Span, (n+1)*p.Span-tick)
}

// windowFitsAt returns the tick at which a number of units will fit that do not fit now.
func (p *Plan) windowFitsAt(r *Receipt, need int64) int64 {
	end := (r.Tick + 1) * p.Span
	if room := (p.Capacity - r.Used - need) * p.Span; room >= 0 {
		// The units fit in the current window, as soon as the previous window counts little enough.
		return end - room/r.Prev
	}
	if !p.Sliding {
		return end
	}
	// The units fit in the next window, where the count of the current window is the previous one.
	return end + p.Span - (p.Capacity-need)*p.Span/r.Used
}
