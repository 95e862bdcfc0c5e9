package kernel

// Log is the state of a plan with a log [Kind]: the times at which the units of the last Span were taken. The zero
// Log is empty. A Log is for plans of one fingerprint, must not be copied after first use, and is not safe for
// concurrent use.
type Log struct{ units history }

// history has the units of a log, the oldest first. A position identifies a unit until the history changes.
type history interface {
	// newest returns the tick of the newest unit. It returns false for an empty log.
	newest() (tick int64, any bool)
	// since returns the position of the first unit after a tick, and the number of units from there on. The tick
	// must not be more than a span before the newest unit.
	since(tick int64) (first int, n int64)
	// tick returns the tick of the nth unit from a position on. The unit at the position is the first.
	tick(first int, n int64) int64
	// drop removes the units before a position.
	drop(first int)
	// push adds n units at a tick that is not before the newest unit, and less than a span after the oldest.
	push(tick, n int64)
	// pop removes the n newest units, or all if the history has fewer.
	pop(n int64)
	// shift moves all units by a number of ticks.
	shift(by int64)
	// bytes returns the size of the history in memory.
	bytes() int
}

func newHistory(p *Plan) history {
	switch p.Kernel {
	case ExactLog:
		return new(runs)
	case CountLog:
		return new(counts)
	}
	return new(stamps)
}

// Step charges cost units at the time now, in microseconds since the Unix epoch, if they fit. A cost of 0 always
// fits. A negative cost gives back units, the newest first. So a negative cost right after a charge of the same size
// undoes that charge.
//
// A cost that does not fit, or is 0, does not change the log, with one exception: if the clock has stepped back by
// more than a span, the units move back with it.
func (l *Log) Step(p *Plan, now, cost int64) Receipt {
	v := l.at(p, now)
	if v.back > 0 {
		l.units.shift(-v.back)
		v = l.at(p, now)
	}
	if cost == 0 || !v.fits(cost) {
		return v.receipt(cost)
	}
	if cost > 0 {
		l.push(v, cost)
	} else if l.units != nil {
		l.units.drop(v.first)
		l.units.pop(-max(cost, -maxExact))
	}
	return l.at(p, now).receipt(0)
}

// Owe is like [Log.Step], but charges the cost even if it does not fit. Then Fits of the receipt is false, and the
// log keeps the cost up to the plan's Most.
func (l *Log) Owe(p *Plan, now, cost int64) Receipt {
	r := l.Step(p, now, cost)
	if r.Fits || cost <= 0 {
		return r
	}
	if landed := min(cost, max(0, p.Most-r.Used)); landed > 0 {
		l.push(l.at(p, now), landed)
		r = l.at(p, now).receipt(cost)
		r.Cut = cost - landed
	} else {
		r.Cut = cost
	}
	return r
}

func (l *Log) push(v view, cost int64) {
	if l.units == nil {
		l.units = newHistory(v.p)
	}
	l.units.drop(v.first)
	l.units.push(v.now, cost)
}

// Look returns the receipt for cost units at the time now without charging them: Used and Tick are from before the
// charge, and Fits reports whether the cost would fit.
func (l *Log) Look(p *Plan, now, cost int64) Receipt { return l.at(p, now).receipt(cost) }

// EmptyAt returns when all units will have expired, in microseconds since the epoch.
func (l *Log) EmptyAt(p *Plan) int64 {
	newest, any := l.newest()
	if !any {
		return 0
	}
	return (newest + p.Span) * p.Tick
}

// Bytes returns how much memory the log holds.
func (l *Log) Bytes() int {
	if l.units == nil {
		return 0
	}
	return l.units.bytes()
}

func (l *Log) newest() (tick int64, any bool) {
	if l.units == nil {
		return 0, false
	}
	return l.units.newest()
}

// view is a log at a moment.
type view struct {
	*Log
	p      *Plan
	micros int64 // since the epoch
	now    int64 // the tick of micros, but never before the newest unit, even if the clock has stepped back
	newest int64
	back   int64 // ticks by which the units have to move back to follow the clock
	first  int   // the position of the first unit that still counts
	used   int64
}

// at returns the log at a moment. If the clock has stepped back by at most a span, time stands still at the newest
// unit.
func (l *Log) at(p *Plan, micros int64) view {
	v := view{Log: l, p: p, micros: micros, now: p.Ticks(micros)}
	newest, any := l.newest()
	if !any {
		return v
	}
	v.newest = newest
	if ahead := newest - v.now; ahead > 0 {
		v.now = newest
		if ahead > p.Span {
			v.back = ahead
		}
	}
	v.first, v.used = l.units.since(v.now - p.Span)
	return v
}

func (v view) fits(cost int64) bool {
	return cost <= 0 || cost <= v.p.Capacity && v.used <= v.p.Capacity-cost
}

func (v view) receipt(cost int64) Receipt {
	r := Receipt{Now: v.micros, Used: v.used, Fits: v.fits(cost)}
	if v.used > 0 {
		r.Tick = v.newest - v.back
	}
	switch {
	case cost > v.p.Capacity:
		return r
	case r.Fits:
		cost = 1
	}
	// The oldest n units have to expire.
	if n := v.used + cost - v.p.Capacity; n > 0 {
		r.Wait = v.units.tick(v.first, n) + v.p.Span - v.back
	}
	return r
}
