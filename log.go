package sluice

import "slices"

// Log is the state of a [Units] plan: when each unit of the last Span was taken. The
// zero Log is empty. A Log is not safe for concurrent use.
type Log struct {
	// A run holds the units of one tick: its sum less the sum of the run before it.
	// Ticks and sums grow from run to run. The last run, if there is one, counts.
	runs []run
	head int // how many runs have been dropped, and only wait to be overwritten
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
	n, _ := slices.BinarySearchFunc(l.runs[l.head:], v.tick-p.Span+1, func(r run, tick int64) int {
		return int(min(max(r.tick-tick, -1), 1))
	})
	v.first = l.head + n
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
	i, _ := slices.BinarySearchFunc(v.runs[v.first:], sum, func(r run, sum int64) int {
		return int(min(max(r.sum-sum, -1), 1))
	})
	return v.runs[v.first+i].tick + v.p.Span
}

func (l *Log) newest() int64 { return l.runs[len(l.runs)-1].tick }

// before returns the sum of all runs before run i.
func (l *Log) before(i int) int64 {
	if i == 0 {
		return 0
	}
	return l.runs[i-1].sum
}

// drop forgets the runs before first.
func (l *Log) drop(first int) {
	if l.head = first; l.head == len(l.runs) {
		l.runs, l.head = l.runs[:0], 0
	}
}

func (l *Log) push(tick, n int64) {
	last := len(l.runs) - 1
	if last >= 0 && l.runs[last].tick == tick {
		l.runs[last].sum += n
		return
	}
	sum := l.before(last+1) + n
	l.makeRoom()
	l.runs = append(l.runs, run{tick, sum})
}

// fewRuns are moved faster than memory for more of them is found.
const fewRuns = 256

// makeRoom moves the runs over the dropped ones if there is no room behind them, unless that
// would move many for little: then the log may rather grow. So a push costs the same however
// long the log is, and the log holds on to no more than 32 bytes for each run it once had.
func (l *Log) makeRoom() {
	spare := l.head - 1 // the last dropped run stays, for its sum
	if len(l.runs) == cap(l.runs) && spare > max(0, (len(l.runs)-fewRuns)/8) {
		l.runs = slices.Delete(l.runs, 0, spare)
		l.head = 1
	}
}

// pop gives back -cost units, the newest first.
func (l *Log) pop(cost int64) {
	for last := len(l.runs) - 1; last >= l.head && cost < 0; last-- {
		n := l.runs[last].sum - l.before(last)
		if n > -cost {
			l.runs[last].sum += cost
			return
		}
		cost += n
		l.runs = l.runs[:last]
	}
	l.drop(l.head)
}

func (l *Log) shift(by int64) {
	for i := range l.runs[l.head:] {
		l.runs[l.head+i].tick += by
	}
}
