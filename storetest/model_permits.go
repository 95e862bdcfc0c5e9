package storetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/kernel"
)

// permitsAccount keeps the permits or distinct values that were taken, and the time at which each was taken.
type permitsAccount struct {
	taken   []taking
	current uint64 // the number of the permit or value of the current charge
	before  int64  // when current would have expired without the Take, or 0
}

type taking struct {
	number uint64
	at     int64
}

func newPermitsTerms(p *sluice.Plan) *terms {
	t := &terms{
		meaning: "in flight", tick: 1, capacity: p.Capacity, period: kernel.PermitLasts.Microseconds(),
		open: func() account { return new(permitsAccount) },
	}
	if p.Kernel == kernel.Distinct {
		t.period, t.distinct = p.Limit.Period.Microseconds(), true
		t.meaning = fmt.Sprintf("distinct values in %v", p.Limit.Period)
	}
	return t
}

// at returns the permits that count at the time now, the oldest first: those taken in the last period. If the clock
// has stepped back, permits taken at most a period after the time now count, too.
func (a *permitsAccount) at(t *terms, now int64) (count []taking) {
	for _, o := range a.taken {
		if age := now - o.at; -t.period <= age && age < t.period {
			count = append(count, o)
		}
	}
	slices.SortFunc(count, func(a, b taking) int { return int(a.at - b.at) })
	return count
}

// follow records when the current permit or value expires, before anything is taken.
func (a *permitsAccount) follow(t *terms, now int64) {
	a.before = 0
	for _, o := range a.at(t, now) {
		if o.number == a.current {
			a.before = o.at + t.period
		}
	}
}

func (a *permitsAccount) fits(t *terms, now, units int64) bool {
	count := a.at(t, now)
	for _, o := range count {
		if o.number == a.current {
			return units == 1
		}
	}
	return units == 1 && int64(len(count)) < t.capacity
}

func (a *permitsAccount) add(t *terms, now, units int64) {
	count := a.at(t, now)
	a.taken = nil
	if units == sluice.All {
		return
	}
	for _, o := range count {
		if o.number != a.current {
			a.taken = append(a.taken, o)
		}
	}
	if units > 0 {
		a.taken = append(a.taken, taking{a.current, now})
	}
}

func (a *permitsAccount) idle(t *terms, now int64) bool { return len(a.at(t, now)) == 0 }

func (a *permitsAccount) fill(t *terms, now, _ int64, r *sluice.Receipt) {
	count := a.at(t, now)
	r.Used = int64(len(count))
	if !t.distinct {
		return
	}
	r.Prev = a.before
	if len(count) > 0 {
		r.Tick, r.Wait = count[len(count)-1].at, a.room(t, count)
	}
}

// room returns when a new value will fit: when the oldest value expires, or, if there are more values than the
// limit, when enough of them have expired.
func (a *permitsAccount) room(t *terms, count []taking) int64 {
	for len(count) > int(t.capacity) {
		count = count[1:]
	}
	return count[0].at + t.period
}

// decide is [Model.Decide] for permits and values. The time at which a permit will be given back is unknown; the
// time at which a value expires is known.
func (a *permitsAccount) decide(t *terms, c sluice.Charge, r sluice.Receipt) sluice.Decision {
	d := sluice.Decision{Allowed: r.Fits, Now: r.Now, Origin: r.Origin}
	count := a.at(t, r.Now)
	d.Remaining = max(0, t.capacity-int64(len(count)))
	switch {
	case !r.Fits && c.Cost > 1: // a permit costs 1
		d.RetryAfter = sluice.Never
	case t.distinct && d.Remaining == 0:
		d.RetryAfter = time.Duration(a.room(t, count)-r.Now) * time.Microsecond
	case !r.Fits:
		d.RetryAfter = time.Second
	}
	if t.distinct && len(count) > 0 {
		d.ResetAfter = time.Duration(count[len(count)-1].at+t.period-r.Now) * time.Microsecond
	}
	return d
}
