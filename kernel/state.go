package kernel

// State is what a store keeps for one key of a [Meter], [Window] or [Lock] plan. The zero State is the empty state,
// and need not be stored.
type State struct {
	// Tick is the tick to which a meter's level refers, the number of the current window since the epoch, or the
	// end of a penalty.
	Tick int64
	// Used is the level of a meter, the count of the current window, or the number of penalties in a row.
	Used int64
	// Prev is the count of the previous window, or the time when penalties are forgotten. For a meter, it is the
	// [Plan.Tick] of the plan that made the state; a Plan.Tick of 1 is stored as 0. A plan with another Plan.Tick
	// converts the state.
	Prev int64
}

// Step is the arithmetic of a Meter, Window or Lock plan. If the cost fits, Step charges it. In any case, Step writes
// the receipt to r, and returns the state to keep. The present time, now, is in microseconds since the Unix epoch. A
// cost of 0 always fits. A negative cost gives units back, but not more than are used.
//
// A cost that does not fit, or is 0, does not change s, with one exception: if s is too far ahead of now, for example
// because the clock has stepped back, Step moves s back. A meter is too far ahead if its level is above Most. A window
// is too far ahead if another window lies between it and the present one. A penalty is too far ahead if more than twice
// its length is left.
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

// Owe is like [Plan.Step], but a meter or a window also charges a cost that does not fit. Use it for costs that cannot
// be denied, such as the rest of the cost of a request that was allowed. If the cost does not fit, Fits of r is false.
// Units that would raise the state above Most are not charged; Cut of r is their number.
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
		r.Used = p.most // there is room for a fraction of the next unit: charge this fraction
	}
	switch {
	case r.Used == before:
		return s
	case p.Kernel == Meter:
		return State{Tick: p.Ticks(now), Used: r.Used, Prev: p.stateTick()}
	}
	return r.window()
}

// EmptyAt returns when s will equal the empty state, in microseconds since the epoch. From then on, a store may
// delete the key.
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
	case s.Used > 0 && p.Sliding:
		return (s.Tick + 2) * p.Span * p.Tick
	}
	return (s.Tick + 1) * p.Span * p.Tick
}

// Level returns the amount that units add to the Used of a receipt or a state.
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
	case p.Kernel.Permits(): // after the clock has stepped back, two spans may be left
		return 2 * p.Span
	case p.Kernel == Lock: // after the clock has stepped back, two penalties may be left
		return 2*p.Lockout.Most + p.Lockout.Forget
	case p.monthly():
		return 2 * longestMonth.Microseconds()
	}
	return 2 * p.Span * p.Tick
}

// Ticks returns the tick of a time in microseconds.
func (p *Plan) Ticks(now int64) int64 {
	if p.Tick == 1 {
		return now
	}
	return now / p.Tick
}
