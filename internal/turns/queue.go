package turns

import (
	"slices"
	"time"

	"github.com/sluicehq/sluice/kernel"
)

// clock returns the earliest tick that the store's clock can show at the time now.
func (q *queue) clock(now time.Time) int64 {
	return q.plan.Ticks(q.now + now.Sub(q.seen).Microseconds())
}

// pass drops the turns that have passed at a tick.
func (q *queue) pass(tick int64) {
	now, n := kernel.Point{Tick: tick}, 0
	for n < len(q.spans) && !now.Before(q.spans[n].To) {
		n++
	}
	if q.spans = slices.Delete(q.spans, 0, n); len(q.spans) > 0 && q.spans[0].From.Before(now) {
		q.spans[0].From = now
	}
}

// add adds a span, and joins it with the spans that it touches. If the span overlaps another one, or if there are
// too many, it is dropped.
func (q *queue) add(s kernel.Span) {
	i, _ := slices.BinarySearchFunc(q.spans, s.From, func(a kernel.Span, at kernel.Point) int {
		if a.From.Before(at) {
			return -1
		}
		return 1
	})
	joinsLast, joinsNext := i > 0 && q.spans[i-1].To == s.From, i < len(q.spans) && q.spans[i].From == s.To
	switch {
	case i > 0 && s.From.Before(q.spans[i-1].To), i < len(q.spans) && q.spans[i].From.Before(s.To):
	case joinsLast && joinsNext:
		q.spans[i-1].To = q.spans[i].To
		q.spans = slices.Delete(q.spans, i, i+1)
	case joinsLast:
		q.spans[i-1].To = s.To
	case joinsNext:
		q.spans[i].From = s.From
	case len(q.spans) < maxSpans:
		q.spans = slices.Insert(q.spans, i, s)
	}
}

// find returns the index of the first span with room for cost units. It returns -1 if no span has room, or if a
// turn in that span would end beyond the length of p's queue at the given tick.
func (q *queue) find(p *kernel.Plan, cost, tick int64) int {
	for i, s := range q.spans {
		if end := p.Turn(s.From, cost).To; !s.To.Before(end) {
			if p.LevelAt(end, tick) > p.Size {
				return -1
			}
			return i
		}
	}
	return -1
}
