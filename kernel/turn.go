package kernel

import (
	"math"
	"time"
)

// Point is a time on the store's clock: a tick, plus the fraction of a tick in which a level of Part drains.
type Point struct {
	Tick, Part int64 // 0 ≤ Part < Drain
}

// Span is the time of one or several turns in a queue.
type Span struct{ From, To Point }

// Before reports whether p is before q. Both must come from plans for which [Plan.SameTurns] reports true.
func (p Point) Before(q Point) bool { return p.Tick < q.Tick || p.Tick == q.Tick && p.Part < q.Part }

// Ceil returns the first tick that is not before the point.
func (p Point) Ceil() int64 {
	if p.Part > 0 {
		return p.Tick + 1
	}
	return p.Tick
}

// PointAt returns when a level at a tick will have drained. The level must not be negative.
func (p *Plan) PointAt(tick, level int64) Point { return Point{tick + level/p.Drain, level % p.Drain} }

// LevelAt returns the level that drains between a tick and a point, or MaxInt64 if that is more than the level of
// Most units.
func (p *Plan) LevelAt(at Point, tick int64) int64 {
	if at.Tick-tick > p.full {
		return math.MaxInt64
	}
	return (max(at.Tick-tick, -p.full-1))*p.Drain + at.Part
}

// Turn returns the turn of a number of units that starts at a point.
func (p *Plan) Turn(from Point, units int64) Span {
	return Span{from, p.PointAt(from.Tick, from.Part+units*p.Unit)}
}

// TurnOf derives the turn of an admitted charge of cost units from its receipt. It reports whether the charge has to
// wait.
func (p *Plan) TurnOf(cost int64, r *Receipt) (_ Span, waits bool) {
	level := r.TurnEnd() - cost*p.Unit
	return p.Turn(p.PointAt(p.Ticks(r.Now), max(0, level)), cost), level > 0
}

// Delay returns how long an admitted charge of cost units waits for its turn, rounded up to a whole number of
// ticks. The result early is the level that drains in the time that rounding has added.
func (p *Plan) Delay(cost int64, r *Receipt) (_ time.Duration, early int64) {
	level := max(0, r.TurnEnd()-max(0, cost)*p.Unit)
	ticks := ceilDiv(level, p.Drain)
	return p.Until(p.Ticks(r.Now)+ticks, r.Now), ticks*p.Drain - level
}

// SameTurns reports whether points and levels have the same meaning in both plans.
func (p *Plan) SameTurns(q *Plan) bool {
	return p.Tick == q.Tick && p.Unit == q.Unit && p.Drain == q.Drain
}
