package kernel

import (
	"math"
	"time"
)

// All is the negative cost that gives back everything taken.
const All = -1 << 63

// Receipt is the state of a key after a step. After the same history, all implementations return the same receipts.
type Receipt struct {
	// Now is the time of the step, in microseconds since the Unix epoch.
	Now int64
	// Tick depends on the kernel: it is the number of the current window, the tick of the newest unit in a log, the
	// time of the last use of any distinct value, or the end of a penalty.
	Tick int64
	// Used is the level of a meter at Now, the count of the current window or of the log, or the number of
	// penalties, permits or values. It includes the cost if it was committed.
	Used int64
	// Prev is the count of the previous window, if that window still counts, or the time when penalties are
	// forgotten. For a Queue, it is the level at the end of the charge's turn, or 0 if that turn is the last of the
	// queue. For a distinct value, it is the time when the value would have expired without the step, or 0.
	Prev int64
	// Wait of a log is the tick at which the cost will fit. If the cost fits now, Wait is the tick at which one
	// more unit will fit. Zero means at once, or never. For distinct values, Wait is the time at which a new value
	// will fit. If a new value fits now, Wait is the time at which the least recently used value expires.
	Wait int64
	// Cut is the number of units of an owed cost that were not committed, because the state has reached the plan's
	// Most. A fraction of a unit counts as one.
	Cut int64
	// Fits reports whether the cost fits.
	Fits bool
}

func (r *Receipt) window() State { return State{Tick: r.Tick, Used: r.Used, Prev: r.Prev} }

// TurnEnd returns the level at the end of the turn of a charge of a Queue.
func (r *Receipt) TurnEnd() int64 {
	if r.Prev > 0 {
		return r.Prev
	}
	return r.Used
}

// Answer returns how many units remain, rounded down; the time until no unit is used, or a penalty is forgotten;
// and the time until the given units fit. fitsAfter is 0 if the units fit now, if they are more than Capacity, or
// if the time is unknown, as for permits of requests in flight.
func (p *Plan) Answer(r *Receipt, units int64) (remaining int64, resetAfter, fitsAfter time.Duration) {
	tick, at := p.Ticks(r.Now), r.Wait
	var reset int64
	switch p.Kernel {
	case Meter:
		remaining = max(0, div(p.Size-r.Used, p.Unit)) // the key may be in debt
		reset = tick + ceilDiv(r.Used, p.Drain)
	case Window:
		w := r.window()
		remaining = max(0, p.windowRoom(w, tick)/p.Span)
		reset = p.EmptyAt(w) / p.Tick
	case Lock:
		if r.Now >= r.Tick {
			remaining = 1
		}
		reset, at = r.Prev, r.Tick
	case InFlight:
		return max(0, p.Capacity-r.Used), 0, 0
	default:
		remaining = max(0, p.Capacity-r.Used)
		if r.Used > 0 {
			reset = r.Tick + p.Span
		}
	}
	resetAfter = p.Until(reset, r.Now)
	if remaining >= units || units > p.Capacity {
		return remaining, resetAfter, 0
	}
	switch {
	case p.Kernel == Meter:
		at = tick + ceilDiv(r.Used+units*p.Unit-p.Size, p.Drain)
	case p.monthly():
		at = p.monthEnd(r.Tick)
	case p.Kernel == Window:
		at = p.windowFitsAt(r, units)
	}
	return remaining, resetAfter, p.Until(at, r.Now)
}

// Remaining returns how many units fit now, rounded down.
func (p *Plan) Remaining(r *Receipt) int64 {
	remaining, _, _ := p.Answer(r, 0)
	return remaining
}

// Until returns the duration from the time now, which is in microseconds, to the beginning of a tick, but at most
// the longest Duration, 292 years.
func (p *Plan) Until(tick, now int64) time.Duration {
	const most = math.MaxInt64 / int64(time.Microsecond)
	return time.Duration(min(max(0, tick*p.Tick-now), most)) * time.Microsecond
}

// Owed returns the number of units by which a state is above the plan's Capacity, rounded up. These units have to
// drain or expire before another can fit. Owed returns 0 if nothing is owed (see [Plan.Owe]), and for penalties and
// permits.
func (p *Plan) Owed(r *Receipt) int64 {
	switch p.Kernel {
	case Meter:
		return ceilDiv(max(0, r.Used-p.Size), p.Unit)
	case Window:
		return ceilDiv(max(0, -p.windowRoom(r.window(), p.windowTick(r.Now))), p.Span)
	case Lock, InFlight, Distinct:
		return 0
	}
	return max(0, r.Used-p.Capacity)
}

// Spend changes r, the receipt of a charge that took nothing, to the receipt after taking cost units, which must
// fit. It does not change receipts of penalties, nor of a Queue if other turns follow the turn of the charge.
//
// A receipt does not contain when the next units of a log expire, or which value is the least recently used. For
// both, Spend assumes the worst case for the client.
func (p *Plan) Spend(r *Receipt, cost int64) {
	switch {
	case p.Kernel == Lock, p.Queue && r.Prev > 0: // Prev > 0: the turn of the charge is not the last of the queue
		return
	case p.Kernel == Distinct:
		p.spendValue(r)
		return
	case p.Kernel.Log():
		p.spendLog(r, cost)
	}
	r.Used += p.Level(cost)
}

func (p *Plan) spendLog(r *Receipt, cost int64) {
	newest := r.Now / p.Tick
	switch {
	case r.Used+cost < p.Capacity:
		r.Wait = 0
	case r.Used == 0:
		r.Wait = newest + p.Span // the tick at which the units of this charge expire
	case r.Wait == 0: // the receipt does not come from a store
		r.Wait = r.Tick + p.Span
	}
	r.Tick = max(r.Tick, newest)
}

func (p *Plan) spendValue(r *Receipt) {
	before, oldest := r.Used, r.Wait
	if r.Prev == 0 {
		r.Used++
	}
	if r.Tick = r.Now; before == 0 || r.Prev == oldest {
		r.Wait = r.Now + p.Span
	}
}
