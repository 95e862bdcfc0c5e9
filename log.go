package sluice

import "slices"

// Log is the state of a [Units] plan: when each unit of the last Span was taken. The
// zero Log is empty. A Log is not safe for concurrent use.
type Log struct {
	// A run holds the units of one tick: its sum less the sum of the run before it.
	// Ticks and sums grow from run to run.
	runs []run
	base int64 // the sum before the first run
}

type run struct{ tick, sum int64 }

// Step asks for cost units at now, in microseconds since the Unix epoch, and keeps
// them if they fit. Cost 0 peeks and always fits. A negative cost gives back the
// newest units first, so that it undoes the take that it follows.
//
// A cost that does not fit leaves the log as it is, with one exception: a clock that
// has stepped back by more than a span moves the units along with it.
func (l *Log) Step(p *Plan, now, cost int64) Receipt {
	v := l.at(p, now)
	if v.back > 0 {
		l.shift(-v.back)
		v = l.at(p, now)
	}
	if cost == 0 || !v.fits(cost) {
		return v.receipt(cost)
	}
	l.drop(v.first)
	if cost > 0 {
		l.push(v.tick, cost)
	} else {
		l.pop(max(cost, -maxExact))
	}
	return l.at(p, now).receipt(0)
}

// Look returns the receipt for cost units at now as they would be answered if nothing
// was kept, and changes nothing.
func (l *Log) Look(p *Plan, now, cost int64) Receipt { return l.at(p, now).receipt(cost) }

// EmptyAt returns when the log equals the empty log, in microseconds since the epoch.
func (l *Log) EmptyAt(p *Plan) int64 {
	if len(l.runs) == 0 {
		return 0
	}
	return (l.newest() + p.Span) * p.Tick
}

// Bytes returns the memory that the log holds on to.
func (l *Log) Bytes() int { return 16 * cap(l.runs) }

// view is a log as it stands at a moment.
type view struct {
	*Log
	p     *Plan
	now   int64
	tick  int64 // of now, or of the newest unit if the clock has stepped back behind it
	back  int64 // how far the units have to move back to follow the clock
	first int   // the first run that still counts
	used  int64
}

// at returns the log as it stands at now. Where the clock has stepped back by less
// than a span, time stands still at the newest unit.
func (l *Log) at(p *Plan, now int64) view {
	v := view{Log: l, p: p, now: now, tick: p.ticks(now)}
	if len(l.runs) == 0 {
		return v
	}
	if ahead := l.newest() - v.tick; ahead > 0 {
		v.tick += ahead
		if ahead > p.Span {
			v.back = ahead
		}
	}
	v.first, _ = slices.BinarySearchFunc(l.runs, v.tick-p.Span+1, func(r run, tick int64) int {
		return int(min(max(r.tick-tick, -1), 1))
	})
	v.used = l.runs[len(l.runs)-1].sum - l.before(v.first)
	return v
}

func (v view) fits(cost int64) bool {
	return cost <= 0 || cost <= v.p.Capacity && v.used <= v.p.Capacity-cost
}

func (v view) receipt(cost int64) Receipt {
	r := Receipt{Now: v.now, Used: v.used, Fits: v.fits(cost)}
	if v.used > 0 {
		r.Tick = v.newest() - v.back
	}
	switch {
	case cost > v.p.Capacity:
		return r
	case r.Fits:
		cost = 1
	}
	if expire := v.used + cost - v.p.Capacity; expire > 0 {
		r.Wait = v.expiry(expire) - v.back
	}
	return r
}

// expiry returns the tick at which the oldest n units that count no longer do.
func (v view) expiry(n int64) int64 {
	sum := v.before(v.first) + n
	i, _ := slices.BinarySearchFunc(v.runs, sum, func(r run, sum int64) int {
		return int(min(max(r.sum-sum, -1), 1))
	})
	return v.runs[i].tick + v.p.Span
}

func (l *Log) newest() int64 { return l.runs[len(l.runs)-1].tick }

// before returns the sum of all runs before run i.
func (l *Log) before(i int) int64 {
	if i == 0 {
		return l.base
	}
	return l.runs[i-1].sum
}

// drop forgets the runs before first.
func (l *Log) drop(first int) {
	l.base = l.before(first)
	l.runs = slices.Delete(l.runs, 0, first)
}

func (l *Log) push(tick, n int64) {
	last := len(l.runs) - 1
	switch {
	case last < 0:
		l.base = 0
		l.runs = append(l.runs, run{tick, n})
	case l.runs[last].tick == tick:
		l.runs[last].sum += n
	default:
		l.runs = append(l.runs, run{tick, l.runs[last].sum + n})
	}
}

// pop gives back -cost units, the newest first.
func (l *Log) pop(cost int64) {
	for last := len(l.runs) - 1; last >= 0 && cost < 0; last-- {
		n := l.runs[last].sum - l.before(last)
		if n > -cost {
			l.runs[last].sum += cost
			return
		}
		cost += n
		l.runs = l.runs[:last]
	}
}

func (l *Log) shift(by int64) {
	for i := range l.runs {
		l.runs[i].tick += by
	}
}
